"""Every verb of the store beside a disk that fails (issue 3, "Proof"): a seeded sample of every fault point.

A life of 20 steps (create, start, claim, append, asset, release and publish, plan, claim a job, complete with a
Summary, checkpoint, fail, Knowledge, import batches) makes some 730 operations of the disk. One of them fails; then
each acknowledged change is there, each refused one absent, the refused step goes through when it is tried again, and a
new process finds everything as recorded and every check quiet. `ops/soak/fault_sweep.py` does it for every one.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sweep
from faulty_vfs import Machine
from sweep import Ending

SEED = 3
SAMPLE = 24
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A directory in memory where there is one: what counts as durable is the machine's, not the kernel's."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def whole(disk: Path) -> Machine:
    """The operations of a life without a fault."""
    return sweep.operations(disk / "whole")


def points(most: int, salt: str) -> list[int]:
    """The first, the last and a seeded sample of the operations between."""
    chance = random.Random(f"{SEED}{salt}")
    return sorted({1, most, *chance.sample(range(1, most + 1), min(SAMPLE, most))})


def held(endings: dict[int, Ending]) -> None:
    """Nothing was wrong anywhere, and the faults came."""
    assert {nth: ending.wrong for nth, ending in endings.items() if ending.wrong} == {}
    assert all(ending.hit for ending in endings.values())


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("write", "EIO"),
        ("write", "ENOSPC"),
        ("sync", "EIO"),
        ("truncate", "EIO"),
        ("truncate", "ENOSPC"),
        ("delete", "EIO"),
        ("open", "EIO"),
        ("read", "EIO"),
    ],
)
def test_one_failing_operation_costs_its_step_and_nothing_else(
    disk: Path, whole: Machine, kind: str, error: str
) -> None:
    """K7: the previous state is left, the error is one of the tree, and the store goes on in the same process."""
    chosen = points(whole.counts[kind], kind + error)
    endings = {nth: sweep.survives_error(disk / f"{kind}-{error}-{nth}", kind, nth, error) for nth in chosen}
    held(endings)
    assert kind in ("truncate", "delete", "read") or any(ending.refused for ending in endings.values())


def test_a_full_disk_refuses_and_goes_on_once_space_is_freed(disk: Path, whole: Machine) -> None:
    """K7: disk full, then freed."""
    chosen = points(whole.counts["write"], "full")
    held({nth: sweep.survives_full_disk(disk / f"full-{nth}", nth) for nth in chosen})


@pytest.mark.parametrize("call", ["mmap", "fcntl"])
def test_shared_memory_and_locks_that_fail_cost_their_step(disk: Path, call: str) -> None:
    """The calls behind the -shm file, and those that take locks."""
    _, made = sweep.survives_call(disk / f"{call}-counted", call, None)
    held({nth: sweep.survives_call(disk / f"{call}-{nth}", call, nth)[0] for nth in points(made, call)})


@pytest.mark.parametrize("keep", ["none", "all", "some"])
def test_a_power_cut_loses_nothing_that_was_acknowledged(disk: Path, whole: Machine, keep: str) -> None:
    """Unsynced sectors are dropped, kept, or torn at random; the step in flight is whole or absent."""
    chosen = points(whole.total, keep)
    endings = {nth: sweep.survives_power_cut(disk / f"cut-{keep}-{nth}", nth, keep=keep, seed=nth) for nth in chosen}
    held(endings)


def test_a_power_cut_in_the_recovery_from_a_power_cut_loses_nothing(disk: Path, whole: Machine) -> None:
    """The next boot is no safer than the one before: its recovery is cut as well."""
    chance = random.Random(SEED)
    chosen = [(chance.randint(whole.total // 2, whole.total), again) for again in range(1, 60, 4)]
    endings = {
        again: sweep.survives_power_cut(disk / f"again-{again}", nth, keep="some", seed=nth, again=again)
        for nth, again in chosen
    }
    held(endings)


def test_the_sweep_sees_a_store_that_does_not_sync(disk: Path, whole: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that cannot fail is none: on a disk whose syncs do nothing, power cuts lose what was acknowledged."""
    monkeypatch.setattr(Machine, "synced", lambda machine, path: None)
    endings = [
        sweep.survives_power_cut(disk / f"liar-{nth}", nth, keep="none", seed=nth)
        for nth in range(whole.total - 40, whole.total, 10)
    ]
    assert any(ending.wrong for ending in endings)
