"""Changes to a Session that nobody holds: one event, or its title (behaviours 29 and 39).

The module owns this invariant: nothing is changed behind a live lease or a turn that was not finished. A holder whose
lease had run out finds its cursor stale afterwards and replays before it appends (behaviour 40).
"""

from __future__ import annotations

from typing import cast

from emelex_core import codec, faults, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.errors import Corrupt, NotFound, SessionBusy, TurnUnfinished
from emelex_core.events import Event
from emelex_core.sessions import append, registry
from emelex_core.sessions.append import AppendedTurn, Tail


def append_event(database: Database, session_id: str, event: Event, *, clock: Clock) -> AppendedTurn:
    """Append one event as a turn of its own.

    Raises: Invalid, NotFound, SessionBusy with the deadline, TurnUnfinished; nothing was written.
    """
    turn = append.prepare([event])
    with database.write() as transaction:
        now = clock()
        head = transaction.one(registry.SQL["head"], {"id": session_id})
        if head is None:
            raise NotFound(f"no Session {session_id[:80]}")
        tail = Tail(sequence=cast(int, head[0]), chain=cast(bytes, head[1]))
        batch = append.lay_out(session_id, tail, [turn], now=now)
        values: dict[str, Value] = {
            "id": session_id,
            "cursor": tail.sequence,
            "last_sequence": batch.tail.sequence,
            "chain": batch.tail.chain,
            "bytes": batch.bytes,
            "now": now,
        }
        if not transaction.run(registry.SQL["advance_unclaimed"], values):
            raise _refusal(transaction, session_id, now=now)
        append.insert(transaction, session_id, batch)
        faults.reach("append.before_commit")
    faults.reach("append.committed")
    return batch.turns[0]


def set_title(database: Database, session_id: str, title: str, *, clock: Clock) -> None:
    """Change the title. Raises: Invalid, NotFound, SessionBusy with the deadline."""
    codec.check_line(title, what="title", bytes_max=limits.TITLE_BYTES_MAX)
    with database.write() as transaction:
        now = clock()
        if not transaction.run(registry.SQL["rename_unclaimed"], {"id": session_id, "title": title, "now": now}):
            raise _refusal(transaction, session_id, now=now)


def _refusal(
    transaction: Transaction, session_id: str, *, now: int
) -> NotFound | SessionBusy | TurnUnfinished | Corrupt:
    """Why a Session was not changed: it is not there, somebody holds it, or its last turn was not finished."""
    if transaction.one(registry.SQL["head"], {"id": session_id}) is None:
        return NotFound(f"no Session {session_id[:80]}")
    session = registry.get(transaction, session_id, now=now)
    if session.held_until is not None:
        return SessionBusy(f"Session {session_id} is in use", held_until=session.held_until)
    if transaction.one(registry.SQL["has_turn"], {"id": session_id}) is not None:
        return TurnUnfinished(
            f"Session {session_id} has a turn that was not finished",
            hint=f"close it first: emelex memory sessions recover {session_id}",
        )
    return Corrupt(f"Session {session_id}: its row cannot be advanced")
