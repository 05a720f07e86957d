"""One life of a store with one fault in it, and everything that must hold afterwards: for tests/faults and ops/soak."""

from __future__ import annotations

import contextlib
import copy
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emelex_core import Event, MemoryStore
from emelex_core.errors import EmelexError
from faulty_vfs import Calls, Machine, failing_calls, plugged_in
from life import STEPS, Life, Record, Step, difference, faults_of, found, open_again

UNTOLD = {Life.release, Life.plan, Life.claim_compaction, Life.claim_distillation}
"""Steps that learn an id from their answer: their intention cannot be told in advance, only its shape."""


@dataclass(frozen=True)
class Ending:
    """How one life went. `hit` says that the fault came; `wrong` what did not hold."""

    hit: bool
    refused: bool
    wrong: str | None


def survives_error(place: Path, kind: str, nth: int, error: str) -> Ending:
    """One operation of the disk fails once; the program goes on, and tries the refused step again."""
    with _place(place) as (home, workspace), plugged_in() as machine:
        machine.arm(kind, nth, error)
        life = Life(home, workspace)
        refused, wrong = _go_on(life, machine)
        return Ending(machine.failed is not None, refused, wrong)


def survives_full_disk(place: Path, nth: int) -> Ending:
    """The disk is full from one write on; space is freed after the first refused step."""
    with _place(place) as (home, workspace), plugged_in() as machine:
        machine.fill_up_at(nth)
        refused, wrong = _go_on(Life(home, workspace), machine)
        return Ending(machine.failed is not None, refused, wrong)


def survives_call(place: Path, call: str, nth: int | None) -> tuple[Ending, int]:
    """One `mmap` or `fcntl` for shared memory and locks fails once. Also returns how many calls there were."""
    with _place(place) as (home, workspace), failing_calls(call, nth) as calls:
        life = Life(home, workspace)
        refused, wrong = _go_on(life, calls)
        return Ending(calls.failed, refused, wrong), calls.lived


def survives_power_cut(place: Path, nth: int, *, keep: str, seed: int, again: int | None = None) -> Ending:
    """The power goes at one operation. What the platter holds is opened; the step in flight is whole or absent.

    With `again` it goes a second time, at that operation of the recovery.
    """
    with _place(place) as (home, workspace):
        life = Life(home, workspace)
        with plugged_in() as machine:
            machine.cut_at(nth)
            before, step = _until_dead(life, machine)
            life.close()
        if not machine.dead:
            return Ending(hit=False, refused=False, wrong=None)
        image = _image(home, place / "image", machine, keep=keep, seed=seed)
        if again is not None:
            image = _cut_in_recovery(image, place / "second", life, again, keep=keep, seed=seed)
        return Ending(hit=True, refused=step is not None, wrong=_after_cut(image, life, before, step))


def operations(place: Path) -> Machine:
    """A life without a fault: how many operations of each kind there are."""
    with _place(place) as (home, workspace), plugged_in() as machine:
        life = Life(home, workspace)
        for step in STEPS:
            step(life)
        life.close()
        return machine


def _go_on(life: Life, fault: Machine | Calls) -> tuple[bool, str | None]:
    """Live with a fault that comes once; return whether a step was refused, and what did not hold."""
    refused = False
    for step in STEPS:
        try:
            step(life)
        except EmelexError as error:
            if not fault.failed or refused:
                return refused, f"{step.__name__} failed without a fault: {type(error).__name__}: {error}"
            refused = True
            wrong = _absent(life, step)
            fault.mend()
            wrong = wrong or _again(life, step)
            if wrong:
                life.close()
                return refused, f"{step.__name__} was refused ({error}), but {wrong}"
    life.close()
    fault.mend()
    return refused, _sound(life.home, life, life.record)


def _absent(life: Life, step: Step) -> str | None:
    """What was refused has not happened."""
    if life.store is None:
        return None
    try:
        return difference(life.store, life.record)
    except EmelexError as error:
        return f"after it, reading fails: {type(error).__name__}: {error}"


def _again(life: Life, step: Step) -> str | None:
    """The fault is over: the same step goes through."""
    try:
        step(life)
    except EmelexError as error:
        return f"trying again fails: {type(error).__name__}: {error}"
    return None


def _until_dead(life: Life, machine: Machine) -> tuple[Record, Step | None]:
    """Live until the power goes; return what was acknowledged before the step in flight, and that step."""
    for step in STEPS:
        life.intended = None
        before = copy.deepcopy(life.record)
        try:
            step(life)
        except EmelexError:
            assert machine.dead
            return before, step
        if machine.dead:
            # The step was acknowledged: SQLite did not need the operation that failed.
            return copy.deepcopy(life.record), None
    return copy.deepcopy(life.record), None


def _cut_in_recovery(image: Path, target: Path, life: Life, nth: int, *, keep: str, seed: int) -> Path:
    """Open what the first cut left, lose the power again on the way, and return what that leaves."""
    with plugged_in() as machine:
        machine.cut_at(nth)
        with contextlib.suppress(EmelexError):
            store = open_again(image, life.clock)
            if store is not None:
                store.close()
    return _image(image, target, machine, keep=keep, seed=seed) if machine.dead else image


def _after_cut(image: Path, life: Life, before: Record, step: Step | None) -> str | None:
    try:
        store = open_again(image, life.clock)
    except EmelexError as error:
        return f"opening again fails: {type(error).__name__}: {error}"
    if store is None:
        return None if before == Record() else "the database is gone"
    with store:
        allowed = [before] if life.intended is None else [before, life.intended]
        if step in UNTOLD:
            allowed += _with_one_job_more(before, found(store))
        wrong = difference(store, *allowed, strict=False) or "; ".join(faults_of(store)) or None
        if wrong is None:
            _lives_on(store, life.workspace)
        return wrong


def _with_one_job_more(before: Record, stored: Record) -> list[Record]:
    """The record with one job as stored, if exactly one is new and pending, or went from pending to running."""
    changed = [job for job, state in stored.jobs.items() if before.jobs.get(job) != state]
    if len(changed) != 1:
        return []
    was, now = before.jobs.get(changed[0]), stored.jobs[changed[0]]
    legal = now == ("pending", 0) if was is None else was[0] == "pending" and now == ("running", was[1])
    after = copy.deepcopy(before)
    after.jobs[changed[0]] = now
    return [after] if legal else []


def _sound(home: Path, life: Life, record: Record) -> str | None:
    """A new process opens the store: it is as recorded, whole, and goes on."""
    try:
        store = open_again(home, life.clock)
    except EmelexError as error:
        return f"opening again fails: {type(error).__name__}: {error}"
    assert store is not None
    with store:
        wrong = difference(store, record) or "; ".join(faults_of(store)) or None
        if wrong is None:
            _lives_on(store, life.workspace)
        return wrong


def _lives_on(store: MemoryStore, workspace: Path) -> None:
    session = store.start_session(workspace, title="afterwards")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("afterwards")])


def _image(home: Path, image: Path, machine: Machine, *, keep: str, seed: int) -> Path:
    """The Home as the next boot finds it: what the machine never opened as it stands, shared memory not at all."""
    if home.exists():
        shutil.copytree(home, image, ignore=shutil.ignore_patterns("*-shm"))
        machine.image(image / "memory", keep=keep, chance=random.Random(seed))
    return image


@contextlib.contextmanager
def _place(place: Path) -> Iterator[tuple[Path, Path]]:
    workspace = place / "workspace"
    workspace.mkdir(parents=True)
    try:
        yield place / "home", workspace
    finally:
        shutil.rmtree(place)
