"""Importing one transcript into a store, and what the store then holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emelex_core import MemoryStore
from emelex_core.errors import EmelexError
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.report import ImportedSession, ImportTotals
from emelex_core.sessions.records import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one import said of its Sessions, and its totals."""

    sessions: tuple[ImportedSession, ...]
    totals: ImportTotals


def import_into(store: MemoryStore | None, *paths: Path, workspace: Path, distill: bool = True) -> Imported:
    """Import transcripts; a file that fails raises its error. A store of None is a dry run."""
    sessions: list[ImportedSession] = []
    problems: list[EmelexError] = []
    totals = import_transcripts(
        store,
        paths,
        format="auto",
        workspace=workspace,
        dry_run=store is None,
        distill=distill,
        listen=sessions.append,
        problem=lambda _, error: problems.append(error),
    )
    for error in problems:
        raise error
    return Imported(sessions=tuple(sessions), totals=totals)


def holdings(store: MemoryStore) -> dict[str, object]:
    """Everything that a store holds of foreign Sessions, apart from ids and instants of its own."""
    sessions = {session.id: session for session in store.list_sessions()}
    return {
        f"{session.source}:{session.source_id}": (
            session.title,
            session.parent_session_id and sessions[session.parent_session_id].source_id,
            session.event_bytes,
            _turns(list(store.iterate_events(session))),
        )
        for session in sessions.values()
    }


def _turns(events: Sequence[StoredEvent]) -> list[list[object]]:
    """Events by turn, each as far as its transcript decides it; the proof of their chain was the reading."""
    turns: dict[str, list[object]] = {}
    for event in events:
        said = (event.sequence, event.turn_position, event.turn_size, event.kind, event.label, event.parts)
        turns.setdefault(event.turn_id, []).append((*said, event.source_record, event.occurred_at))
    return list(turns.values())
