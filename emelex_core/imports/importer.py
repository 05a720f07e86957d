"""Storing what the readers of foreign transcripts yield (formats.md, section 6).

The module owns these invariants:

- A record is stored once, whatever of its file was there when it was imported (ADR 0012; `writer` says how).
- Turns are committed in batches, each batch whole. What is settled of a file moves when all of it is stored, so that a
  kill between two batches costs a second reading and nothing else.
- Imports of one file at once take turns: one that meets another waits for it, within bounds, and looks again.
- Imported Sessions hold no tool authority: no snapshot is made of them.
- A Session that was removed here is counted and told, and stays away with its media until it is asked for again.
- One file's failure is reported and leaves the others alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emelex_core import faults, identity
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Cancelled, EmelexError, Invalid, SessionBusy
from emelex_core.imports.conversations.readers import open_conversations
from emelex_core.imports.conversations.store import ConversationStorer
from emelex_core.imports.discover import discover
from emelex_core.imports.files import jsonl
from emelex_core.imports.records import (
    CONVERSATION_FORMATS,
    ImportedTurn,
    MediaSink,
    SessionHeader,
    TranscriptFile,
    TranscriptReader,
)
from emelex_core.imports.report import ImportedSession, ImportTotals, Tally, told
from emelex_core.imports.storing.appender import Overtaken
from emelex_core.imports.storing.marks import Prefixes, get_mark
from emelex_core.imports.storing.sink import LookingSink, StoringSink
from emelex_core.imports.storing.writer import SessionWriter, Stored, was_removed
from emelex_core.imports.transcripts import open_transcript
from emelex_core.store import MemoryStore

_BUSY_WAIT_SECONDS: Final = 60.0
"""How long an import waits for another of the same transcript; the largest known one takes ten seconds."""
_BUSY_LOOK_SECONDS: Final = 0.05

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
    again: bool = False,
    listen: Listener,
    problem: Problem,
    progress: Progress | None = None,
    stop: CancelToken | None = None,
) -> ImportTotals:
    """Import every transcript below the paths; return the totals.

    `workspace` None binds each Session to the directory that it recorded, where that exists here, else to the current
    one. `store` may be None for a dry run without a database. `again` brings back Sessions that were removed here.
    `problem` hears of each file that failed.

    Raises: Invalid and NotFound for paths that hold no transcript or no conversation; Cancelled, with all finished
    batches kept.
    """
    if store is None and not dry_run:
        raise Invalid("importing needs a store")
    files = discover(paths, format=format)
    run = _Run(
        store=store, workspace=workspace, dry_run=dry_run, distill=distill, again=again, stop=stop or CancelToken()
    )
    for path, error in files.problems:
        run.tally.failed_files += 1
        problem(path, error)
    for file in files:
        try:
            for session in run.import_file(file, progress):
                listen(session)
        except Cancelled:
            raise
        except EmelexError as error:
            run.tally.failed_files += 1
            problem(file.path, error)
    totals = run.tally.totals(len(files))
    if not totals.sessions and not totals.removed and not totals.failed_files:
        raise Invalid(f"no conversation in {', '.join(str(path) for path in paths)}")
    return totals


class _Run:
    """One call of `import_transcripts`: its options, and the counts over all files."""

    def __init__(
        self,
        *,
        store: MemoryStore | None,
        workspace: Path | None,
        dry_run: bool,
        distill: bool,
        again: bool,
        stop: CancelToken,
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._writes = not dry_run
        self._distill = distill
        self._again = again
        self._stop = stop
        self.tally = Tally()

    def import_file(self, file: TranscriptFile, progress: Progress | None) -> Iterable[ImportedSession]:
        """Read one file and store its Sessions, the main one first in the result; wait for another import of it."""
        if file.format in CONVERSATION_FORMATS:
            return self._import_conversations(file, progress)
        patience = time.monotonic() + _BUSY_WAIT_SECONDS
        while True:
            try:
                return self._import_once(file, progress)
            except (SessionBusy, Overtaken) as error:
                if time.monotonic() > patience:
                    raise
                # What overtook this import is done; who is busy may be for a while.
                if isinstance(error, SessionBusy):
                    self._stop.wait(_BUSY_LOOK_SECONDS)
                self._require_going_on()

    def _import_conversations(self, file: TranscriptFile, progress: Progress | None) -> Iterator[ImportedSession]:
        """Store a file's conversations one by one, each told when it is stored."""
        reader = open_conversations(file, self._media())
        reader.pulse = self._require_going_on
        storer = ConversationStorer(
            self._store,
            form=file.format,
            workspace_for=self._workspace_for,
            writes=self._writes,
            distill=self._distill,
            again=self._again,
            stop=self._stop,
        )
        size, found = file.path.stat().st_size, False
        try:
            for conversation in reader:
                self._require_going_on()
                for at, stored in enumerate(storer.store(conversation)):
                    found = True
                    session = told(file, stored, conversation, first=not at)
                    self.tally.add(session, created=stored.created)
                    yield session
                self.tally.skipped.update(conversation.skipped)
                self.tally.defects.update(conversation.defects)
                if progress is not None:
                    progress(file.path, reader.done_bytes, size)
            if not found:
                self.tally.skipped["file_without_conversation"] += 1
        finally:
            self.tally.skipped.update(reader.skipped)
            self.tally.defects.update(reader.defects)

    def _import_once(self, file: TranscriptFile, progress: Progress | None) -> list[ImportedSession]:
        source = self._resume(file, self._media())
        if source is None:
            self.tally.skipped["file_without_conversation"] += 1
            return []
        writers: dict[str | None, SessionWriter] = {}
        try:
            self._read(source, writers, progress)
            stored = self._finish(source, writers)
        finally:
            for writer in writers.values():
                writer.abandon()
        self.tally.skipped.update(source.reader.skipped)
        self.tally.defects.update(source.reader.defects)
        sessions = [told(file, result, source.reader, first=not at) for at, result in enumerate(stored)]
        for session, result in zip(sessions, stored, strict=True):
            self.tally.add(session, created=result.created)
        return sessions

    def _read(self, source: _Source, writers: dict[str | None, SessionWriter], progress: Progress | None) -> None:
        size = source.path.stat().st_size
        for turn in source.turns:
            self._require_going_on()
            writer = writers.get(turn.branch)
            if writer is None:
                writer = writers[turn.branch] = self._open_writer(source, turn.branch, writers)
            writer.add(turn)
            if progress is not None:
                progress(source.path, turn.end_offset, size)

    def _media(self) -> MediaSink:
        return StoringSink(self._store) if self._writes and self._store else LookingSink()

    def _require_going_on(self) -> None:
        if self._stop.cancelled:
            raise Cancelled("import stopped; what was stored stays, and importing again goes on from there")

    def _resume(self, file: TranscriptFile, media: MediaSink) -> _Source | None:
        """Open a reader where the file is settled, if it still begins with what was read before.

        None for a file in which nobody says anything: agents leave such files behind, and they are no failure.
        """
        looking = open_transcript(file, LookingSink())
        turns = iter(looking)
        first = next(turns, None)
        if first is None:
            return None
        prefixes = Prefixes(file.path)
        away = self._away_branches(looking, itertools.chain([first], turns))
        if away:
            return _Source(file.path, looking, (), prefixes, grown=False, away=away)
        source = looking.header.source
        session = None if self._store is None else self._store.find_imported(source.source, source.source_id)
        # A part that is asked for again may lie before what was read.
        if session is not None and self._store is not None and not self._again:
            with self._store.database.read() as transaction:
                mark = get_mark(transaction, session.id)
            if mark is not None and prefixes.prove(mark.read):
                grown = not mark.finished or jsonl.goes_on(file.path, mark.read.offset)
                start = mark.settled_offset if grown else mark.read.offset
                reader = open_transcript(file, media, start_offset=start)
                return _Source(file.path, reader, reader, prefixes, grown=grown)
        reader = open_transcript(file, media)
        return _Source(file.path, reader, reader, prefixes, grown=True)

    def _open_writer(
        self, source: _Source, branch: str | None, writers: dict[str | None, SessionWriter]
    ) -> SessionWriter:
        header = _header(source.reader, branch)
        main = writers.get(None)
        part = branch is not None and header.source.parent_source_id is not None
        workspace = main.workspace if part and main is not None else self._workspace_for(header)
        return SessionWriter.open(
            self._store,
            source.reader,
            header,
            workspace=workspace,
            prefixes=source.prefixes,
            writes=self._writes,
            again=self._again,
        )

    def _away_branches(self, reader: TranscriptReader, turns: Iterable[ImportedTurn]) -> Set[str | None]:
        """All branches of a file of which nothing is wanted: it is read without its media. None where something is."""
        if not self._is_away(reader.header):
            return frozenset()
        branches: set[str | None] = {None}
        for turn in turns:
            self._require_going_on()
            branches.add(turn.branch)
        return branches if all(self._is_away(_header(reader, branch)) for branch in branches) else frozenset()

    def _is_away(self, header: SessionHeader) -> bool:
        """Whether a Session was removed here and is not asked for again."""
        if self._store is None or self._again:
            return False
        source = header.source
        stored = self._store.find_imported(source.source, source.source_id)
        return stored is None and was_removed(self._store, header)

    def _workspace_for(self, header: SessionHeader) -> str:
        if self._workspace is not None:
            return str(self._workspace)
        recorded = header.source.cwd
        if recorded is not None and identity.exists_as_directory(recorded):
            return recorded
        try:
            return identity.inspect(".").path
        except Invalid as error:
            missing = "it recorded no directory" if recorded is None else f"its directory {recorded!r} is not here"
            raise Invalid(
                f"{missing}, and the current one cannot stand in for it: {error.message}",
                hint="go to another directory, or name one with -C",
            ) from None

    def _finish(self, source: _Source, writers: dict[str | None, SessionWriter]) -> list[Stored]:
        """Commit what is left, children before the main Session's mark: that says for all how far the file is read."""
        if source.away:
            return [
                Stored.away(_header(source.reader, name)) for name in sorted(source.away, key=lambda name: name or "")
            ]
        if not source.grown:
            writers[None] = self._open_writer(source, None, writers)
            return [writers[None].pass_by(source.reader.header, distill=self._distill)]
        children = sorted(branch for branch in writers if branch is not None)
        main = writers.get(None)
        if main is not None and children:
            main.flush()
        stored = [writers[name].finish(_header(source.reader, name), distill=self._distill) for name in children]
        faults.reach("import.before_distillation")
        if main is not None:
            stored.insert(0, main.finish(source.reader.header, distill=self._distill))
        return stored


@dataclass(frozen=True, slots=True)
class _Source:
    """A file while it is read. `grown` is false for one that holds nothing beyond what was read of it before.

    `away` names the branches of one whose Sessions were all removed here.
    """

    path: Path
    reader: TranscriptReader
    turns: Iterable[ImportedTurn]
    prefixes: Prefixes
    grown: bool
    away: Set[str | None] = frozenset()


def _header(reader: TranscriptReader, branch: str | None) -> SessionHeader:
    return reader.header if branch is None else reader.child_headers[branch]
