"""What is told of an import: each Session, and what a run did over all files.

The module owns this invariant: a Session counts once in a run, however many of its files were read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from emelex_core.imports.conversations.conversation import Conversation
from emelex_core.imports.records import TranscriptFile, TranscriptReader
from emelex_core.imports.storing.writer import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One Session of a transcript after this run. Counts are how much more it holds; `already`: it is as it was before.

    `removed`: it was removed here and stays away, so that it has neither `id` nor `workspace`. `skipped` counts known
    noise and `defects` what was odd, by name, over the whole file; they stand with the file's first Session.
    `distillation` is the id of the job that waits for it, or None.
    """

    id: str
    source: str
    source_id: str
    title: str
    turns: int
    events: int
    assets: int
    skipped: dict[str, int]
    defects: dict[str, int]
    already: bool
    removed: bool
    workspace: str | None
    parent: str | None
    distillation: str | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTotals:
    """What a run did over all files. A Session that several files name counts once.

    `already` counts Sessions to which nothing was added. `removed` counts those that were removed here and stay away;
    they are none of `sessions`.
    """

    files: int
    sessions: int
    new_sessions: int
    turns: int
    events: int
    assets: int
    skipped: dict[str, int]
    defects: dict[str, int]
    already: int
    removed: int
    failed_files: int


class Tally:
    """What a run did so far. `skipped` and `defects` count by name, over all files."""

    def __init__(self) -> None:
        self.failed_files = 0
        self.skipped: Counter[str] = Counter()
        self.defects: Counter[str] = Counter()
        self._sessions: list[tuple[ImportedSession, bool]] = []

    def add(self, session: ImportedSession, *, created: bool) -> None:
        """Count a Session of one file."""
        self._sessions.append((session, created))

    def totals(self, files: int) -> ImportTotals:
        """The counts so far."""
        sessions = [session for session, _ in self._sessions if not session.removed]
        named = {_key(session) for session in sessions}
        new = {_key(session) for session, created in self._sessions if created}
        return ImportTotals(
            files=files,
            sessions=len(named),
            new_sessions=len(new),
            turns=sum(session.turns for session in sessions),
            events=sum(session.events for session in sessions),
            assets=sum(session.assets for session in sessions),
            skipped=dict(self.skipped),
            defects=dict(self.defects),
            already=len(named - new - {_key(session) for session in sessions if not session.already}),
            removed=len({_key(session) for session, _ in self._sessions if session.removed}),
            failed_files=self.failed_files,
        )


def told(
    file: TranscriptFile, stored: Stored, reader: TranscriptReader | Conversation, *, first: bool
) -> ImportedSession:
    """What is told of one Session of a file; the counts of the file's `reader` stand with its first."""
    return ImportedSession(
        id=stored.session_id,
        source=stored.header.source.source,
        source_id=stored.header.source.source_id,
        title=stored.header.title,
        turns=stored.turns,
        events=stored.events,
        assets=stored.assets,
        skipped=dict(reader.skipped) if first else {},
        defects=dict(reader.defects) if first else {},
        already=not stored.changed and not stored.created and not stored.removed,
        removed=stored.removed,
        workspace=stored.workspace,
        parent=stored.parent_session_id,
        distillation=stored.distillation,
        path=str(file.path),
    )


def _key(session: ImportedSession) -> tuple[str, str]:
    return session.source, session.source_id
