"""SessionLease: the authority to read and extend one Session (behaviours 19 to 34, 40, 41).

The module owns these invariants:

- A lease comes from `claim` only; it cannot be built, copied, pickled or read out (house habit 8).
- Every append re-proves token, deadline, cursor and workspace identity inside its own transaction.
- A Session with history is replayed before the first append; an append that lost its place must replay again.
- Beside a turn that is under way or was interrupted only its own journal appends (emelex_core/journal).
- Leaving the `with` block releases. A lease that is merely dropped releases without waiting, or lets expiry do it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, Self, cast

from emelex_core import codec, faults, identity, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.errors import (
    EmelexError,
    Invalid,
    ReplayRequired,
    SessionBusy,
    StaleReplay,
    StaleSessionLease,
    TurnUnfinished,
    WorkspaceMismatch,
)
from emelex_core.events import Event
from emelex_core.identity import Watch, Workspace
from emelex_core.publish import PublishedJob, publish_distillation
from emelex_core.sessions import append, binding, registry, tail
from emelex_core.sessions.append import AppendedTurn, Batch, PreparedTurn, Tail
from emelex_core.sessions.records import ImportSource, Session
from emelex_core.sessions.replay import Replay, replay

if TYPE_CHECKING:
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel

_KEY: Final = object()
_TOKEN_BYTES: Final = 16


class SessionLease:
    """The exclusive, expiring authority over one Session. A context manager; not for two threads at once."""

    def __init__(
        self, key: object, *, database: Database, session: Session, workspace: Workspace, clock: Clock
    ) -> None:
        if key is not _KEY:
            raise TypeError("a SessionLease comes from MemoryStore.claim_session")
        self._database = database
        self._workspace = workspace
        self._watch = Watch(workspace)
        self._clock = clock
        self._token = b""
        self._tail: Tail | None = None
        self.session_id = session.id
        self.title = session.title

    def replay(self, *, media: bool = True) -> Replay:
        """Prove and return the whole history: the Summary, if any, then the uncovered tail.

        With `media` off a labelled text stands in the place of each image: the way on for a history whose media are
        over their cap. Raises: StaleSessionLease, WorkspaceMismatch, Corrupt; Invalid above a replay cap.
        """
        return self._replay(keep=True, media=media)

    def prove(self) -> None:
        """Prove the whole history without returning it, however long it is; appending may then go on.

        Raises: as `replay`, but for the caps.
        """
        self._replay(keep=False, media=True)

    def append_turn(self, turn: Sequence[Event]) -> AppendedTurn:
        """Append one turn atomically and extend the lease; return its id and sequences.

        Raises: Invalid for what may not be stored, ReplayRequired, StaleReplay, StaleSessionLease, WorkspaceMismatch;
        TurnUnfinished beside a turn that only its journal may go on with.
        """
        return self.append_turns([turn])[0]

    def append_turns(self, turns: Sequence[Sequence[Event]]) -> tuple[AppendedTurn, ...]:
        """Append several turns in one transaction: one sync makes all of them durable. Raises: as `append_turn`."""
        return self.append_prepared([append.prepare(turn) for turn in turns])

    def append_prepared(
        self,
        turns: Sequence[PreparedTurn],
        *,
        also: Callable[[Transaction], None] | None = None,
        from_journal: bool = False,
    ) -> tuple[AppendedTurn, ...]:
        """Append turns that `append.prepare` has checked; `also` writes more in the same transaction.

        `from_journal` is for the journal itself, which appends what its turn holds. Raises: as `append_turn`, and
        whatever `also` raises.
        """
        if not turns:
            raise Invalid("no turn to append")
        before = self._require_tail()
        with self._database.write() as transaction:
            batch = self._write(transaction, before, turns, also=also, from_journal=from_journal)
        faults.reach("append.committed")
        self._tail = batch.tail
        return batch.turns

    def replace_tail(
        self, through: int, turns: Sequence[PreparedTurn], *, also: Callable[[Transaction], None] | None = None
    ) -> tuple[AppendedTurn, ...]:
        """Take back the events after `through` and append turns in their place, or none, in one transaction.

        For a transcript that was read before its agent had finished it (ADR 0012). Raises: Invalid when something rests
        on these events (emelex_core/sessions/tail.py); else as `append_prepared`.
        """
        before, self._tail = self._require_tail(), None
        with self._database.write() as transaction:
            left = tail.take_back(
                transaction,
                self.session_id,
                self._holder(),
                cursor=before.sequence,
                through=through,
                now=self._clock(),
            )
            if left is None:
                raise self._stale()
            batch = self._write(transaction, left, turns, also=also)
        faults.reach("append.committed")
        self._tail = batch.tail
        return batch.turns

    @contextmanager
    def writing(self) -> Generator[Transaction]:
        """One transaction under this lease, which proves what an append proves and extends the lease as it does.

        Raises: ReplayRequired, StaleReplay, StaleSessionLease, WorkspaceMismatch, and whatever the block raises.
        """
        tail = self._require_tail()
        with self._database.write() as transaction:
            self._watch.require_same()
            same = Batch(rows=(), links=(), turns=(), tail=tail, bytes=0)
            self._advance(transaction, tail, same, now=self._clock(), from_journal=True)
            yield transaction

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        """One view under this lease. Raises: StaleSessionLease when it holds the Session no more."""
        with self._database.read() as transaction:
            self._require_held(transaction)
            yield transaction

    def renew(self, *, database: Database | None = None) -> None:
        """Extend the lease by its full length, also when it had expired and nobody took it.

        Another thread renews through a connection of its own, `database`. Raises: StaleSessionLease when it was taken
        or released, WorkspaceMismatch.
        """
        identity.require_same(self._workspace.path, self._workspace.identity)
        with (database or self._database).write() as transaction:
            parameters = {**self._holder(), "now": self._clock(), "lease_ms": limits.LEASE_MS}
            if not transaction.run(registry.SQL["renew"], parameters):
                raise self._stale()

    def set_title(self, title: str) -> None:
        """Change the Session's title, here and in `title`. Raises: Invalid, StaleSessionLease."""
        codec.check_line(title, what="title", bytes_max=limits.TITLE_BYTES_MAX)
        with self._database.write() as transaction:
            if not transaction.run(
                registry.SQL["rename_claimed"], {**self._holder(), "title": title, "now": self._clock()}
            ):
                raise self._stale()
        self.title = title

    def bind_model(self, model: InstalledModel, *, manager: ModelManager, database: Database) -> InstalledModel:
        """Bind the claimed Session, for `MemoryStore.bind_model`; `database` is that store's. Raises: as it does."""
        if database is not self._database:
            raise Invalid(f"the lease of Session {self.session_id} is another store's")
        with self._database.read() as transaction:
            self._require_held(transaction)
        return binding.bind(
            self._database, self.session_id, model, manager=manager, clock=self._clock, token=self._token
        )

    def release(self, *, distill: bool = False) -> PublishedJob | None:
        """Give the Session back; with `distill`, publish its distillation in the same transaction.

        Returns the published (or already existing) job. A second release does nothing. Raises: StaleSessionLease when
        the lease was lost before.
        """
        if not self._token:
            return None
        with self._database.write() as transaction:
            if not transaction.run(registry.SQL["release"], self._holder()):
                self._token = b""
                raise self._stale()
            job = publish_distillation(transaction, self.session_id, now=self._clock()) if distill else None
        self._token = b""
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.release()
        except EmelexError:
            # The block's own error tells more; a lease that was lost has nothing left to release.
            if kind is None:
                raise

    def __del__(self) -> None:
        # No wait: a destructor may run anywhere, even inside a transaction of this thread. Expiry recovers the rest.
        if getattr(self, "_token", b""):
            token, self._token = self._token, b""
            self._database.try_write(registry.SQL["release"], {"id": self.session_id, "token": token})

    def __repr__(self) -> str:
        state = "held" if self._token else "released"
        return f"<SessionLease of {self.session_id}, {state}, token hidden>"

    def __copy__(self) -> NoReturn:
        raise TypeError("a SessionLease cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a SessionLease cannot be copied")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SessionLease cannot be pickled")

    def _replay(self, *, keep: bool, media: bool) -> Replay:
        identity.require_same(self._workspace.path, self._workspace.identity)
        with self._database.read() as transaction:
            self._require_held(transaction)
            session = registry.get(transaction, self.session_id, now=self._clock())
        result = replay(self._database, session, keep=keep, media=media)
        self._tail = result.tail
        return result

    def start_with(
        self, transaction: Transaction, turns: Sequence[PreparedTurn], *, also: Callable[[Transaction], None] | None
    ) -> None:
        """Append the first turns of a Session that the caller's transaction made; where that fails, both are gone."""
        self._tail = self._write(transaction, self._require_tail(), turns, also=also).tail

    @classmethod
    def take(
        cls, transaction: Transaction, *, database: Database, session: Session, workspace: Workspace, clock: Clock
    ) -> Self | None:
        """Claim an idle Session inside the caller's transaction; None while another lease holds it."""
        now = clock()
        token = secrets.token_bytes(_TOKEN_BYTES)
        span: dict[str, Value] = {"id": session.id, "now": now, "lease_ms": limits.LEASE_MS}
        transaction.run(registry.SQL["clamp_lease"], span)
        row = transaction.one(registry.SQL["claim"], {**span, "token": token, "owner": database.owners.slot()})
        if row is None:
            return None
        lease = cls(_KEY, database=database, session=session, workspace=workspace, clock=clock)
        lease._token = token
        if row[0] == 0:
            lease._tail = Tail(sequence=0, chain=cast(bytes, row[1]))
        return lease

    def _write(
        self,
        transaction: Transaction,
        before: Tail,
        turns: Sequence[PreparedTurn],
        *,
        also: Callable[[Transaction], None] | None,
        from_journal: bool = False,
    ) -> Batch:
        # Inside, since the wait for the write lock may have taken seconds: what holds now is what counts.
        self._watch.require_same()
        now = self._clock()
        batch = append.lay_out(self.session_id, before, turns, now=now)
        self._advance(transaction, before, batch, now=now, from_journal=from_journal)
        append.insert(transaction, self.session_id, batch)
        if also is not None:
            also(transaction)
        faults.reach("append.before_commit")
        return batch

    def _advance(self, transaction: Transaction, before: Tail, batch: Batch, *, now: int, from_journal: bool) -> None:
        """Move the Session's tail if token, deadline, cursor and journal allow it; otherwise say which did not."""
        changed = transaction.run(
            registry.SQL["advance"],
            {
                "id": self.session_id,
                "token": self._token,
                "cursor": before.sequence,
                "last_sequence": batch.tail.sequence,
                "chain": batch.tail.chain,
                "bytes": batch.bytes,
                "now": now,
                "lease_ms": limits.LEASE_MS,
                "from_journal": from_journal,
            },
        )
        if changed:
            return
        head = transaction.one(registry.SQL["head"], {"id": self.session_id})
        self._require_held(transaction)
        if head is not None and head[0] != before.sequence:
            self._tail = None
            raise StaleReplay(f"Session {self.session_id} has grown behind this lease: replay it again")
        if not from_journal:
            self._require_no_turn(transaction)
        raise StaleSessionLease(
            f"the lease of Session {self.session_id} has expired", hint="renew it, or claim it again"
        )

    def _require_tail(self) -> Tail:
        if self._tail is None:
            raise ReplayRequired(f"Session {self.session_id} has history: replay it before the first append")
        return self._tail

    def _require_no_turn(self, transaction: Transaction) -> None:
        if transaction.one(registry.SQL["has_turn"], {"id": self.session_id}) is not None:
            raise TurnUnfinished(
                f"Session {self.session_id} has a turn that was not finished",
                hint=f"close it first: emelex memory sessions recover {self.session_id}",
            )

    def _require_held(self, transaction: Transaction) -> None:
        row = transaction.one(registry.SQL["is_held"], self._holder())
        if row is None:
            raise self._stale()

    def _holder(self) -> dict[str, str | bytes]:
        return {"id": self.session_id, "token": self._token}

    def _stale(self) -> StaleSessionLease:
        return StaleSessionLease(
            f"this lease no longer holds Session {self.session_id}: it was released, or it expired and another took it",
            hint="claim the Session again",
        )


