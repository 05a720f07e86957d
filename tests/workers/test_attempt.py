"""How an attempt at a job ends, for every ending there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.engine.ports import CancelToken, FinishReason, Generation, Request
from emelex_core.errors import Cancelled, Corrupt, EngineFailure, PermanentFailure, StaleJobLease
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.sessions.records import Session
from emelex_queue import claims
from emelex_workers import attempt as attempts
from emelex_workers.attempt import attempt
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.heartbeat import Cause, Heart
from emelex_workers.progress import JobEnded, JobStep, WorkEvent
from scripted import ScriptedEngine, ScriptedSource, Writer, let_word, says
from stores import behind

Talk = Callable[[int], Session]


FACTS = (
    "The staging database runs on PostgreSQL 15 behind port 5433, and it is restored from the nightly dump at six.",
    "The billing service runs on Kubernetes 1.29 in Frankfurt, and it listens on port 8443 behind the gateway.",
)
"""Each is long enough to be worded by the model."""


def run(
    store: MemoryStore, write: Writer, *, kind: JobKind = JobKind.DISTILLATION, stop: CancelToken | None = None
) -> JobEnded:
    lease = claims.claim(store.database, kind, clock=store.clock)
    assert lease is not None
    return attempt(store, lease, ScriptedEngine(write=write), stop=stop or CancelToken(), chunking=True)


def raises(error: Exception) -> Writer:
    def write(request: Request, cancel: CancelToken) -> Generation:
        raise error

    return write


def test_a_done_job_is_completed_with_its_knowledge(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    talk(2)
    ended = run(store, says("no such thing"))
    assert (ended.outcome, ended.attempt) == ("completed", 1)
    assert ended.knowledge_candidates == len(store.list_knowledge(workspace)) > 0
    (job,) = reading.list_jobs(store.database, state=JobState.COMPLETED)
    _, record = reading.get_job(store.database, job.id)
    assert record is not None
    assert record["model_snapshot"] == "scripted@1"


@pytest.mark.parametrize(
    ("error", "outcome", "count"),
    [
        (EngineFailure("the library gave up"), "retry", 1),
        (PermanentFailure("no room in the context"), "failed", 1),
        (ValueError("a fault in our own code"), "retry", 1),
    ],
)
def test_failures_are_counted_with_their_cause(
    store: MemoryStore, talk: Talk, error: Exception, outcome: str, count: int
) -> None:
    """Behaviours 125, 126, 178: the stored diagnostic holds the real cause."""
    talk(2)
    ended = run(store, raises(error))
    assert ended.outcome == outcome
    (job,) = reading.list_jobs(store.database)
    assert job.failure_count == count
    assert job.last_error is not None
    assert str(error) in job.last_error
    assert store.list_knowledge(None) == []


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.TOOL_CALLS])
def test_a_model_that_never_finishes_is_a_retryable_failure(
    store: MemoryStore, talk: Talk, finish: FinishReason
) -> None:
    """Behaviour 171 and reports K5: nothing is applied, and the diagnostic says what was wrong."""
    talk(12)
    ended = run(store, says('{"half": [', finish))
    assert ended.outcome == "retry"
    assert ended.error is not None
    assert "truncated" in ended.error or "tool calls" in ended.error


def test_secrets_stay_out_of_diagnostics(store: MemoryStore, talk: Talk) -> None:
    """Behaviour 187."""
    talk(2)
    ended = run(store, raises(EngineFailure("the server said: invalid key sk-proj-4f9aK2mPq8Zt1Lw7Xc3Vb6Nn0Rr5Yy2Dd")))
    assert ended.error is not None
    assert "sk-proj" not in ended.error


def test_stopping_releases_uncounted(store: MemoryStore, talk: Talk) -> None:
    """Behaviour 167."""
    talk(2)
    stop = CancelToken()

    def write(request: Request, cancel: CancelToken) -> Generation:
        stop.cancel()
        assert cancel.wait(10), "the heartbeat passes the stop on to the engine"
        raise Cancelled("stopped")

    assert run(store, write, stop=stop).outcome == "released"
    (job,) = reading.list_jobs(store.database)
    assert (job.state, job.failure_count, job.last_error) == (JobState.PENDING, 0, None)


def test_what_an_attempt_has_cost_is_told_however_it_ends(store: MemoryStore, workspace: Path) -> None:
    """A release carries the tokens of the calls that were finished, and the time of the one that was not."""
    session = store.start_session(workspace, title="several facts")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("\n".join(FACTS)), Event.assistant("Noted.")])
        lease.release(distill=True)
    assert store.home is not None
    let_word(store.home.models)
    stop = CancelToken()
    calls: list[float] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        calls.append(time.monotonic())
        if len(calls) == 1:
            return says("x")(request, cancel)
        stop.cancel()
        assert cancel.wait(10)
        raise Cancelled("stopped")

    ended = run(store, write, stop=stop)
    assert (ended.outcome, ended.prompt_tokens, ended.output_tokens) == ("released", 7, 3)
    assert 0 < ended.engine_seconds <= ended.seconds
    failed = run(store, raises(EngineFailure("no")))
    assert (failed.outcome, failed.prompt_tokens) == ("retry", 0)
    assert failed.engine_seconds <= failed.seconds


def test_a_session_that_becomes_live_wins(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    """The seed: interactive execution wins; the claim is released and inference stops then, not at commit."""
    session = talk(2)

    def write(request: Request, cancel: CancelToken) -> Generation:
        held.append(store.claim_session(session.id, workspace))
        assert cancel.wait(10), "inference is cancelled within a second"
        raise Cancelled("live")

    held: list[object] = []
    assert run(store, write).outcome == "released"
    (job,) = reading.list_jobs(store.database)
    assert (job.state, job.failure_count) == (JobState.PENDING, 0)


def test_a_session_claimed_just_before_the_commit_wins_too(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    """Behaviours 120 and 169."""
    session = talk(2)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    with store.claim_session(session.id, workspace):
        ended = attempt(store, lease, ScriptedEngine(write=says("x")), stop=CancelToken(), chunking=True)
    assert ended.outcome == "released"
    assert store.list_knowledge(workspace) == []


def test_a_lost_lease_aborts_and_records_nothing(store: MemoryStore, talk: Talk) -> None:
    """Behaviours 131 and 168: another worker has the job; this one may not even count a failure."""
    talk(2)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    with store.database.write() as transaction:
        transaction.run("UPDATE jobs SET lease_token = randomblob(16)")
    before = reading.list_jobs(store.database)
    with pytest.raises(StaleJobLease):
        attempt(store, lease, ScriptedEngine(write=says("x")), stop=CancelToken(), chunking=True)
    assert reading.list_jobs(store.database) == before
    assert store.list_knowledge(None) == []


def test_a_source_that_changed_is_a_permanent_failure(
    store: MemoryStore, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behaviour 123: the bytes are proven again in the settlement's own transaction."""
    talk(2)

    def tamper(point: str) -> None:
        if point == "job.inferred":
            with store.database.write() as transaction:
                transaction.run("UPDATE events SET payload = CAST(replace(payload, 'Please', 'Kindly') AS BLOB)")

    monkeypatch.setattr(attempts.faults, "reach", tamper)
    ended = run(store, says("x"))
    assert ended.outcome == "failed"
    assert ended.error is not None
    assert "changed" in ended.error
    assert store.list_knowledge(None) == []


