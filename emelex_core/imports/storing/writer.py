"""One imported Session while it is written: what of it is stored already, and what is new.

A writer goes one of two ways. Where the file has only grown since it was read, the writer *follows* it: what is stored
past the mark is held against what the file says now, and said anew from the first turn that differs (ADR 0012). Where
that is not proven, it *adds* the records that it does not know, and takes nothing back.

The module owns these invariants:

- After a file was followed to its end, the Session holds what one import of the whole file would have stored, unless
  something was built on a turn before the file went on with it; then that turn stays, and the rest of it follows.
- Importing again what is stored claims nothing and writes nothing.
- A writer that does not write (a dry run) counts the same things and touches nothing.
- A Session that was removed here stays away until it is asked for again, and so do its parts that are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self, cast

from msgspec import structs

from emelex_core import identity, limits
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.events import Event
from emelex_core.imports.records import GrowingReader, ImportedTurn, Position, SessionHeader, TranscriptReader
from emelex_core.imports.storing import stored
from emelex_core.imports.storing.appender import Appender
from emelex_core.imports.storing.marks import Mark, Places, Prefixes, get_mark
from emelex_core.sessions import append, tail
from emelex_core.sessions.append import PreparedTurn
from emelex_core.sessions.records import Session
from emelex_core.store import MemoryStore

SQL: Final = load("emelex_core", "imports")
_NO_SESSION: Final = ""
_NOTHING_READ: Final = Mark(read=Position(offset=0, sha256=b""), settled_offset=0, settled_sequence=0, finished=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one run did to one Session. Counts say how much more it holds, `changed` whether that is another content.

    `removed` tells that it was removed here and stays away; then `session_id` is empty, and `workspace` is None.
    """

    session_id: str
    header: SessionHeader
    workspace: str | None
    parent_session_id: str | None
    created: bool
    changed: bool
    turns: int
    events: int
    assets: int
    distillation: str | None
    removed: bool = False

    @classmethod
    def away(cls, header: SessionHeader) -> Self:
        """What is told of a Session that was removed here and stays away."""
        return cls(
            session_id=_NO_SESSION,
            header=header,
            workspace=None,
            parent_session_id=None,
            created=False,
            changed=False,
            turns=0,
            events=0,
            assets=0,
            distillation=None,
            removed=True,
        )


