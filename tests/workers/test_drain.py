"""Drains: what they take, in which order, and how several share the work in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.sessions.records import Session
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.progress import DrainReport, JobEnded, JobStarted, PlanningNote, WorkEvent
from emelex_workers.text import restate
from scripted import ScriptedEngine, ScriptedSource, python, says

Talk = Callable[[int], Session]


def work(
    store: MemoryStore, source: ScriptedSource | None = None, **options: object
) -> tuple[DrainReport, list[WorkEvent]]:
    events: list[WorkEvent] = []
    source = source or ScriptedSource(ScriptedEngine(write=says("x")))
    report = drain(store, DrainOptions(**options), engines=source, listen=events.append, stop=CancelToken())  # type: ignore[arg-type]  # options are the dataclass's own
    return report, events


def test_nothing_to_do_loads_no_model(store: MemoryStore) -> None:
    """Behaviour 163."""
    source = ScriptedSource(ScriptedEngine())
    report, events = work(store, source)
    assert (source.loads, events, report.remaining_jobs) == (0, [], 0)


def test_compaction_comes_first_then_the_kinds_alternate(store: MemoryStore, talk: Talk) -> None:
    """Behaviour 164."""
    for _ in range(3):
        talk(12)
    talk(1)
    source = ScriptedSource(ScriptedEngine(write=says("x")))
    report, events = work(store, source)
    kinds = [event.kind for event in events if isinstance(event, JobStarted)]
    assert kinds == ["compaction", "distillation"] * 3 + ["distillation"]
    assert (report.compactions, report.distillations, report.remaining_jobs, source.loads) == (3, 4, 0, 1)


def test_bounds_are_kept(store: MemoryStore, talk: Talk) -> None:
    for _ in range(3):
        talk(1)
    report, _ = work(store, max_jobs=2)
    assert (report.distillations, report.remaining_jobs) == (2, 1)
    report, _ = work(store, kind=JobKind.COMPACTION)
    assert (report.distillations, report.compactions) == (0, 0)
    report, _ = work(store, max_seconds=0.0)
    assert report.distillations == 0


def test_one_session_can_be_worked_on_alone(store: MemoryStore, talk: Talk) -> None:
    first, second = talk(1), talk(1)
    work(store, session_id=second.id)
    states = {job.session_id: job.state for job in reading.list_jobs(store.database)}
    assert states == {first.id: JobState.PENDING, second.id: JobState.COMPLETED}


def test_a_session_that_cannot_gain_gets_no_job(store: MemoryStore, workspace: Path) -> None:
    """Reports K6: four turns fill the target; nothing loops, no job is made, however often it is asked."""
    session = store.start_session(workspace, title="four long turns")
    with store.claim_session(session.id, workspace) as lease:
        for number in range(5):
            lease.append_turn([Event.user(f"{number} " + "word " * 700), Event.assistant("fine")])
    for _ in range(3):
        _, events = work(store, kind=JobKind.COMPACTION)
    assert reading.list_jobs(store.database, kind=JobKind.COMPACTION) == []
    _, events = work(store, kind=JobKind.COMPACTION)
    assert events == [], "a Session is measured again only when it has grown"


def test_planning_says_what_it_saw(store: MemoryStore, talk: Talk) -> None:
    session = talk(12)
    _, events = work(store, kind=JobKind.COMPACTION)
    notes = [event for event in events if isinstance(event, PlanningNote)]
    assert [(note.session, note.planned) for note in notes] == [(session.id, True), (session.id, False)]


def test_imported_history_past_every_replay_cap_is_compacted(store: MemoryStore, workspace: Path) -> None:
    """Behaviours 44 and 174: the source is read in pages; a replay refuses, naming the cap, until it is compacted."""
    session = store.start_session(workspace, title="big")
    with store.claim_session(session.id, workspace) as lease:
        for number in range(20):
            blob = Event.tool(f"c{number}", "x" * 3_900_000)
            lease.append_turn([Event.user(f"Look at file_{number}.txt, please."), blob])
        for number in range(6):
            lease.append_turn([Event.user(f"And now step {number}."), Event.assistant("Done.")])
        with pytest.raises(Exception, match="replay cap of 67108864 bytes"):
            lease.replay()
    work(store, kind=JobKind.COMPACTION)
    with store.claim_session(session.id, workspace) as lease:
        history = lease.replay()
    assert history.summary is not None
    assert "file_19.txt" in history.summary.text


DRAIN = """
    import sys
    from pathlib import Path
    from emelex_core import MemoryStore
    from emelex_core.engine.ports import CancelToken
    from emelex_workers.drain import DrainOptions, drain
    from emelex_workers.engines import ConfiguredEngines
    home, = sys.argv[1:]
    with MemoryStore.open(home) as store:
        engines = ConfiguredEngines(
            reference="builtin:smollm2-135m", models_directory=Path(home) / "models", endpoints={}, threads=1
        )
        def listen(event):
            print(type(event).__name__, getattr(event, "job", ""), getattr(event, "outcome", ""), flush=True)
        report = drain(store, DrainOptions(), engines=engines, listen=listen, stop=CancelToken())
        print("report", report.distillations, report.compactions, report.failed_jobs, report.remaining_jobs, flush=True)
