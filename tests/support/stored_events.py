"""Events of self-written transcripts with their places in a Session, without a store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from emelex_core.events import Event, EventKind, encode_payload
from emelex_core.sessions.records import StoredEvent


def stored(events: Iterable[Event], *, first_sequence: int = 1) -> list[StoredEvent]:
    """Give events their places, one turn for each user event and what follows it."""
    result: list[StoredEvent] = []
    turn = 0
    for sequence, event in enumerate(events, first_sequence):
        turn += event.kind is EventKind.USER
        result.append(
            StoredEvent(
                id=f"event-{sequence}",
                session_id="session",
                sequence=sequence,
                turn_id=f"turn-{turn}",
                turn_position=0,
                turn_size=1,
                kind=event.kind,
                source_record=None,
                occurred_at=None,
                created_at=0,
                payload=encode_payload(event),
                chain=hashlib.sha256(b"%d" % sequence).digest(),
            )
        )
    return result
