"""The hand that writes one imported Session: it begins it or claims it late, and commits turns in batches.

The module owns these invariants:

- No empty Session is ever seen: a Session appears with its first turns and its mark, or not at all.
- A Session is claimed only when there is something to write, and only as it was looked at: one that another import has
  changed meanwhile is `Overtaken`.
- Turns and the mark that speaks of them are one transaction; so is taking turns back and saying them anew.
- A Session that was removed here is not begun again unasked: the transaction that begins one looks. One that was asked
  for is no longer known as removed from the instant at which it is back.
"""

from __future__ import annotations

import contextlib
from typing import Final

from emelex_core import faults, identity
from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.errors import EmelexError
from emelex_core.imports.records import SessionHeader
from emelex_core.imports.storing import stored
from emelex_core.imports.storing.marks import Mark, get_mark, put_mark
from emelex_core.publish import PublishedJob, follow, publish_distillation
from emelex_core.sessions import append, lease, registry, removed
from emelex_core.sessions.append import PreparedTurn
from emelex_core.sessions.lease import SessionLease
from emelex_core.sessions.records import Session
from emelex_core.store import MemoryStore

SQL: Final = load("emelex_core", "imports")


class Overtaken(EmelexError):
    """Another process imports the same transcript: what was looked at has changed, and the file is to be read again."""


class Appender:
    """Writes one Session of a store, under the newest `header` that its reader gave.

    `session` is None until there is one; `created` tells that this object made it. `again` lets it bring back a Session
    that was removed.
    """

    def __init__(
        self,
        store: MemoryStore,
        header: SessionHeader,
        session: Session | None,
        mark: Mark | None,
        workspace: str,
        *,
        again: bool = False,
    ) -> None:
        self.session = session
        self.created = self.changed = False
        self.batch: list[PreparedTurn] = []
        self._store = store
        self.header = header
        self._mark = mark
        self._title = header.title if session is None else session.title
        self._workspace = workspace
        self._again = again
        self._lease: SessionLease | None = None
        self._take_back: int | None = None

    @property
    def pending(self) -> bool:
        """Whether a commit has something to do."""
        return bool(self.batch) or self._take_back is not None

    def take_back(self, through: int) -> None:
        """Let the next commit begin by taking back the events after a sequence. The Session is held."""
        self._take_back = through

    def commit(self, mark: Mark) -> None:
        """Store the batch and the mark. Raises: Invalid, SessionBusy, WorkspaceMismatch, Overtaken, Storage."""

        def note(transaction: Transaction) -> None:
            source, now = self.header.source, self._store.clock()
            session_id = registry.find_imported(transaction, source.source, source.source_id)
            assert session_id is not None
            if self.session is None:
                self._admit(transaction)
            put_mark(transaction, session_id, mark, now=now)
            transaction.run(SQL["entitle"], {"id": session_id, "title": self.header.title})
            if self._take_back is not None:
                follow(transaction, session_id, now=now)

        if self.session is None:
            self._lease = lease.begin(
                self._store.database,
                identity.inspect(self._workspace),
                self.batch,
                title=self.header.title,
                source=self.header.source,
                parent_session_id=self.parent_id(),
                clock=self._store.clock,
                also=note,
            )
            if self._lease is None:
                raise Overtaken(f"{self.header.source.source_id} was imported by another process meanwhile")
            self.session = self._store.get_session(self._lease.session_id)
            self.created = True
        elif self._take_back is not None:
            self.hold().replace_tail(self._take_back, self.batch, also=note)
        else:
            self.hold().append_prepared(self.batch, also=note)
        faults.reach("import.batch_committed")
        self.changed = True
        self._mark, self._title = mark, self.header.title
        self.batch = []
        self._take_back = None

    def drop_known(self) -> list[PreparedTurn]:
        """Take out of the batch the events whose records are stored or stand in it twice; return them by turn.

        A reader sees repetitions only within a window, so that one in a hundred thousand records comes to here.
        """
        dropped: list[PreparedTurn] = []
        seen: set[str | None] = set()
        batch, self.batch = self.batch, []
        for turn in batch:
            known = {item.event.source_record for item in turn if self._is_known(item.event.source_record, seen)}
            seen.update(item.event.source_record for item in turn)
            kept = tuple(item for item in turn if item.event.source_record not in known)
            if known:
                dropped.append(tuple(item for item in turn if item.event.source_record in known))
            if kept:
                self.batch.append(append.prepare([item.event for item in kept]))
        return dropped

    def hold(self) -> SessionLease:
        """Claim the Session, as it was looked at. Raises: SessionBusy, WorkspaceMismatch, Overtaken."""
        assert self.session is not None
        if self._lease is None:
            self._lease = self._store.claim_session(self.session.id, self._workspace)
            with self._store.database.read() as transaction:
                current = registry.get(transaction, self.session.id, now=self._store.clock())
                moved = current.last_sequence != self.session.last_sequence
                moved = moved or get_mark(transaction, self.session.id) != self._mark
            if moved:
                raise Overtaken(f"Session {self.session.id} was changed by another process meanwhile")
            if current.last_sequence:
                self._lease.prove()
        return self._lease

    def settle(self, header: SessionHeader, mark: Mark) -> None:
        """Bring title, parent and mark up to date where no commit did that. Raises: as `commit`."""
        self.header = header
        if self.session is None:
            return
        moved = mark != self._mark
        if header.title != self._title and (self.changed or moved):
            # Before the mark: a killed import must find the file unfinished.
            self.hold().set_title(header.title)
        if moved:
            with self._store.database.write() as transaction:
                put_mark(transaction, self.session.id, mark, now=self._store.clock())
        parent_id = None if self.session.parent_session_id is not None else self.parent_id()
        if parent_id is not None:
            with self._store.database.write() as transaction:
                transaction.run(SQL["adopt"], {"id": self.session.id, "parent_id": parent_id})

    def let_go(self, *, distill: bool) -> PublishedJob | None:
        """Release the Session and publish its distillation; one to which nothing was added is published as it was."""
        if self.session is None:
            return None
        if self._lease is not None:
            job = self._lease.release(distill=distill)
            self._lease = None
            return job
        if not distill:
            return None
        with self._store.database.write() as transaction:
            return publish_distillation(transaction, self.session.id, now=self._store.clock())

    def abandon(self) -> None:
        """Let the Session go after a failure; committed batches stay."""
        if self._lease is not None:
            with contextlib.suppress(EmelexError):
                self._lease.release()
            self._lease = None

    def parent_id(self) -> str | None:
        """The Session that this one is a part of, where that is stored."""
        source = self.header.source
        if source.parent_source_id is None:
            return None
        parent = self._store.find_imported(source.source, source.parent_source_id)
        return None if parent is None else parent.id

    def _admit(self, transaction: Transaction) -> None:
        """Let a Session begin that was not removed, or is asked for again; in the transaction that begins it."""
        source = self.header.source
        if self._again:
            removed.clear(transaction, source.source, source.source_id)
        elif removed.find(transaction, source.source, source.source_id) is not None:
            raise Overtaken(f"{source.source_id} was imported and removed by another process meanwhile")

    def _is_known(self, record: str | None, seen: set[str | None]) -> bool:
        if record in seen:
            return True
        if self.session is None:
            return False
        with self._store.database.read() as transaction:
            return stored.holds_record(transaction, self.session.id, record)
