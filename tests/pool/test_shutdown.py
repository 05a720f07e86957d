"""Stopping a pool: when it stops claiming, when it is over, and with which exit code (issue 7, item 2; contract)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from emelex_core import MemoryStore
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobState
from pools import Pool, gone, job_of, kill, named, publish, settled, until

Pools = Callable[..., Pool]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 143)], ids=["TERM", "INT", "HUP"]
)
def test_an_idle_pool_ends_at_once(pool: Pools, number: int, code: int) -> None:
    one = pool(2)
    one.wait_for(named("WorkerStarted"), count=3)
    asked = one.signal(number)
    assert one.exit_code() == code
    assert time.monotonic() - asked < 1.5
    assert [event["why"] for event in one.of("WorkerEnded")] == ["stopped"] * 3


def test_a_stop_by_its_own_program_is_no_signal(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    publish(store, workspace, "quick", "quick")
    one = pool(1, stop_after=2)
    assert one.exit_code() == 0
    assert settled(store)


def test_claiming_stops_within_100_ms(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Jobs of 10 ms each, many of them: what starts later than that after the signal was claimed too late."""
    publish(store, workspace, *["quick"] * 60)
    one = pool(2)
    one.wait_for(named("JobEnded"), count=5)
    asked = one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    late = [event["at"] - asked for event in one.of("JobStarted") if event["at"] - asked > 0.1]
    assert late == []
    assert not settled(store)
    assert reading.list_jobs(store.database, state=JobState.RUNNING) == []


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_is_immediate(
    pool: Pools, store: MemoryStore, workspace: Path, numbers: tuple[int, int]
) -> None:
    (session,) = publish(store, workspace, "hold 30")
    one = pool(1, grace=30.0)
    one.wait_for(named("JobStarted"))
    one.signal(numbers[0])
    one.wait_for(named("PoolStopping"))
    again = one.signal(numbers[1])
    assert one.exit_code() == (130 if numbers[0] == signal.SIGINT else 143)
    assert time.monotonic() - again < 1.5
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


def test_a_third_signal_waits_for_nothing(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "deaf 30")
    one = pool(1, grace=30.0)
    one.wait_for(named("JobStarted"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        again = one.signal(number)
        one.wait_for(named("PoolStopping"))
    assert one.exit_code() == 143
    assert time.monotonic() - again < 1.0
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


def test_a_signal_to_the_whole_group_is_one_signal(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """A terminal's Ctrl-C and a supervisor's group kill reach the workers too; the running job still finishes."""
    (session,) = publish(store, workspace, "hold 0.5")
    one = pool(2, own_group=True)
    one.wait_for(named("JobStarted"))
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.exit_code() == 130
    assert job_of(store, session).state is JobState.COMPLETED


def test_one_worker_told_to_end_finishes_its_job_and_is_replaced(
    pool: Pools, store: MemoryStore, workspace: Path
) -> None:
    (session,) = publish(store, workspace, "hold 0.5")
    one = pool(1)
    one.wait_for(named("JobStarted"))
    kill(one.pid_of("Worker-1"), signal.SIGTERM)
    one.wait_for(named("WorkerEnded", worker="Worker-1", why="stopped"))
    assert job_of(store, session).state is JobState.COMPLETED
    one.wait_for(named("WorkerStarted", worker="Worker-1"), count=2)


def test_a_reader_that_has_gone_ends_the_pool(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """What the listener raises leaves `run_pool`, when no child is left; the command line makes exit code 0 of it."""
    publish(store, workspace, "quick", "hold 30", "quick")
    one = pool(2, grace=0.2, break_after=1)
    assert one.exit_code() == 0
    assert gone(one.pids()) == []
    assert reading.list_jobs(store.database, state=JobState.RUNNING) == []


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs a PID namespace of its own")
def test_as_process_1_of_a_container(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Reports K8: as PID 1 it hears TERM, reaps what is left to it, and gives its job back."""
    (session,) = publish(store, workspace, "hold 30")
    one = pool(1, grace=0.5, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    one.wait_for(named("JobStarted"))
    (first,) = psutil.Process(one.process.pid).children()
    others = [child.pid for child in first.children()]
    assert len(others) == 2
    asked = time.monotonic()
    kill(first.pid, signal.SIGTERM)
    ended = one.wait_for(named("WorkerEnded", worker="Worker-1"))
    assert ended["at"] - asked < 2.0
    assert one.exit_code() == 143
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)
    assert gone([first.pid, *others]) == []


@pytest.mark.model
def test_a_stop_in_the_midst_of_prompt_evaluation(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Behaviour 190: native code is aborted when the grace is over, and the claim is given back uncounted."""
    (session,) = publish(store, workspace, "long prompt")
    one = pool(1, grace=0.0, source="builtin")
    one.wait_for(named("JobStarted"), seconds=60)
    worker = psutil.Process(one.pid_of("Worker-1"))
    before = worker.cpu_times().user
    until(lambda: worker.cpu_times().user - before > 0.5)
    asked = one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    ended = one.wait_for(named("JobEnded"))
    assert ended["outcome"] == "released"
    assert ended["at"] - asked < 0.5
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


@pytest.mark.model
def test_a_killed_worker_costs_one_attempt_with_the_real_model_too(
    pool: Pools, store: MemoryStore, workspace: Path
) -> None:
    """The whole line: a real job is killed in native code, counted once, and done by the worker that takes the seat."""
    (session,) = publish(store, workspace, "short prompt")
    one = pool(1, source="builtin", limits={"BACKOFF_FIRST_MS": 20})
    one.wait_for(named("JobStarted"), seconds=60)
    worker = psutil.Process(one.pid_of("Worker-1"))
    before = worker.cpu_times().user
    until(lambda: worker.cpu_times().user - before > 0.5)
    kill(worker.pid)
    one.wait_for(named("JobEnded", outcome="retry"))
    one.wait_for(named("JobEnded", outcome="completed"), seconds=60)
    job = job_of(store, session)
    assert (job.state, job.failure_count) == (JobState.COMPLETED, 1)
    assert job.last_error is not None
    assert "SIGKILL while the model computed (call 1)" in job.last_error
