"""Storing what the readers of foreign transcripts yield (formats.md, section 6).

The module owns these invariants:

- A record is stored once: by the place up to which the file was read, and by its own id where that place is not proven.
- Turns are committed in batches, each batch whole. The place in the file moves with the last batch that it covers, so
  that a kill between two batches costs a second reading and nothing else.
- Imported Sessions hold no tool authority: no snapshot is made of them.
- One file's failure is reported and leaves the others alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from emelex_core import faults, identity
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Cancelled, EmelexError, Invalid
from emelex_core.imports import jsonl
from emelex_core.imports.discover import discover
from emelex_core.imports.records import ImportedTurn, MediaSink, SessionHeader, TranscriptFile, TranscriptReader
from emelex_core.imports.sink import LookingSink, StoringSink
from emelex_core.imports.transcripts import open_transcript
from emelex_core.imports.writer import SessionWriter, Stored
from emelex_core.store import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One Session of a transcript after this run. Counts are what this run added; `already` says that it was nothing.

    `skipped` counts known noise and `defects` what was odd, by name, over the whole file; they stand with the file's
    main Session. `distillation` is the id of the job that waits for it, or None.
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
    workspace: str
    parent: str | None
    distillation: str | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTotals:
    """What a run did over all files. `already` counts Sessions to which nothing was added."""

    files: int
    sessions: int
    new_sessions: int
    turns: int
    events: int
    assets: int
    skipped: dict[str, int]
    defects: dict[str, int]
    already: int
    failed_files: int


Listener = Callable[[ImportedSession], None]
Problem = Callable[[Path, EmelexError], None]
Progress = Callable[[Path, int, int], None]


def import_transcripts(
    store: MemoryStore | None,
    paths: Sequence[Path],
    *,
    format: str,  # noqa: A002 - the command line's own word
    workspace: Path | None,
    dry_run: bool,
    distill: bool,
    listen: Listener,
    problem: Problem,
    progress: Progress | None = None,
    stop: CancelToken | None = None,
) -> ImportTotals:
    """Import every transcript below the paths; return the totals.

    `workspace` None binds each Session to the directory that it recorded, where that exists here, else to the current
    one. `store` may be None for a dry run without a database. `problem` hears of each file that failed.

    Raises: Invalid and NotFound for paths that hold no transcript or no conversation; Cancelled, with all finished
    batches kept.
    """
    if store is None and not dry_run:
        raise Invalid("importing needs a store")
    files = discover(paths, format=format)
    run = _Run(store=store, workspace=workspace, dry_run=dry_run, distill=distill, stop=stop or CancelToken())
    for path, error in files.problems:
        run.failed_files += 1
        problem(path, error)
    for file in files:
        try:
            for session in run.import_file(file, progress):
                listen(session)
        except Cancelled:
            raise
        except EmelexError as error:
            run.failed_files += 1
            problem(file.path, error)
    totals = run.totals(len(files))
    if not totals.sessions and not totals.failed_files:
        raise Invalid(f"no conversation in {', '.join(str(path) for path in paths)}")
    return totals


class _Run:
    """One call of `import_transcripts`: its options, and the counts over all files."""

    def __init__(
        self, *, store: MemoryStore | None, workspace: Path | None, dry_run: bool, distill: bool, stop: CancelToken
    ) -> None:
        self.failed_files = 0
        self._store = store
        self._workspace = workspace
        self._writes = not dry_run
        self._distill = distill
        self._stop = stop
        self._sessions: list[tuple[ImportedSession, bool]] = []
        self._skipped: Counter[str] = Counter()
        self._defects: Counter[str] = Counter()

    def import_file(self, file: TranscriptFile, progress: Progress | None) -> Iterator[ImportedSession]:
        """Read one file and store its Sessions, the main one first in the result."""
        media: MediaSink = StoringSink(self._store) if self._writes and self._store else LookingSink()
        resumed = self._resume(file, media)
        if resumed is None:
            self._skipped["file_without_conversation"] += 1
            return
        reader, turns = resumed
        size = file.path.stat().st_size
        writers: dict[str | None, SessionWriter] = {}
        try:
            for turn in turns:
                if self._stop.cancelled:
                    raise Cancelled("import stopped; what was stored stays, and importing again goes on from there")
                writer = writers.get(turn.branch)
                if writer is None:
                    writer = writers[turn.branch] = self._open_writer(reader, turn.branch, writers)
                writer.add(turn)
                if progress is not None:
                    progress(file.path, turn.end_offset, size)
            stored = self._finish(reader, writers)
        finally:
            for writer in writers.values():
                writer.abandon()
        self._skipped.update(reader.skipped)
        self._defects.update(reader.defects)
        for branch, result in stored.items():
            session = _session(file, result, reader, main=branch is None)
            self._sessions.append((session, result.created))
            yield session

    def totals(self, files: int) -> ImportTotals:
        """The counts so far."""
        sessions = [session for session, _ in self._sessions]
        return ImportTotals(
            files=files,
            sessions=len(sessions),
            new_sessions=sum(created for _, created in self._sessions),
            turns=sum(session.turns for session in sessions),
            events=sum(session.events for session in sessions),
            assets=sum(session.assets for session in sessions),
            skipped=dict(self._skipped),
            defects=dict(self._defects),
            already=sum(session.already for session in sessions),
            failed_files=self.failed_files,
        )

    def _resume(self, file: TranscriptFile, media: MediaSink) -> tuple[TranscriptReader, Iterable[ImportedTurn]] | None:
        """Open a reader where an earlier import stopped, if the file still begins with what was read then.

        None for a file in which nobody says anything: agents leave such files behind, and they are no failure.
        """
        reader = open_transcript(file, media)
        turns = iter(reader)
        first = next(turns, None)
        if first is None:
            return None
        cursor = None if self._store is None else SessionWriter.cursor(self._store, reader.header.source)
        if cursor is not None and jsonl.prefix_sha256(file.path, cursor.offset) == cursor.sha256:
            reader = open_transcript(file, media, start_offset=cursor.offset)
            return reader, reader
        return reader, itertools.chain([first], turns)

    def _open_writer(
        self, reader: TranscriptReader, branch: str | None, writers: dict[str | None, SessionWriter]
    ) -> SessionWriter:
        header = reader.header if branch is None else reader.child_headers[branch]
        main = writers.get(None)
        workspace = main.workspace if branch is not None and main is not None else self._workspace_for(header)
        return SessionWriter.open(self._store, header, workspace=workspace, writes=self._writes)

    def _workspace_for(self, header: SessionHeader) -> str:
        if self._workspace is not None:
            return str(self._workspace)
        recorded = header.source.cwd
        if recorded is not None and identity.exists_as_directory(recorded):
            return recorded
        return "."

    def _finish(self, reader: TranscriptReader, writers: dict[str | None, SessionWriter]) -> dict[str | None, Stored]:
        """Commit what is left, children first: the main Session carries the place in the file for all of them."""
        if None not in writers:
            writers[None] = self._open_writer(reader, None, writers)
        stored: dict[str | None, Stored] = {}
        for branch in sorted(writers, key=lambda name: (name is None, name or "")):
            header = reader.header if branch is None else reader.child_headers[branch]
            position = reader.position if branch is None else None
            stored[branch] = writers[branch].finish(header, position=position, distill=self._distill)
        faults.reach("import.before_distillation")
        return {None: stored.pop(None), **stored}


def _session(file: TranscriptFile, stored: Stored, reader: TranscriptReader, *, main: bool) -> ImportedSession:
    return ImportedSession(
        id=stored.session_id,
        source=stored.header.source.source,
        source_id=stored.header.source.source_id,
        title=stored.header.title,
        turns=stored.turns,
        events=stored.events,
        assets=stored.assets,
        skipped=dict(reader.skipped) if main else {},
        defects=dict(reader.defects) if main else {},
        already=stored.events == 0 and not stored.created,
        workspace=stored.workspace,
        parent=stored.parent_session_id,
        distillation=stored.distillation,
        path=str(file.path),
    )