class SessionWriter:
    """Collects the turns of one Session and stores what is new. `open` makes one."""

    def __init__(
        self,
        store: MemoryStore | None,
        reader: TranscriptReader,
        header: SessionHeader,
        session: Session | None,
        workspace: str,
        *,
        mark: Mark | None,
        follows: bool,
        writes: bool,
        again: bool,
    ) -> None:
        self.workspace = workspace
        self._reader = reader
        self._database = None if store is None else store.database
        self._appender = None if store is None else Appender(store, header, session, mark, workspace, again=again)
        self._away = not again and session is None and was_removed(store, header)
        self._writes = writes and store is not None
        self._session_id = _NO_SESSION if session is None else session.id
        self._mark = mark
        self._from = mark or _NOTHING_READ
        self._follows = follows
        self._stored = 0 if session is None else session.last_sequence
        self._cursor = self._from.settled_sequence if follows else self._stored
        self._places = Places(self._cursor)
        self._said: stored.Said = stored.Said()
        self._stays = self._uneven = False
        self._differs = False
        self._batch_bytes = 0
        self._waiting: set[str | None] = set()
        self._turns = self._events = self._assets = 0

    @classmethod
    def open(
        cls,
        store: MemoryStore | None,
        reader: TranscriptReader,
        header: SessionHeader,
        *,
        workspace: str,
        prefixes: Prefixes,
        writes: bool,
        again: bool = False,
    ) -> Self:
        """Find or prepare the Session of a header; nothing is written before the first new turn. Raises: Invalid.

        `again` brings back one that was removed here.
        """
        source = header.source
        session = None if store is None else store.find_imported(source.source, source.source_id)
        mark, redacted = None, False
        if store is not None and session is not None:
            with store.database.read() as transaction:
                mark = get_mark(transaction, session.id)
                redacted = transaction.one(SQL["is_redacted"], {"session_id": session.id}) is not None
        # What a person had struck out must not be taken for something that the Session lacks.
        empty = session is None or session.last_sequence == 0
        proven = empty or (mark is not None and not redacted and prefixes.prove(mark.read))
        path = identity.inspect(workspace).path if session is None else session.workspace_path
        follows = proven and isinstance(reader, GrowingReader)
        return cls(store, reader, header, session, path, mark=mark, follows=follows, writes=writes, again=again)

    def add(self, turn: ImportedTurn) -> None:
        """Take a turn in; what is stored already is passed over.

        Raises: Invalid, SessionBusy, WorkspaceMismatch, Overtaken.
        """
        if self._away:
            return
        if not self._follows:
            self._add_unknown(turn)
        elif turn.start_offset >= self._from.settled_offset:
            self._follow(turn)
            self._places.add(turn.start_offset, self._cursor)

    def flush(self) -> None:
        """Commit what is in hand. Until the file's end nothing more of it counts as settled. Raises: as `add`."""
        self._commit(end=False)

    def finish(self, header: SessionHeader, *, distill: bool) -> Stored:
        """Commit the rest with the mark of the file's end, publish the distillation and let the Session go.

        Raises: as `add`.
        """
        if self._away:
            return Stored.away(header)
        if self._follows and self._cursor < self._stored:
            self._part_ways()
        if self._appender is not None:
            self._appender.header = header
        self._commit(end=True)
        if self._appender is not None and self._writes:
            self._appender.settle(header, self._end_mark())
        return self._let_go(header, distill=distill)

    def pass_by(self, header: SessionHeader, *, distill: bool) -> Stored:
        """The file is as it was when it was read: store nothing, and publish what may not have been published."""
        return self._let_go(header, distill=distill)

    def abandon(self) -> None:
        """Let the Session go after a failure; committed batches stay."""
        if self._appender is not None:
            self._appender.abandon()

    def _follow(self, said_by: ImportedTurn) -> None:
        """Hold a turn against what is stored; store it where the Session has nothing more, or something else."""
        turn = append.prepare(said_by.events)
        if self._cursor < self._stored:
            if self._is_stored(turn):
                self._cursor += len(turn)
                return
            self._part_ways()
        if self._said and said_by.start_offset < self._from.read.offset:
            events = self._renamed(stored.unsaid(said_by.events, self._said))
            if not events:
                return
            turn = append.prepare(events)
        self._take(turn)

    def _is_stored(self, turn: PreparedTurn) -> bool:
        assert self._database is not None
        with self._database.read() as transaction:
            return stored.holds_turn(transaction, self._session_id, turn, after=self._cursor)

    def _part_ways(self) -> None:
        """From here on the file says something else than is stored: take that back, but for what is built upon."""
        assert self._database is not None
        assert self._appender is not None
        if self._writes:
            self._appender.hold()
        with self._database.read() as transaction:
            kept = tail.kept_through(transaction, self._session_id, after=self._cursor)
            self._said = stored.said_between(transaction, self._session_id, after=self._cursor, through=kept)
            gone = transaction.one(SQL["past"], {"session_id": self._session_id, "after": kept})
        assert gone is not None
        self._stays = kept > self._cursor
        self._cursor = kept
        if kept < self._stored:
            self._appender.take_back(kept)
            self._differs = True
            self._stored = kept
            self._count(-cast(int, gone[0]), -cast(int, gone[1]), -cast(int, gone[2]))

    def _renamed(self, left: Iterable[tuple[Event, int]]) -> list[Event]:
        """Give the rest of an event, whose beginning is stored under its record, a name of its own."""
        assert self._database is not None
        with self._database.read() as transaction:
            return [
                structs.replace(event, source_record=f"{event.source_record}+{number}")
                if number and stored.holds_record(transaction, self._session_id, event.source_record)
                else event
                for event, number in left
            ]

    def _add_unknown(self, turn: ImportedTurn) -> None:
        """Store the events of a turn whose records are neither stored nor in the batch."""
        if not turn.ended and self._is_older_copy():
            # How this turn ends is stored already, and the copy does not know it.
            self._reader.defects["older_copy"] += 1
            return
        events = [event for event in turn.events if event.source_record not in self._waiting]
        if self._database is not None and self._session_id:
            with self._database.read() as transaction:
                session_id = self._session_id
                events = [e for e in events if not stored.holds_record(transaction, session_id, e.source_record)]
        if events:
            self._take(append.prepare(events))
            self._waiting.update(event.source_record for event in events)

    def _is_older_copy(self) -> bool:
        return self._mark is not None and self._reader.position.offset < self._mark.read.offset

    def _take(self, turn: PreparedTurn) -> None:
        self._cursor += len(turn)
        self._differs = True
        self._count(1, len(turn), sum(len(item.media) for item in turn))
        if not self._writes or self._appender is None:
            return
        size = append.size_of(turn)
        if self._appender.batch and self._batch_bytes + size > limits.IMPORT_BATCH_BYTES_MAX:
            self.flush()
        self._appender.batch.append(turn)
        self._batch_bytes += size

    def _count(self, turns: int, events: int, assets: int) -> None:
        self._turns += turns
        self._events += events
        self._assets += assets

    def _commit(self, *, end: bool) -> None:
        if self._appender is None or not self._writes or not self._appender.pending:
            return
        try:
            self._appender.commit(self._end_mark() if end else self._batch_mark())
        except Invalid:
            dropped = self._appender.drop_known()
            if not dropped:
                raise
            self._forget(dropped)
            if self._appender.pending:
                self._appender.commit(self._end_mark() if end else self._batch_mark())
        if self._appender.session is not None:
            self._session_id = self._appender.session.id
        self._waiting.clear()
        self._batch_bytes = 0

    def _forget(self, dropped: list[PreparedTurn]) -> None:
        """Records that were stored long before are not stored again; where turns lie is not known as exactly then."""
        number = sum(map(len, dropped))
        self._cursor -= number
        self._uneven = True
        self._count(0, -number, -sum(len(item.media) for turn in dropped for item in turn))

    def _batch_mark(self) -> Mark:
        return replace(self._from, read=self._reader.position, finished=False)

    def _end_mark(self) -> Mark:
        """The mark after the file was read to its end."""
        read = self._reader.position
        if not self._follows or not isinstance(self._reader, GrowingReader):
            if self._mark is not None and self._is_older_copy():
                return self._mark
            return Mark(read=read, settled_offset=read.offset, settled_sequence=self._cursor, finished=True)
        settled = self._reader.settled.offset
        sequence = self._places.settle(settled)
        # Of a turn that had to stay as it was, the rest is told by its parts: that needs the whole turn again.
        stays = self._stays and settled < self._from.read.offset
        if stays or self._uneven or sequence is None or settled < self._from.settled_offset:
            return replace(self._from, read=read, finished=True)
        return Mark(read=read, settled_offset=settled, settled_sequence=sequence, finished=True)

    def _let_go(self, header: SessionHeader, *, distill: bool) -> Stored:
        job = parent = None
        created = not self._writes and not self._session_id
        if self._appender is not None:
            parent = self._appender.parent_id()
            created = created or self._appender.created
            if self._writes:
                job = self._appender.let_go(distill=distill)
        return Stored(
            session_id=self._session_id,
            header=header,
            workspace=self.workspace,
            parent_session_id=parent,
            created=created,
            changed=self._differs,
            turns=self._turns,
            events=self._events,
            assets=self._assets,
            distillation=None if job is None else job.id,
        )


def was_removed(store: MemoryStore | None, header: SessionHeader) -> bool:
    """Whether a Session that is not stored was removed here, or is a part of one that was."""
    if store is None:
        return False
    source = header.source
    names = [name for name in (source.source_id, source.parent_source_id) if name is not None]
    return any(store.find_removed(source.source, name) is not None for name in names)