def test_the_heartbeat_renews_while_the_engine_computes(store: MemoryStore, talk: Talk) -> None:
    """Behaviour 166, with minutes shortened to tenths of a second."""
    talk(1)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    until = reading.list_jobs(store.database)[0].lease_until
    with Heart(store.database, renew_every_seconds=0.2) as heart, lease, heart.beat(lease, CancelToken()) as pulse:
        deadline = threading.Event()
        while pulse.renewals < 2:
            assert not deadline.wait(0.02)
        renewed = reading.list_jobs(store.database)[0].lease_until
        lease.release()
    assert until is not None
    assert renewed is not None
    assert renewed > until


def test_one_heart_beats_for_several_jobs(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    """What ends one pulse leaves the others: one Session becomes live, one job is stopped, one goes on."""
    live, stopped, running = talk(1), talk(1), talk(1)
    leases = {}
    for _ in range(3):
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        leases[lease.job.session_id] = lease
    stop = CancelToken()
    with (
        Heart(store.database, look_every_seconds=0.05) as heart,
        heart.beat(leases[live.id], CancelToken()) as first,
        heart.beat(leases[stopped.id], stop) as second,
        heart.beat(leases[running.id], CancelToken()) as third,
    ):
        with store.claim_session(live.id, workspace):
            assert first.cancel.wait(5)
        stop.cancel()
        assert second.cancel.wait(5)
        assert not third.cancel.wait(0.3)
        assert (first.cause, second.cause, third.cause) == (Cause.SESSION_LIVE, Cause.STOPPED, None)
        third.__exit__(None, None, None)
        leases[running.id].release()
        # Nobody looks at a job whose block was left: it would be found lost.
        assert not third.cancel.wait(0.3)
    assert [thread.name for thread in threading.enumerate() if thread.name == "heart"] == []
    for lease in leases.values():
        lease.release()


def test_the_third_failure_is_terminal_and_retry_resets_it(store: MemoryStore, talk: Talk) -> None:
    """Behaviours 125, 127, 128: an engine that fails each time ends the job; wording that fails never does."""
    talk(2)
    clock = [store.clock()]
    store.clock = lambda: clock[0]
    ended: list[JobEnded] = []
    for _ in range(3):
        ended.append(run(store, raises(EngineFailure("the server answered 500"))))
        clock[0] += 5 * 60_000
    assert [(one.outcome, one.attempt) for one in ended] == [("retry", 1), ("retry", 2), ("failed", 3)]
    assert claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock) is None
    (failed,) = store.failed_jobs()
    again = store.retry_failed_job(failed.id)
    assert (again.state, again.failure_count, again.source) == (JobState.PENDING, 0, failed.source)


