"""What a Session already holds of a transcript, held against what the transcript says now.

The module owns two invariants:

- A stored turn counts as said again only when it is: the same events in the same turn, byte for byte.
- Where stored events must stay although the transcript now says them otherwise, no part of theirs is said twice, and no
  part that they lack is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from msgspec.structs import replace

from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.events import Event, EventKind, Part, decode_payload, encode_payload
from emelex_core.sessions.append import PreparedTurn

SQL: Final = load("emelex_core", "imports")
EVENTS: Final = load("emelex_core", "events")
_ANY: Final = EventKind.AUDIT
Said: TypeAlias = Counter[tuple[str, str | None, bytes]]
"""How often parts were said: by kind, label and the part's own bytes."""


def holds_turn(transaction: Transaction, session_id: str, turn: PreparedTurn, *, after: int) -> bool:
    """Whether the events that follow `after` are exactly this turn."""
    place: dict[str, Value] = {"session_id": session_id, "after": after, "through": after + len(turn)}
    rows = transaction.all(SQL["stored"], place)
    expected = [
        (position, len(turn), item.event.kind.value, item.payload, item.event.source_record, item.event.occurred_at)
        for position, item in enumerate(turn)
    ]
    return rows == expected


def holds_record(transaction: Transaction, session_id: str, record: str | None) -> bool:
    """Whether an event of this record is stored."""
    return transaction.one(EVENTS["has_source_record"], {"session_id": session_id, "source_record": record}) is not None


def said_between(transaction: Transaction, session_id: str, *, after: int, through: int) -> Said:
    """Return what the events after a sequence up to another say. Raises: Corrupt."""
    said: Said = Counter()
    place: dict[str, Value] = {"session_id": session_id, "after": after, "through": through}
    for _, _, kind, payload, record, _ in transaction.all(SQL["stored"], place):
        stored = decode_payload(cast(bytes, payload), what=f"the event of record {record!r}")
        said.update((cast(str, kind), stored.label, _bytes(part)) for part in stored.parts)
    return said


def unsaid(events: Sequence[Event], said: Said) -> list[tuple[Event, int]]:
    """Return the events with the parts that were not said, and how many were; take what was said out of `said`."""
    left: list[tuple[Event, int]] = []
    for event in events:
        parts = tuple(part for part in event.parts if not _take(said, event, part))
        if parts:
            left.append((replace(event, parts=parts), len(event.parts) - len(parts)))
    return left


def _take(said: Said, event: Event, part: Part) -> bool:
    key = (event.kind.value, event.label, _bytes(part))
    if said[key] <= 0:
        return False
    said[key] -= 1
    return True


def _bytes(part: Part) -> bytes:
    return encode_payload(Event(kind=_ANY, parts=(part,)))
