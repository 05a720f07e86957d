"""One imported Session while it is written: claimed at the first new turn, committed in batches.

A writer that does not write (a dry run) counts the same things and touches nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final, Self, cast

from emelex_core import faults, identity, limits
from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.errors import EmelexError
from emelex_core.events import Event
from emelex_core.imports.records import ImportedTurn, Position, SessionHeader
from emelex_core.publish import publish_distillation
from emelex_core.sessions import append
from emelex_core.sessions.append import PreparedTurn
from emelex_core.sessions.lease import SessionLease
from emelex_core.sessions.records import ImportSource, Session
from emelex_core.store import MemoryStore

SQL: Final = load("emelex_core", "imports")
EVENTS: Final = load("emelex_core", "events")
_DRY: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one run did to one Session."""

    session_id: str
    header: SessionHeader
    workspace: str
    parent_session_id: str | None
    created: bool
    turns: int
    events: int
    assets: int
    distillation: str | None


class SessionWriter:
    """Collects the turns of one Session and appends what is new. `open` makes one."""

    def __init__(
        self, store: MemoryStore | None, header: SessionHeader, session: Session | None, workspace: str, *, writes: bool
    ) -> None:
        self.workspace = workspace
        self._store = store
        self._header = header
        self._session = session
        self._writes = writes
        self._lease: SessionLease | None = None
        self._created = False
        self._batch: list[PreparedTurn] = []
        self._batch_bytes = 0
        self._waiting: set[str] = set()
        self._turns = self._events = self._assets = 0

    @classmethod
    def open(cls, store: MemoryStore | None, header: SessionHeader, *, workspace: str, writes: bool) -> Self:
        """Find or prepare the Session of a header; nothing is written before the first new turn. Raises: Invalid."""
        source = header.source
        session = None if store is None else store.find_imported(source.source, source.source_id)
        path = identity.inspect(workspace).path if session is None else session.workspace_path
        return cls(store, header, session, path, writes=writes)

    @staticmethod
    def cursor(store: MemoryStore, source: ImportSource) -> Position | None:
        """How far an earlier import read this Session's file, or None."""
        session = store.find_imported(source.source, source.source_id)
        if session is None:
            return None
        with store.database.read() as transaction:
            row = transaction.one(SQL["get"], {"session_id": session.id})
        return None if row is None else Position(offset=cast(int, row[0]), sha256=bytes.fromhex(cast(str, row[1])))

    def add(self, turn: ImportedTurn) -> None:
        """Take a turn in; what is stored already is passed over. Raises: Invalid, SessionBusy, WorkspaceMismatch."""
        events = self._unknown(turn.events)
        if not events:
            return
        prepared = append.prepare(events)
        self._turns += 1
        self._events += len(events)
        self._assets += sum(len(event.media) for event in events)
        if not self._writes:
            return
        if self._batch and self._batch_bytes + append.size_of(prepared) > limits.IMPORT_BATCH_BYTES_MAX:
            self._commit(None)
        self._batch.append(prepared)
        self._waiting.update(event.source_record for event in events if event.source_record is not None)
        self._batch_bytes += append.size_of(prepared)

    def finish(self, header: SessionHeader, *, position: Position | None, distill: bool) -> Stored:
        """Commit the rest, note the place in the file, publish the distillation and let the Session go."""
        self._header = header
        job: str | None = None
        if self._writes and self._store is not None:
            if self._batch or self._session is None:
                self._commit(position)
            elif position is not None:
                with self._store.database.write() as transaction:
                    self._note(transaction, position)
            job = self._let_go(distill=distill)
        return Stored(
            session_id=_DRY if self._session is None else self._session.id,
            header=header,
            workspace=self.workspace,
            parent_session_id=self._parent_id(),
            created=self._created or (self._session is None and not self._writes),
            turns=self._turns,
            events=self._events,
            assets=self._assets,
            distillation=job,
        )

    def abandon(self) -> None:
        """Let the Session go after a failure; committed batches stay."""
        if self._lease is not None:
            with contextlib.suppress(EmelexError):
                self._lease.release()
            self._lease = None

    def _unknown(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """The events that are neither stored nor in the batch; a reader sees repetitions only within a window."""
        new = [event for event in events if event.source_record not in self._waiting]
        if self._session is not None and self._store is not None:
            with self._store.database.read() as transaction:
                new = [event for event in new if not self._is_known(transaction, self._session.id, event)]
        return tuple(new)

    @staticmethod
    def _is_known(transaction: Transaction, session_id: str, event: Event) -> bool:
        parameters = {"session_id": session_id, "source_record": event.source_record}
        return transaction.one(EVENTS["has_source_record"], parameters) is not None

    def _commit(self, position: Position | None) -> None:
        """Append the batch in one transaction, with the place in the file when it is the last one."""
        if not self._batch:
            return
        lease = self._claim()

        def note(transaction: Transaction) -> None:
            if position is not None:
                self._note(transaction, position)

        lease.append_prepared(self._batch, also=note)
        faults.reach("import.batch_committed")
        self._batch = []
        self._waiting = set()
        self._batch_bytes = 0

    def _claim(self) -> SessionLease:
        assert self._store is not None
        if self._session is None:
            self._session = self._store.start_session(
                self.workspace,
                title=self._header.title,
                source=self._header.source,
                parent_session_id=self._parent_id(),
            )
            self._created = True
        if self._lease is None:
            self._lease = self._store.claim_session(self._session.id, self.workspace)
            if self._session.last_sequence:
                self._lease.prove()
        return self._lease

    def _note(self, transaction: Transaction, position: Position) -> None:
        assert self._session is not None
        assert self._store is not None
        transaction.run(
            SQL["put"],
            {
                "session_id": self._session.id,
                "byte_offset": position.offset,
                "prefix_sha256": position.sha256.hex(),
                "now": self._store.clock(),
            },
        )

    def _let_go(self, *, distill: bool) -> str | None:
        """Release the lease and publish; publishing a Session to which nothing was added changes nothing."""
        assert self._store is not None
        if self._session is None:
            return None
        if self._lease is not None:
            if self._header.title != self._session.title:
                self._lease.set_title(self._header.title)
            job = self._lease.release(distill=distill)
            self._lease = None
        elif distill:
            with self._store.database.write() as transaction:
                job = publish_distillation(transaction, self._session.id, now=self._store.clock())
        else:
            job = None
        return None if job is None else job.id

    def _parent_id(self) -> str | None:
        source = self._header.source
        if self._store is None or source.parent_source_id is None:
            return None
        parent = self._store.find_imported(source.source, source.parent_source_id)
        return None if parent is None else parent.id
