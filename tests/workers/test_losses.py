"""Losses that a run counts for others: told, counted, answered for with exit code 8 (behaviours 129 and 173)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore, limits
from emelex_core.engine.ports import CancelToken
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobState
from emelex_core.sessions.records import Session
from emelex_queue import claims, idle
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.progress import DrainReport, JobEnded, JobStarted, WorkEvent
from program import Program
from scripted import ScriptedEngine, ScriptedSource, says
from stores import child, edit, kill, line

Talk = Callable[[int], Session]

HOLDER = """
import sys
from pathlib import Path
from emelex_core import MemoryStore
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
store = MemoryStore.open(Path(sys.argv[1]))
held = []
while (lease := claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)) is not None:
    held.append(lease)
print(",".join(lease.job.id for lease in held), flush=True)
sys.stdin.read()
"""
"""Claims every job that it can and waits to be killed."""


def lose(home: Path, *, failures_before: int = 0) -> list[str]:
    """Have a real process claim what can be claimed and kill it; return the jobs, oldest first."""
    holder = child(HOLDER, home)
    jobs = line(holder).split(",")
    if failures_before:
        path = home / "memory" / "emelex.sqlite3"
        edit(path, "UPDATE jobs SET failure_count = ?, last_error = 'x' WHERE state = 'running'", (failures_before,))
    kill(holder)
    return jobs


def run(store: MemoryStore, **options: object) -> tuple[DrainReport, list[WorkEvent], ScriptedSource]:
    """Drain with a scripted model."""
    events: list[WorkEvent] = []
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    report = drain(store, DrainOptions(**options), engines=source, listen=events.append, stop=CancelToken())  # type: ignore[arg-type]  # options are the dataclass's own
    return report, events, source


def test_a_killed_workers_last_attempt_is_told_and_exits_with_8(home: Path, store: MemoryStore, talk: Talk) -> None:
    """173: the run that counts the third failure answers for it, though it finds nothing else to do."""
    talk(1)
    (job,) = lose(home, failures_before=2)
    program = Program(home=home, workspace=home.parent / "workspace")
    result = program("memory", "work", "--json")
    failed, complete = result.lines
    assert result.code == 8
    assert (failed["type"], failed["job"], failed["attempt"], failed["retry_at"]) == ("job_failed", job, 3, None)
    assert failed["error"] == claims.OWNER_DIED
    assert (complete["failed_jobs"], complete["retries_scheduled"], complete["remaining_jobs"]) == (1, 0, 0)
    again = program("memory", "work", "--json")
    assert (again.code, [record["type"] for record in again.lines]) == (0, ["memory_worker_complete"])


def test_a_killed_workers_first_attempt_is_a_retry_and_exits_with_0(home: Path, store: MemoryStore, talk: Talk) -> None:
    """173: retries alone are no failure."""
    talk(1)
    (job,) = lose(home)
    result = Program(home=home, workspace=home.parent / "workspace")("memory", "work", "--json")
    retry, complete = result.lines
    found, _ = reading.get_job(store.database, job)
    assert found.retry_after is not None
    assert (result.code, retry["type"], retry["job"], retry["attempt"]) == (0, "job_retry", job, 1)
    assert retry["retry_at"] is not None
    assert (complete["retries_scheduled"], complete["failed_jobs"], complete["remaining_jobs"]) == (1, 0, 1)


def test_a_terminal_loss_stands_beside_what_the_run_completed(home: Path, store: MemoryStore, talk: Talk) -> None:
    """129: the same run goes on to other jobs; a bound on jobs counts those that it ran."""
    talk(1)
    (lost,) = lose(home, failures_before=2)
    other = talk(1)
    report, events, _ = run(store, max_jobs=1)
    assert [event.session for event in events if isinstance(event, JobStarted)] == [other.id]
    ends = [(event.job, event.outcome, event.lost) for event in events if isinstance(event, JobEnded)]
    assert ends[0] == (lost, "failed", True)
    assert [end[1:] for end in ends[1:]] == [("completed", False)]
    assert (report.failed_jobs, report.distillations) == (1, 1)


def test_more_losses_than_one_count_takes_are_all_told(
    home: Path, store: MemoryStore, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of one transaction is not the bound of a run; no model is loaded for them."""
    monkeypatch.setattr(limits, "EXPIRED_PER_CLAIM_MAX", 2)
    for _ in range(5):
        talk(1)
    jobs = lose(home, failures_before=2)
    report, events, source = run(store)
    assert sorted(event.job for event in events if isinstance(event, JobEnded)) == sorted(jobs)
    assert (report.failed_jobs, source.loads) == (5, 0)
    assert {reading.get_job(store.database, job)[0].state for job in jobs} == {JobState.FAILED}
    assert idle.is_idle(store.database, list(DrainOptions().kinds), clock=store.clock)


def test_a_loss_in_the_middle_of_a_run_is_told_by_the_claim_that_counts_it(
    home: Path, store: MemoryStore, talk: Talk
) -> None:
    """A worker dies while another works: the other's next claim counts it, here in its settlement; its run tells."""
    talk(1)
    holder = child(HOLDER, home)
    (job,) = line(holder).split(",")
    talk(1)
    talk(1)
    events: list[WorkEvent] = []

    def hear(event: WorkEvent) -> None:
        events.append(event)
        if isinstance(event, JobStarted) and holder.poll() is None:
            kill(holder)

    source = ScriptedSource(ScriptedEngine(write=says("x")))
    report = drain(store, DrainOptions(), engines=source, listen=hear, stop=CancelToken())
    assert [event.outcome for event in events if isinstance(event, JobEnded)] == ["completed", "retry", "completed"]
    assert [event.job for event in events if isinstance(event, JobEnded) and event.lost] == [job]
    assert (report.retries_scheduled, report.distillations) == (1, 2)
