"""Several pools and drains on one Home: the table decides who gets what, and nothing is settled twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.home import Home
from emelex_core.jobs.kinds import JobState
from emelex_queue.lease import JobLease
from emelex_workers import attempt as attempts
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.result import JobResult
from emelex_workers.text.restate import Usage
from pools import Pool, publish, settled, until
from scripted import ScriptedEngine, ScriptedSource, turn
from stores import rows, sound

Pools = Callable[..., Pool]


def test_two_pools_and_a_drain_share_sixty_jobs(
    pool: Pools, store: MemoryStore, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, workspace, *["quick"] * 60)
    never = threading.Event()

    def work(store: MemoryStore, lease: JobLease, engine: object, cancel: CancelToken, *, chunking: bool) -> JobResult:
        never.wait(0.01)
        return JobResult(
            apply=lambda transaction: None, record={"pid": 0, "attempt": 1}, usage=Usage(), knowledge_candidates=0
        )

    monkeypatch.setattr(attempts, "_work", work)
    first, second = pool(2), pool(1)
    until(lambda: bool(first.of("JobEnded")) and bool(second.of("JobEnded")))
    report = drain(
        store,
        DrainOptions(),
        engines=ScriptedSource(ScriptedEngine()),
        listen=lambda event: None,
        stop=CancelToken(),
    )
    until(lambda: settled(store))
    for one in (first, second):
        one.signal(signal.SIGTERM)
        assert one.exit_code() == 143
    completed = [
        len([event for event in one.of("JobEnded") if event["outcome"] == "completed"]) for one in (first, second)
    ]
    assert all(count > 0 for count in [*completed, report.distillations])
    assert sum(completed) + report.distillations == 60
    path = Home(home).database
    assert rows(path, "SELECT state, failure_count, count(*) FROM jobs GROUP BY 1, 2") == [(JobState.COMPLETED, 0, 60)]
    assert rows(path, "SELECT count(*) FROM job_records") == [(60,)]
    assert sound(path)


def test_a_pool_compacts_what_outgrows_the_context_by_itself(pool: Pools, store: MemoryStore, workspace: Path) -> None:
    """The planning turn: a Session over the trigger is measured, and its compaction is done first."""
    session = store.start_session(workspace, title="a long one")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turns([turn(number) for number in range(1, 40)])
        lease.release(distill=True)
    one = pool(1)
    until(lambda: len(one.of("JobEnded")) == 2)
    assert {event["kind"] for event in one.of("JobStarted")} == {"compaction", "distillation"}
    planned = [event for event in one.of("PlanningNote") if event["planned"]]
    assert [event["session"] for event in planned] == [session.id]
    assert one.of("JobStarted")[0]["kind"] == "compaction"