def test_wording_that_never_passes_leaves_the_source_its_own_words(store: MemoryStore, talk: Talk) -> None:
    """Issue 2, workers: a line whose wording fails its check stands in its source's own words."""
    talk(2)
    ended = run(store, says("Deploy /etc/shadow to port 9999 with BANANA_TOKEN."))
    assert ended.outcome == "completed"
    contents = [entry.content for entry in store.list_knowledge(None)]
    assert contents
    assert not [text for text in contents if "BANANA" in text or "9999" in text]


def test_a_damaged_history_is_told_not_shortened(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    """Behaviour 47: the Session and the event are named."""
    session = talk(12)
    events: list[WorkEvent] = []
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    drain(store, DrainOptions(), engines=source, listen=events.append, stop=CancelToken())
    assert store.get_session(session.id).summary_sequence > 0
    with store.database.write() as transaction:
        transaction.run(
            "UPDATE events SET payload = CAST(replace(payload, 'part 2', 'part 9') AS BLOB) WHERE sequence = 5"
        )
    with store.claim_session(session.id, workspace) as lease, pytest.raises(Corrupt, match=f"{session.id}.*event 5"):
        lease.replay()


def test_events_of_one_summary_are_replayed_behind_it(store: MemoryStore, workspace: Path, talk: Talk) -> None:
    """Behaviours 46, 121, 122 and 175: a second compaction folds the first Summary and the tail."""
    session = talk(12)
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    drain(store, DrainOptions(), engines=source, listen=lambda event: None, stop=CancelToken())
    first = store.get_session(session.id)
    with store.claim_session(session.id, workspace) as lease:
        history = lease.replay()
        assert history.summary is not None
        assert history[0] is history.summary
        assert [event.sequence for event in history[1:]] == [
            number
            for number in range(first.covered_sequence + 1, first.last_sequence + 1)
            if number != first.summary_sequence
        ]
        lease.append_turns(
            [[Event.user(f"Go on with step {n}. " + "word " * 150), Event.assistant("Done. " * 80)] for n in range(12)]
        )
    drain(store, DrainOptions(), engines=source, listen=lambda event: None, stop=CancelToken())
    second = store.get_session(session.id)
    assert second.covered_sequence > first.summary_sequence
    with store.claim_session(session.id, workspace) as lease:
        assert lease.replay()[0].sequence == second.summary_sequence


def test_a_stop_under_a_locked_database_is_not_counted(
    store: MemoryStore, home: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """132, 167: giving a job back waits for the lock; a stop never becomes a failure."""
    talk(2)
    monkeypatch.setattr("emelex_core.limits.BUSY_WAIT_MS", 50)
    stop = CancelToken()
    with MemoryStore.open(home) as other:

        def write(request: Request, cancel: CancelToken) -> Generation:
            locked.start()
            assert holds.wait(5)
            stop.cancel()
            raise Cancelled("stopped")

        def lock() -> None:
            with other.database.write():
                holds.set()
                threading.Event().wait(0.6)

        holds, locked = threading.Event(), threading.Thread(target=lock)
        assert run(store, write, stop=stop).outcome == "released"
        locked.join()
    (job,) = reading.list_jobs(store.database)
    assert (job.state, job.failure_count) == (JobState.PENDING, 0)


def test_an_overtaken_compaction_is_done_not_failed(store: MemoryStore, talk: Talk) -> None:
    """What another Summary has covered needs no Summary: the job completes and says why."""
    session = talk(12)
    for through in (16, 24):
        plan = CompactionPlan(through_sequence=through, target_tokens=300, session_tokens=0, kept_tokens=0)
        store.queue_compaction(session.id, plan)
    outcomes = []
    with store.database.write() as transaction:
        transaction.run("UPDATE jobs SET run_at = run_at + 60000 WHERE kind = 'compaction' AND through_sequence = 16")
    outcomes.append(run(store, says("x"), kind=JobKind.COMPACTION).outcome)
    with store.database.write() as transaction:
        transaction.run("UPDATE jobs SET run_at = run_at - 60000 WHERE kind = 'compaction' AND through_sequence = 16")
    outcomes.append(run(store, says("x"), kind=JobKind.COMPACTION).outcome)
    assert outcomes == ["completed", "completed"]
    assert store.get_session(session.id).covered_sequence == 24


def test_a_heartbeat_that_fails_is_heard(store: MemoryStore, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kills it, the job does not run on alone."""
    talk(2)
    monkeypatch.setattr("emelex_queue.lease.JobLease.require_undisturbed", lambda lease, database: 1 / 0)

    def write(request: Request, cancel: CancelToken) -> Generation:
        assert cancel.wait(5)
        raise Cancelled("by the heartbeat")

    with pytest.raises(StaleJobLease, match="heartbeat failed"):
        run(store, write)


def test_progress_is_told_while_a_job_runs(store: MemoryStore, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 7: a sign of life for the watchdog, and a bar for a person."""
    talk(2)
    monkeypatch.setattr("emelex_workers.metered._SECONDS_BETWEEN", 0.0)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    steps: list[JobStep] = []
    attempt(store, lease, ScriptedEngine(write=says("x")), stop=CancelToken(), chunking=True, tell=steps.append)
    assert steps[-1].job == lease.job.id
    assert 0 < steps[-1].done <= steps[-1].total


def test_a_job_whose_session_is_gone_ends_and_lets_the_others_run(store: MemoryStore, home: Path, talk: Talk) -> None:
    """Reports K3: an odd row turns terminal with a reason; the healthy job behind it runs."""
    odd, healthy = talk(1), talk(1)
    with behind(home / "memory" / "emelex.sqlite3", checks=False) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("UPDATE jobs SET session_id = ? WHERE session_id = ?", ("0" * 36, odd.id))
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    report = drain(store, DrainOptions(), engines=source, listen=lambda event: None, stop=CancelToken())
    assert (report.distillations, report.failed_jobs, report.remaining_jobs) == (1, 1, 0)
    (failed,) = store.failed_jobs()
    assert failed.last_error is not None
    assert "no Session" in failed.last_error
    assert failed.session_id != healthy.id
