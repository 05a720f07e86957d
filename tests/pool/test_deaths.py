"""Whoever dies: a worker, the scheduler, the parent (issue 7, items 1 and 3; behaviour 190)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from emelex_core import MemoryStore
from emelex_core.jobs.kinds import JobState
from pools import Pool, gone, job_of, kill, named, publish, until

Pools = Callable[..., Pool]


def test_a_killed_workers_job_is_back_within_a_second(
    pool: Pools, store: MemoryStore, workspace: Path, tmp_path: Path
) -> None:
    (session,) = publish(store, workspace, "hold 30")
    log = tmp_path / "log"
    one = pool(1, log=str(log))
    until(lambda: log.exists() and "inside hold" in log.read_text())
    kill(one.pid_of("Worker-1"))
    took = until(lambda: job_of(store, session).state is JobState.PENDING)
    assert took < 1.0
    ended = one.wait_for(named("JobEnded"))
    job = job_of(store, session)
    assert (job.failure_count, ended["outcome"]) == (1, "retry")
    assert job.last_error == ("attempt 1: the worker's process was killed by SIGKILL while the model computed (call 1)")
    one.wait_for(named("WorkerStarted", worker="Worker-1"), count=2)


def test_a_job_that_kills_its_workers_ends_and_others_flow(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    (poison,) = publish(store, workspace, "die SIGKILL")
    healthy = publish(store, workspace, *["quick"] * 12)
    one = pool(2, limits={"BACKOFF_FIRST_MS": 20, "BACKOFF_MAX_MS": 40})
    one.wait_for(named("JobEnded", outcome="failed"))
    one.wait_for(named("JobEnded", outcome="completed"), count=12)
    job = job_of(store, poison)
    assert (job.state, job.failure_count) == (JobState.FAILED, 3)
    assert job.last_error is not None
    assert "SIGKILL while the model computed" in job.last_error
    assert {job_of(store, session).failure_count for session in healthy} == {0}
    assert len([event for event in one.of("WorkerEnded") if event["signal"] == "SIGKILL"]) == 3


def test_a_killed_scheduler_is_replaced_and_goes_on_counting(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "hold 30")
    one = pool(1)
    one.wait_for(named("JobStarted"))
    kill(one.pid_of("Scheduler"))
    one.wait_for(named("WorkerStarted", worker="Scheduler"), count=2)
    kill(one.pid_of("Worker-1"))
    one.wait_for(named("JobEnded", outcome="retry"))
    assert job_of(store, session).failure_count == 1


def test_a_killed_parent_leaves_nobody(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Each running job costs one counted failure, at the next look of anybody."""
    sessions = publish(store, workspace, "hold 30", "deaf 30")
    one = pool(2)
    one.wait_for(named("JobStarted"), count=2)
    one.process.kill()
    assert gone(one.pids(), seconds=1.0) == []
    another = pool(1)
    until(lambda: all(job_of(store, session).failure_count == 1 for session in sessions), seconds=1.5)
    told = another.wait_for(named("JobEnded", lost=True), count=2)
    assert (told["outcome"], told["attempt"]) == ("retry", 1)
    another.signal(signal.SIGTERM)


def test_a_stopped_worker_does_not_survive_its_parent(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    publish(store, workspace, "hold 30")
    one = pool(1)
    one.wait_for(named("JobStarted"))
    kill(one.pid_of("Worker-1"), signal.SIGSTOP)
    one.process.kill()
    assert gone(one.pids(), seconds=1.0) == []


def test_workers_that_die_over_and_over_end_the_pool(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Replaced at once, then with growing delays, then no more: no job was claimed, so none was harmed."""
    (session,) = publish(store, workspace, "quick")
    one = pool(1, source="mortal", options={"deaths_max": 4})
    assert one.exit_code() == 1
    ends = [event for event in one.of("WorkerEnded") if event["why"] == "killed"]
    delays = [event["respawn_seconds"] for event in ends]
    assert delays[0] == 0.0
    assert delays[3] is None
    assert 0.1 <= delays[1] < delays[2]
    assert one.of("PoolStopping")[0]["reason"] == "Worker-1 died 4 times in a row"
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


def test_a_model_that_cannot_be_loaded_ends_the_pool_with_its_error(
    pool: Pools, store: MemoryStore, workspace: Path
) -> None:
    (session,) = publish(store, workspace, "quick")
    one = pool(2, source="unusable")
    assert one.exit_code() == 1
    fault = one.wait_for(named("WorkerFault"))
    assert (fault["kind"], fault["message"]) == ("ModelUnusable", "the scripted weights are gone")
    assert fault["hint"] == "get them again"
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


def test_no_work_loads_no_model(pool: Pools) -> None:
    """Behaviour 163: a pool whose model cannot be loaded runs on while there is nothing to do."""
    one = pool(1, source="unusable")
    one.wait_for(named("WorkerStarted"), count=2)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.2)
    assert one.process.poll() is None
    assert one.of("ModelLoading") == []


def test_a_worker_that_grew_is_replaced_between_two_jobs(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    sessions = publish(store, workspace, "quick", "grow 24", "quick", "quick")
    one = pool(1, options={"growth_bytes_max": 16 << 20})
    one.wait_for(named("JobEnded"), count=4)
    (ended,) = [event for event in one.of("WorkerEnded") if event["worker"] == "Worker-1"]
    assert (ended["why"], ended["respawn_seconds"]) == ("recycled", 0.0)
    assert {job_of(store, session).state for session in sessions} == {JobState.COMPLETED}


def test_a_database_that_vanishes_ends_the_pool(pool: Pools, store: MemoryStore, home: Path) -> None:
    """Workers see that the file is no longer the one they opened, and a new one is not made behind the user's back."""
    one = pool(1)
    one.wait_for(named("WorkerStarted"), count=2)
    (home / "memory" / "emelex.sqlite3").rename(home / "memory" / "elsewhere.sqlite3")
    assert one.exit_code() == 3
    assert not (home / "memory" / "emelex.sqlite3").exists()
    assert "NotFound" in {event["kind"] for event in one.of("WorkerFault")}
