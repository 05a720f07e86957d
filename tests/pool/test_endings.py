"""Every way in which a job in a pool can end, and what it costs (reports K3; behaviours 125, 126, 129, 132, 190)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.jobs.kinds import JobState
from pools import Pool, job_of, kill, named, publish, until

Pools = Callable[..., Pool]
SHORT = {"BACKOFF_FIRST_MS": 20, "BACKOFF_MAX_MS": 40}
"""Back-off of a few milliseconds, where a test waits for the third attempt."""


@pytest.mark.parametrize(
    ("title", "limits", "outcome", "state", "counted", "told"),
    [
        ("quick", {}, "completed", JobState.COMPLETED, 0, None),
        ("fail", {}, "retry", JobState.PENDING, 1, "the scripted engine failed"),
        ("fail", SHORT, "failed", JobState.FAILED, 3, "attempt 3: the scripted engine failed"),
        ("fault", {}, "retry", JobState.PENDING, 1, "ValueError: a fault in the job's code"),
        ("permanent", {}, "failed", JobState.FAILED, 1, "the scripted source never fits"),
        ("die SIGKILL", {}, "retry", JobState.PENDING, 1, "was killed by SIGKILL while the model computed (call 1)"),
        ("die SIGSEGV", {}, "retry", JobState.PENDING, 1, "was killed by SIGSEGV while the model computed (call 1)"),
        ("die SIGKILL", SHORT, "failed", JobState.FAILED, 3, "attempt 3: the worker's process was killed by SIGKILL"),
        ("die SIGABRT", SHORT, "failed", JobState.FAILED, 3, "attempt 3: the worker's process was killed by SIGABRT"),
    ],
)
def test_what_a_job_does_decides_how_it_ends(
    pool: Pools,
    store: MemoryStore,
    workspace: Path,
    title: str,
    limits: dict[str, int],
    outcome: str,
    state: JobState,
    counted: int,
    told: str | None,
) -> None:
    (session,) = publish(store, workspace, title)
    one = pool(1, limits=limits)
    ended = one.wait_for(named("JobEnded", outcome=outcome))
    job = job_of(store, session)
    assert (job.state, job.failure_count) == (state, counted)
    assert (told is None and job.last_error is None) or (told is not None and told in (job.last_error or ""))
    assert ended["error"] == job.last_error
    assert ended["attempt"] == max(1, counted)
    starts = [event for event in one.of("JobStarted") if event["job"] == job.id]
    assert [event["attempt"] for event in starts] == list(range(1, max(1, counted) + 1))
    one.signal(signal.SIGTERM)
    assert one.exit_code() == 143


@pytest.mark.parametrize(
    ("title", "grace", "seconds"),
    [("hold 30", 0.0, 1.0), ("hold 30", 0.4, 1.5), ("deaf 30", 0.3, 3.3)],
    ids=["no grace", "grace runs out", "deaf to the abort, killed two seconds later"],
)
def test_what_a_shutdown_interrupts_is_given_back_uncounted(
    pool: Pools, store: MemoryStore, workspace: Path, title: str, grace: float, seconds: float
) -> None:
    """Behaviour 167: also when the process had to be killed, since stopping is nobody's failure."""
    (session,) = publish(store, workspace, title)
    one = pool(1, grace=grace)
    one.wait_for(named("JobStarted"))
    asked = one.signal(signal.SIGTERM)
    stopping = one.wait_for(named("PoolStopping"))
    assert stopping["at"] - asked < 0.5
    assert one.exit_code() == 143
    (ended,) = [event for event in one.of("WorkerEnded") if event["worker"] == "Worker-1"]
    assert grace - 0.1 <= ended["at"] - asked < seconds
    job = job_of(store, session)
    assert (job.state, job.failure_count, job.last_error) == (JobState.PENDING, 0, None)


def test_a_job_that_ends_within_the_grace_is_completed(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "hold 0.6")
    one = pool(1, grace=20.0)
    one.wait_for(named("JobStarted"))
    one.signal(signal.SIGTERM)
    assert one.exit_code() == 143
    assert job_of(store, session).state is JobState.COMPLETED


def test_a_session_that_becomes_live_takes_its_job_back(
    pool: Pools, store: MemoryStore, workspace: Path, tmp_path: Path
) -> None:
    """Interactive work wins (issue 7, item 4): the model stops, not only the commit, and nothing is counted."""
    (session,) = publish(store, workspace, "hold 30")
    one = pool(1, log=str(tmp_path / "log"))
    one.wait_for(named("JobStarted"))
    with store.claim_session(session, workspace):
        claimed = time.monotonic()
        ended = one.wait_for(named("JobEnded", outcome="released"), seconds=5)
        assert ended["at"] - claimed < 1.0
        job = job_of(store, session)
        assert (job.state, job.failure_count) == (JobState.PENDING, 0)
        assert "cancelled" in (tmp_path / "log").read_text()
    one.wait_for(named("JobStarted"), count=2)


def test_a_stopped_worker_whose_lease_ran_out_settles_nothing(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """Behaviours 129 to 131: its job is counted and done by another; what it says when it wakes up is refused."""
    (session,) = publish(store, workspace, "hold 1")
    short = {"LEASE_MS": 1_500, "RENEW_EVERY_MS": 300, "BACKOFF_FIRST_MS": 20}
    one = pool(1, limits=short)
    one.wait_for(named("JobStarted"))
    kill(one.pid_of("Worker-1"), signal.SIGSTOP)
    other = pool(1, limits=short)
    done = other.wait_for(named("JobEnded", outcome="completed"))
    assert done["attempt"] == 2
    kill(one.pid_of("Worker-1"), signal.SIGCONT)
    lost = one.wait_for(named("JobLost"))
    assert (lost["job"], lost["attempt"]) == (done["job"], 1)
    job = job_of(store, session)
    assert (job.state, job.failure_count, job.last_error) == (JobState.COMPLETED, 1, "the worker's lease expired")
    publish(store, workspace, "quick")
    until(lambda: len(one.of("JobEnded")) + len(other.of("JobEnded")) == 2)