"""


@pytest.mark.model
def test_two_drains_share_the_work_and_settle_nothing_twice(home: Path, store: MemoryStore, talk: Talk) -> None:
    """The issue: two drains at once, with the real model."""
    sessions = [talk(2) for _ in range(8)]
    drains = [python(DRAIN, str(home)) for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in drains]
    assert [process.returncode for process in drains] == [0, 0], outputs
    completed = [line.split()[1] for out, _ in outputs for line in out.splitlines() if line.endswith("completed")]
    assert len(completed) == len(set(completed)) == len(sessions)
    assert all(job.state is JobState.COMPLETED and job.failure_count == 0 for job in reading.list_jobs(store.database))


@pytest.mark.model
def test_a_worker_killed_in_mid_inference_costs_one_counted_failure(home: Path, store: MemoryStore, talk: Talk) -> None:
    """The issue, behaviours 129 and 181: owner death is seen at the next look; the next drain finishes."""
    talk(2)
    process = python(DRAIN, str(home), env={**os.environ, "EMELEX_FAULT": "job.inferred"})
    out, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, (out, err)
    (job,) = reading.list_jobs(store.database)
    assert job.state is JobState.RUNNING
    report, _ = work(store)
    assert report.remaining_jobs == 1, "the failure is counted at once and the job backs off"
    (job,) = reading.list_jobs(store.database)
    assert (job.state, job.failure_count) == (JobState.PENDING, 1)
    assert job.last_error == "the worker's process died while it held the job"
    now = store.clock()
    store.clock = lambda: now + 31_000
    report, _ = work(store)
    assert (report.distillations, report.remaining_jobs) == (1, 0)


def test_a_killed_worker_does_not_block_other_jobs(home: Path, store: MemoryStore, talk: Talk) -> None:
    """Behaviour 129: the same call that counts the failure goes on to claim another job."""
    talk(1)
    holder = python(
        """
        import sys
        from emelex_core import MemoryStore
        from emelex_core.jobs.kinds import JobKind
        from emelex_queue import claims
        store = MemoryStore.open(sys.argv[1])
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        print(lease.job.id, flush=True)
        sys.stdin.read()
        """,
        str(home),
        stdin=subprocess.PIPE,
    )
    assert holder.stdout is not None
    held = holder.stdout.readline().strip()
    other = talk(1)
    report, events = work(store)
    assert [event.session for event in events if isinstance(event, JobEnded)] == [other.id], (
        "a live worker's job is left alone"
    )
    holder.kill()
    holder.communicate(timeout=10)
    third = talk(1)
    started = time.monotonic()
    report, events = work(store)
    ends = [(event.job, event.outcome) for event in events if isinstance(event, JobEnded) and event.lost]
    assert ends == [(held, "retry")]
    assert [event.session for event in events if isinstance(event, JobStarted)] == [third.id]
    assert time.monotonic() - started < 30
    counted, _ = reading.get_job(store.database, held)
    assert (counted.state, counted.failure_count) == (JobState.PENDING, 1)
    assert report.remaining_jobs == 1


def test_the_report_is_what_the_contract_says(store: MemoryStore, talk: Talk) -> None:
    talk(12)
    report, events = work(store)
    assert (
        json.dumps([event.outcome for event in events if isinstance(event, JobEnded)]) == '["completed", "completed"]'
    )
    assert report.knowledge_candidates == len(store.list_knowledge(None))
    assert (report.retries_scheduled, report.failed_jobs, report.released_jobs) == (0, 0, 0)


def test_knowledge_keeps_what_made_it_when_its_session_is_gone(store: MemoryStore, talk: Talk) -> None:
    """Issue 4, item 6, and behaviour 141: the record outlives the job and the Session."""
    session = talk(2)
    work(store)
    (before, *_) = store.list_knowledge(None)
    store.delete_session(session.id)
    with store.database.read() as transaction:
        found = transaction.all("SELECT job_id, source_session_id, made_by FROM knowledge_versions")
    assert found
    for job_id, source, made_by in found:
        assert (job_id, source) == (before.job_id, None)
        assert isinstance(made_by, bytes)
        record = json.loads(made_by)
        assert (record["model_snapshot"], record["wording"]["prompt_version"]) == ("scripted@1", restate.PROMPT_VERSION)
