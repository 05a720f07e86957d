"""The job that a settlement claims for its worker: begun next, or given back (behaviours 125, 164, 167)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from huey import Huey
from huey.storage import BlackHoleStorage

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobState
from emelex_queue.huey_storage import JobTableStorage
from emelex_queue.turns import Turns
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.pool.child import Child, Lines, PoolPlan
from emelex_workers.pool.events import Channel
from emelex_workers.pool.latch import Latch
from emelex_workers.pool.planning_lock import PlanningLock
from emelex_workers.pool.slate import Slate
from emelex_workers.pool.worker import PoolWorker
from emelex_workers.progress import DrainReport, JobEnded, JobStarted, WorkEvent
from pools import Pool, named, publish
from scripted import ScriptedEngine, ScriptedSource, says

Pools = Callable[..., Pool]


def running(store: MemoryStore) -> int:
    return len(reading.list_jobs(store.database, state=JobState.RUNNING))


def run(
    store: MemoryStore, listen: Callable[[WorkEvent], None], *, stop: CancelToken | None = None, max_jobs: int | None
) -> DrainReport:
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    return drain(store, DrainOptions(max_jobs=max_jobs), engines=source, listen=listen, stop=stop or CancelToken())


def test_a_drain_claims_its_next_job_in_the_settlement_but_none_past_its_bound(
    store: MemoryStore, workspace: Path
) -> None:
    """When an end is told, the next job is claimed already; the last one that is allowed claims none."""
    publish(store, workspace, "a", "b", "c")
    claimed_at_end: list[int] = []

    def listen(event: WorkEvent) -> None:
        if isinstance(event, JobEnded):
            claimed_at_end.append(running(store))

    report = run(store, listen, max_jobs=2)
    assert (report.distillations, report.remaining_jobs) == (2, 1)
    assert claimed_at_end == [1, 0]


def test_a_drain_that_is_stopped_between_two_jobs_gives_the_claimed_one_back(
    store: MemoryStore, workspace: Path
) -> None:
    publish(store, workspace, "a", "b")
    stop = CancelToken()
    begun: list[str] = []

    def listen(event: WorkEvent) -> None:
        if isinstance(event, JobStarted):
            begun.append(event.job)
        if isinstance(event, JobEnded):
            assert running(store) == 1
            stop.cancel()

    report = run(store, listen, stop=stop, max_jobs=None)
    assert (report.distillations, report.remaining_jobs, len(begun)) == (1, 1, 1)
    (left,) = reading.list_jobs(store.database, state=JobState.PENDING)
    assert (left.failure_count, left.last_error) == (0, None)


def test_a_drain_whose_listener_has_gone_gives_the_claimed_job_back(store: MemoryStore, workspace: Path) -> None:
    publish(store, workspace, "a", "b")

    def listen(event: WorkEvent) -> None:
        if isinstance(event, JobEnded):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run(store, listen, max_jobs=None)
    (left,) = reading.list_jobs(store.database, state=JobState.PENDING)
    assert (left.failure_count, left.last_error) == (0, None)


def test_a_pool_that_is_stopped_among_many_short_jobs_leaves_none_claimed(
    pool: Pools, store: MemoryStore, workspace: Path
) -> None:
    """What was begun is completed, what was only claimed is pending, and nothing is counted."""
    publish(store, workspace, *["noop"] * 150)
    one = pool(2, noop=True)
    one.wait_for(named("JobEnded"), count=30)
    one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    jobs = reading.list_jobs(store.database, limit=150)
    states = [job.state for job in jobs]
    assert {job.failure_count for job in jobs} == {0}
    assert states.count(JobState.COMPLETED) == len(one.of("JobStarted")) == len(one.of("JobEnded"))
    assert states.count(JobState.COMPLETED) + states.count(JobState.PENDING) == 150


@pytest.fixture
def worker(store: MemoryStore) -> Iterator[Callable[..., PoolWorker]]:
    """Workers of this process that can claim, without a model."""
    lines = Lines(stop=Latch(), abort=Latch(), events=Channel(), deaths=Channel())
    plan = SimpleNamespace(parent=os.getpid(), grace_seconds=1.0, growth_bytes_max=1)
    slates: list[Slate] = []

    def make(places: int = 1) -> PoolWorker:
        slates.append(Slate(places))
        child = Child(cast(PoolPlan, plan), lines, "Worker-1", slates[-1])
        made = PoolWorker(Huey("test", results=False, storage_class=BlackHoleStorage), child, JobTableStorage())
        made._turns = Turns(store.database, clock=store.clock)
        # Planning is not due for a while.
        made._plan_at = made._plan_idle_at = time.monotonic() + 600
        return made

    yield make
    lines.close()
    for slate in slates:
        slate.close()


@pytest.mark.parametrize(
    ("places", "prepare", "claims"),
    [
        (1, lambda worker: None, True),
        (1, lambda worker: setattr(worker, "_plan_at", 0.0), False),
        (1, lambda worker: worker._tether.stop.cancel(), False),
        (4, lambda worker: None, False),
    ],
    ids=["between two plannings", "planning is due", "told to stop", "several in flight"],
)
def test_a_worker_claims_beside_a_settlement_only_what_it_begins_next(
    store: MemoryStore,
    workspace: Path,
    worker: Callable[..., PoolWorker],
    places: int,
    prepare: Callable[[Any], None],
    claims: bool,
) -> None:
    """Planning goes first once a second; a stop is looked at in the settlement itself."""
    publish(store, workspace, "a", "b")
    one = worker(places)
    lease = one._turns.claim()
    assert lease is not None
    prepare(one)
    lease.complete(lambda transaction: None, record={}, beside=one._claim_beside)
    taken = one._turns.take()
    assert (taken is not None) is claims
    if taken is not None:
        taken.release()


def test_a_worker_beside_whom_another_plans_goes_on_claiming(
    store: MemoryStore, workspace: Path, worker: Callable[..., PoolWorker]
) -> None:
    """It looks again for something to plan in a second, not between any two jobs."""
    publish(store, workspace, "a", "b")
    one = worker()
    one._plan_at = one._plan_idle_at = 0.0
    one._lock = PlanningLock(store.database.path)
    other = PlanningLock(store.database.path)
    lease = one._turns.claim()
    assert lease is not None
    with other.attempt() as held:
        assert held
        one._plan(time.monotonic())
    lease.complete(lambda transaction: None, record={}, beside=one._claim_beside)
    taken = one._turns.take()
    assert taken is not None
    taken.release()
    one._lock.close()
    other.close()
