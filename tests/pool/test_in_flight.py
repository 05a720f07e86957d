"""Several jobs in flight in one worker: leases, endings, deaths and shutdown stay right for each (issue 7, item 8)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from emelex_core import MemoryStore
from emelex_core.config import load
from emelex_core.errors import UsageError
from emelex_core.home import locate
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobState
from emelex_queue.cancel import cancel
from emelex_workers.pool.flight import Flight
from emelex_workers.pool.run import PoolOptions, run_pool
from emelex_workers.pool.slate import Slate
from pools import Pool, job_of, kill, named, publish, settled, until

Pools = Callable[..., Pool]


def test_one_worker_has_as_many_jobs_at_once_as_it_may(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Never more, and another begins when one ends."""
    publish(store, workspace, *["hold 30"] * 5)
    one = pool(1, options={"in_flight": 4})
    first = one.wait_for(named("JobStarted"), count=4)
    assert one.of("PoolStarted")[0]["in_flight"] == 4
    jobs = {event["job"] for event in one.of("JobStarted")}
    assert len(jobs) == 4
    with MemoryStore.open(store.database.path.parent.parent) as other:
        cancel(other.database, first["job"])
    # Cancelled, the job is claimable again at once: as the fifth, or before it.
    one.wait_for(named("JobEnded", outcome="released", job=first["job"]))
    one.wait_for(named("JobStarted"), count=5)
    one.signal(signal.SIGTERM)
    one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    assert {job.state for job in _jobs(store)} == {JobState.PENDING}


def test_many_jobs_in_flight_are_settled_once_each(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Threads of one worker share its connection; each settles its own job."""
    sessions = publish(store, workspace, *["quick"] * 60, "fail", "permanent", "fault")
    one = pool(2, options={"in_flight": 8})
    one.wait_for(named("JobEnded"), count=63, seconds=60)
    ends = [(event["job"], event["attempt"]) for event in one.of("JobEnded")]
    assert len(set(ends)) == 63
    states = [job_of(store, session).state for session in sessions]
    assert states == [JobState.COMPLETED] * 60 + [JobState.PENDING, JobState.FAILED, JobState.PENDING]


def test_a_live_session_releases_its_job_and_no_other(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Issue 7, item 4, for one of several: within a second, uncounted."""
    live, *others = publish(store, workspace, "hold 30", "hold 30", "hold 30")
    one = pool(1, options={"in_flight": 3})
    one.wait_for(named("JobStarted"), count=3)
    with store.claim_session(live, workspace):
        began = time.monotonic()
        one.wait_for(named("JobEnded", outcome="released"))
        assert time.monotonic() - began < 2.0
        assert job_of(store, live).failure_count == 0
        assert [job_of(store, other).state for other in others] == [JobState.RUNNING] * 2
    one.wait_for(named("JobStarted", session=live), count=2)


def test_a_killed_worker_leaves_each_of_its_jobs_counted_once(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Issue 7, item 3: each with signal and phase."""
    sessions = publish(store, workspace, *["hold 30"] * 3)
    one = pool(1, options={"in_flight": 3})
    one.wait_for(named("JobStarted"), count=3)
    kill(one.pid_of("Worker-1"))
    took = until(lambda: all(job_of(store, session).failure_count == 1 for session in sessions))
    assert took < 1.0
    ended = one.wait_for(named("WorkerEnded", worker="Worker-1"))
    assert sorted(ended["jobs"]) == sorted(job_of(store, session).id for session in sessions)
    one.wait_for(named("JobEnded"), count=3)
    assert len(one.of("JobEnded")) == 3
    assert {event["lost"] for event in one.of("JobEnded")} == {True}
    until(lambda: all("killed by SIGKILL" in str(job_of(store, session).last_error) for session in sessions))


def test_shutdown_lets_jobs_finish_within_the_grace_and_aborts_the_rest(
    pool: Pools, store: MemoryStore, workspace: Path
) -> None:
    """Issue 7, item 2: one that is done in time is completed, the others are given back uncounted."""
    short, *long = publish(store, workspace, "hold 0.6", "hold 30", "hold 30")
    one = pool(1, grace=1.2, options={"in_flight": 3})
    one.wait_for(named("JobStarted"), count=3)
    told = one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    assert time.monotonic() - told < 1.2 + 2.0
    assert job_of(store, short).state is JobState.COMPLETED
    assert [(job_of(store, one).state, job_of(store, one).failure_count) for one in long] == [(JobState.PENDING, 0)] * 2


def test_a_second_signal_gives_every_job_back_at_once(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    sessions = publish(store, workspace, *["hold 30"] * 4)
    one = pool(1, grace=60, options={"in_flight": 4})
    one.wait_for(named("JobStarted"), count=4)
    one.signal(signal.SIGINT)
    one.wait_for(named("PoolStopping"))
    told = one.signal(signal.SIGINT)
    assert one.exit_code() == 130
    assert time.monotonic() - told < 2.0
    assert [job_of(store, session).failure_count for session in sessions] == [0] * 4
    assert {job_of(store, session).state for session in sessions} == {JobState.PENDING}


def test_a_grown_worker_finishes_what_is_in_flight(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    publish(store, workspace, "quick", "hold 0.5", "grow 24", "hold 0.5", "quick", "quick")
    one = pool(1, options={"in_flight": 3, "growth_bytes_max": 16 << 20})
    one.wait_for(named("JobEnded", outcome="completed"), count=6)
    one.wait_for(named("WorkerEnded", why="recycled"))
    assert one.of("WorkerEnded")[0]["jobs"] == []
    assert settled(store)


def test_a_local_model_takes_one_job_at_a_time(tmp_path: Path) -> None:
    home = locate(tmp_path / "home")
    with pytest.raises(UsageError, match="one job at a time"):
        run_pool(home, load(home, environment={}), PoolOptions(workers=1, in_flight=2), listen=lambda event: None)
    with pytest.raises(UsageError, match="jobs in flight"):
        PoolOptions(in_flight=0).check()


def test_a_fault_in_a_jobs_thread_is_raised_to_its_worker() -> None:
    """A thread never dies unheard, and its place is free again."""
    slate = Slate(2)
    gate = threading.Event()

    def fly(lease: object, place: object) -> None:
        gate.wait(10)
        raise ValueError("a fault")

    flight = Flight(slate, fly)
    lease = _lease()
    flight.start(lease)
    assert len(slate.works()) == 1
    assert flight.has_room(within_seconds=0)
    flight.start(lease)
    assert not flight.has_room(within_seconds=0.01)
    flight.check()
    gate.set()
    flight.join()
    assert slate.works() == ()
    assert flight.has_room(within_seconds=0)
    with pytest.raises(ValueError, match="a fault"):
        flight.check()
    slate.close()


def _lease() -> object:
    return SimpleNamespace(job=SimpleNamespace(id="0190c0de-0000-7000-8000-000000000001", attempt=1))


def _jobs(store: MemoryStore) -> list[object]:
    return list(reading.list_jobs(store.database))
