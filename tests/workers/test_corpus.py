"""The whole line on real transcripts, with the real model: import twice, drain, and hold every quote to its event.

Needs ../shared; where it is not there, the same is done with the demo's own transcript.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import EmelexError
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.report import ImportTotals
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.store import Totals
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.engines import ConfiguredEngines
from emelex_workers.progress import PlanningNote, WorkEvent

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
TRANSCRIPTS = (
    [CORPUS / "claude-code", CORPUS / "codex"] if CORPUS.is_dir() else [ROOT / "ops" / "demo" / "claude-code.jsonl"]
)


def load(store: MemoryStore, workspace: Path) -> tuple[ImportTotals, Totals]:
    """Import everything and return what the run and the store say."""
    problems: list[tuple[Path, EmelexError]] = []
    totals = import_transcripts(
        store,
        TRANSCRIPTS,
        format="auto",
        workspace=workspace,
        dry_run=False,
        distill=True,
        listen=lambda session: None,
        problem=lambda path, error: problems.append((path, error)),
    )
    assert problems == []
    return totals, store.totals()


@pytest.mark.model
@pytest.mark.corpus
@pytest.mark.timeout(300)
def test_every_transcript_becomes_knowledge_and_every_long_one_a_summary(
    store: MemoryStore, home: Path, workspace: Path
) -> None:
    """The issue's "Shown by", sentence by sentence; behaviours 122, 136, 177 and 186."""
    first, stored = load(store, workspace)
    assert first.new_sessions == first.sessions > 0
    again, unchanged = load(store, workspace)
    assert (again.turns, again.events, again.new_sessions) == (0, 0, 0)
    assert unchanged == stored, "the second import changes nothing"

    engines = ConfiguredEngines(
        reference="builtin:smollm2-135m", models_directory=home / "models", endpoints={}, threads=1
    )
    events: list[WorkEvent] = []
    report = drain(store, DrainOptions(), engines=engines, listen=events.append, stop=CancelToken())
    assert (report.remaining_jobs, report.failed_jobs, report.retries_scheduled) == (0, 0, 0)
    assert report.distillations == first.sessions
    planned = {note.session for note in events if isinstance(note, PlanningNote) and note.planned}
    assert report.compactions == len(planned) > 0

    jobs = reading.list_jobs(store.database)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert {job.session_id for job in jobs if job.kind is JobKind.COMPACTION} == planned
    for session in store.list_sessions(limit=500):
        assert (session.summary_sequence > 0) == (session.id in planned)
        with store.claim_session(session.id, workspace) as lease:
            history = lease.replay()
            assert (history.summary is not None) == (session.id in planned)

    entries = store.list_knowledge(workspace)
    assert len(entries) == report.knowledge_candidates > 0
    for entry in entries:
        assert entry.evidence is not None
        assert entry.session_id is not None
        (event,) = store.read_events(entry.session_id, after=entry.evidence.sequence - 1, limit=1)
        assert event.id == entry.evidence.event_id
        assert entry.evidence.quote in event.text
