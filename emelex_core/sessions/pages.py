"""Reading events in bounded pages, each event proven against the Session's chain (behaviours 42, 45, 47, 52).

The module owns these invariants:

- A page holds at most so many events and bytes, its first event always; no database view is held between pages.
- Sequences have no gap, turns are whole and not interleaved, roles agree with kinds, and each stored chain value is the
  digest of what was read. What does not hold is Corrupt, naming Session and event; a history is never shortened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from emelex_core import digests, limits
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import ROLES, EventKind, decode_payload
from emelex_core.sessions.records import StoredEvent

SQL: Final = load("emelex_core", "events")
_END: Final = 2**62


def page(
    transaction: Transaction,
    session_id: str,
    *,
    after: int = 0,
    through: int = _END,
    limit: int = limits.PAGE_EVENTS_MAX,
) -> list[StoredEvent]:
    """Return the next events after a sequence: at most `limit`, and at most 16 MiB of payload beyond the first.

    Raises: Invalid for a limit out of range, Corrupt.
    """
    if not 1 <= limit <= limits.PAGE_EVENTS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_EVENTS_MAX}")
    return [event for event, _ in _read(transaction, session_id, after=after, through=through, limit=limit)]


def verified(
    database: Database,
    session_id: str,
    *,
    after: int = 0,
    chain: bytes | None = None,
    through: int = _END,
) -> Iterator[StoredEvent]:
    """Yield the events after a sequence up to another, each proven to continue `chain`.

    `chain` is the trusted chain value at `after`; it may be left out when `after` is 0. Raises: Corrupt.
    """
    if chain is None:
        if after != 0:
            raise Invalid("a verified read that starts inside a Session needs the chain value there")
        chain = digests.first_chain(session_id)
    turn = _TurnCheck(session_id)
    while after < through:
        with database.read() as transaction:
            rows = _read(transaction, session_id, after=after, through=through, limit=limits.PAGE_EVENTS_MAX)
        if not rows:
            break
        for event, payload in rows:
            if event.sequence != after + 1:
                raise Corrupt(f"Session {session_id}: event {after + 1} is missing")
            chain = _continue(chain, event, payload)
            turn.check(event)
            after = event.sequence
            yield event
    turn.finish()


def rehash(transaction: Transaction, session_id: str, *, through: int) -> bool:
    """Whether the stored events 1 to `through` are, byte for byte, the ones that their chain was made of.

    Runs inside the caller's transaction and keeps one event in memory at a time; 1 GB takes about a second.
    """
    chain = digests.first_chain(session_id)
    expected = 1
    parameters: dict[str, Value] = {"session_id": session_id, "after": 0, "through": through, "limit": -1}
    for row in transaction.iterate(SQL["page"], parameters):
        sequence, event_id, turn_id, position, size, kind, _, payload, record, occurred, created, stored = row
        chain = digests.next_chain(
            chain,
            sequence=cast(int, sequence),
            event_id=cast(str, event_id),
            turn_id=cast(str, turn_id),
            turn_position=cast(int, position),
            turn_size=cast(int, size),
            kind=cast(str, kind),
            source_record=cast("str | None", record),
            occurred_at=cast("int | None", occurred),
            created_at=cast(int, created),
            payload=cast(bytes, payload),
        )
        if sequence != expected or chain != stored:
            return False
        expected += 1
    return expected == through + 1


def _read(
    transaction: Transaction, session_id: str, *, after: int, through: int, limit: int
) -> list[tuple[StoredEvent, bytes]]:
    """One bounded page, with the stored bytes that the digests are made of."""
    rows: list[tuple[StoredEvent, bytes]] = []
    size = 0
    parameters: dict[str, Value] = {"session_id": session_id, "after": after, "through": through, "limit": limit}
    for row in transaction.iterate(SQL["page"], parameters):
        event, payload = _from_row(session_id, row)
        size += len(payload)
        if rows and size > limits.PAGE_BYTES_MAX:
            break
        rows.append((event, payload))
    return rows


def _from_row(session_id: str, row: Row) -> tuple[StoredEvent, bytes]:
    sequence, event_id, turn_id, position, size, kind_text, role, payload, record, occurred, created, chain = row
    what = f"Session {session_id}: event {cast(int, sequence)} ({cast(str, event_id)})"
    try:
        kind = EventKind(cast(str, kind_text))
    except ValueError:
        raise Corrupt(f"{what}: unknown kind {kind_text!r}") from None
    if role != ROLES[kind]:
        raise Corrupt(f"{what}: role {role!r} does not belong to kind {kind.value!r}")
    data = cast(bytes, payload)
    decoded = decode_payload(data, what=what)
    event = StoredEvent(
        id=cast(str, event_id),
        session_id=session_id,
        sequence=cast(int, sequence),
        turn_id=cast(str, turn_id),
        turn_position=cast(int, position),
        turn_size=cast(int, size),
        kind=kind,
        parts=decoded.parts,
        label=decoded.label,
        source_record=cast("str | None", record),
        occurred_at=cast("int | None", occurred),
        created_at=cast(int, created),
        payload_bytes=len(data),
        chain=cast(bytes, chain),
        provenance=decoded.provenance,
    )
    return event, data


def _continue(chain: bytes, event: StoredEvent, payload: bytes) -> bytes:
    """Return the chain value at an event, or raise Corrupt when it is not the stored one."""
    found = digests.next_chain(
        chain,
        sequence=event.sequence,
        event_id=event.id,
        turn_id=event.turn_id,
        turn_position=event.turn_position,
        turn_size=event.turn_size,
        kind=event.kind.value,
        source_record=event.source_record,
        occurred_at=event.occurred_at,
        created_at=event.created_at,
        payload=payload,
    )
    if found != event.chain:
        raise Corrupt(
            f"Session {event.session_id}: event {event.sequence} ({event.id}) was changed after it was stored",
            hint="restore it from a backup; `emelex memory check` lists all damage",
        )
    return found


class _TurnCheck:
    """Follows the turns of a read: each begins at position 0, counts up, keeps its size and ends whole."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._last: StoredEvent | None = None

    def check(self, event: StoredEvent) -> None:
        last = self._last
        begins = last is None or last.turn_position == last.turn_size - 1
        if begins:
            fits = event.turn_position == 0
        else:
            assert last is not None
            fits = (event.turn_id, event.turn_size, event.turn_position) == (
                last.turn_id,
                last.turn_size,
                last.turn_position + 1,
            )
        if not fits:
            raise Corrupt(
                f"Session {self._session_id}: event {event.sequence} ({event.id}) does not continue its turn "
                f"(position {event.turn_position} of {event.turn_size})"
            )
        self._last = event

    def finish(self) -> None:
        last = self._last
        if last is not None and last.turn_position != last.turn_size - 1:
            raise Corrupt(f"Session {self._session_id}: the turn of event {last.sequence} ({last.id}) does not end")