def begin(
    database: Database,
    workspace: Workspace,
    turns: Sequence[PreparedTurn],
    *,
    title: str,
    source: ImportSource,
    parent_session_id: str | None,
    clock: Clock,
    also: Callable[[Transaction], None] | None = None,
) -> SessionLease | None:
    """Start an imported Session with its first turns, in one transaction, and hold it; None when it is there already.

    No empty Session is ever seen. Raises: as `registry.start` and `SessionLease.append_prepared`.
    """
    with database.write() as transaction:
        if registry.find_imported(transaction, source.source, source.source_id) is not None:
            return None
        session_id = registry.start(
            transaction, workspace, title=title, now=clock(), source=source, parent_session_id=parent_session_id
        )
        session = registry.get(transaction, session_id, now=clock())
        lease = SessionLease.take(transaction, database=database, session=session, workspace=workspace, clock=clock)
        assert lease is not None, "nobody else knows a Session of this transaction"
        lease.start_with(transaction, turns, also=also)
    faults.reach("append.committed")
    return lease


def claim(database: Database, session_id: str, workspace: Workspace, clock: Clock) -> SessionLease:
    """Claim a Session for the workspace that it is bound to; a renamed directory is noted.

    Raises: NotFound, WorkspaceMismatch naming both identities, SessionBusy with the deadline.
    """
    with database.write() as transaction:
        session = registry.get(transaction, session_id, now=clock())
        path, bound = registry.bound_identity(transaction, session_id)
        if workspace.identity != bound:
            raise WorkspaceMismatch(
                f"Session {session_id} belongs to {path!r} ({bound.describe()}), not to {workspace.path!r} "
                f"({workspace.identity.describe()})",
                hint="run from its own workspace, or pass it with -C",
            )
        registry.ensure_workspace(transaction, workspace)
        lease = SessionLease.take(transaction, database=database, session=session, workspace=workspace, clock=clock)
        held = None if lease is not None else transaction.one(registry.SQL["held_until"], {"id": session_id})
    # Refused outside the transaction: a deadline that was clamped must stay so, or it would never come (behaviour 182).
    if lease is None:
        until = clock() if held is None or held[0] is None else cast(int, held[0])
        raise SessionBusy(f"Session {session_id} is in use by another process", held_until=until)
    faults.reach("session.claimed")
    return lease
