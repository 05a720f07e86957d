"""Proving stored rows: each event continues the Session's chain, and each turn is whole (behaviours 45, 47, 52).

The module owns these invariants:

- Sequences have no gap, turns are whole and not interleaved, roles agree with kinds, and each stored chain value is the
  digest of what was read. What does not hold is Corrupt, naming Session and event; a history is never shortened.
- Digests are made of the stored bytes, never of what they were read into.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from emelex_core import digests
from emelex_core.errors import Corrupt
from emelex_core.events import MEDIA_MARK, ROLES, EventKind
from emelex_core.sessions.records import StoredEvent

EventRow: TypeAlias = tuple[
    int, str, str, int, int, str, str, bytes, "str | None", "int | None", int, bytes
]  # fmt: skip
"""Sequence, id, turn id, position, size, kind, role, payload, source record, occurred_at, created_at, chain."""

_KINDS: Final = {kind.value: kind for kind in EventKind}
_ROLES: Final = {kind.value: role for kind, role in ROLES.items()}


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive proven events: those among them whose payload can name media, and the size of all payloads."""

    events: list[StoredEvent]
    naming: list[StoredEvent]
    payload_bytes: int


class Proof:
    """Follows a Session's events in order, from a trusted chain value on."""

    def __init__(self, session_id: str, *, after: int, chain: bytes) -> None:
        """Begin behind the event `after`, whose chain value is `chain`."""
        self._session_id = session_id
        self.sequence = after
        self.chain = chain
        self._turn_id = ""
        self._turn_size = 0
        self._position = 0

    def take(self, rows: Iterable[EventRow], *, bytes_max: int) -> Proven:
        """Prove the next rows and return their events, up to so many bytes of payload; the first one always.

        Raises: Corrupt for the first that does not continue what was proven before it.
        """
        events: list[StoredEvent] = []
        naming: list[StoredEvent] = []
        # A replay goes through this loop 100,000 times, at three microseconds each: names are local, no call is idle.
        session_id, chain, sequence, spent = self._session_id, self.chain, self.sequence, 0
        current, length, due = self._turn_id, self._turn_size, self._position
        next_chain = digests.next_chain
        for row in rows:
            number, event_id, turn_id, position, size, kind, role, payload, record, occurred, created, stored = row
            if spent + len(payload) > bytes_max and events:
                break
            spent += len(payload)
            if number != sequence + 1:
                raise Corrupt(f"Session {session_id}: event {sequence + 1} is missing")
            if _ROLES.get(kind) != role:
                raise _odd_kind(session_id, row)
            try:
                chain = next_chain(
                    chain, number, event_id, turn_id, position, size, kind, record, occurred, created, payload
                )
            except (struct.error, UnicodeEncodeError):
                raise _changed(session_id, row) from None
            if chain != stored:
                raise _changed(session_id, row)
            if position != due or (due and (turn_id != current or size != length)):
                raise _out_of_turn(session_id, row)
            current, length = turn_id, size
            due = 0 if position == size - 1 else position + 1
            sequence = number
            event = StoredEvent(
                id=event_id,
                session_id=session_id,
                sequence=number,
                turn_id=turn_id,
                turn_position=position,
                turn_size=size,
                kind=_KINDS[kind],
                source_record=record,
                occurred_at=occurred,
                created_at=created,
                payload=payload,
                chain=stored,
            )
            events.append(event)
            if MEDIA_MARK in payload:
                naming.append(event)
        self.chain, self.sequence = chain, sequence
        self._turn_id, self._turn_size, self._position = current, length, due
        return Proven(events=events, naming=naming, payload_bytes=spent)

    def finish(self) -> None:
        """Say that nothing more comes. Raises: Corrupt when a turn is open."""
        if self._position:
            raise Corrupt(f"Session {self._session_id}: the turn of event {self.sequence} does not end")


def unproven(session_id: str, row: EventRow) -> StoredEvent:
    """The event of a row as it stands there, read at once. Raises: Corrupt for a kind, role or payload of no event."""
    number, event_id, turn_id, position, size, kind, role, payload, record, occurred, created, stored = row
    if _ROLES.get(kind) != role:
        raise _odd_kind(session_id, row)
    event = StoredEvent(
        id=event_id,
        session_id=session_id,
        sequence=number,
        turn_id=turn_id,
        turn_position=position,
        turn_size=size,
        kind=_KINDS[kind],
        source_record=record,
        occurred_at=occurred,
        created_at=created,
        payload=payload,
        chain=stored,
    )
    _ = event.content
    return event


def _odd_kind(session_id: str, row: EventRow) -> Corrupt:
    what, kind, role = _where(session_id, row), row[5], row[6]
    if kind not in _KINDS:
        return Corrupt(f"{what}: unknown kind {kind!r}")
    return Corrupt(f"{what}: role {role!r} does not belong to kind {kind!r}")


def _changed(session_id: str, row: EventRow) -> Corrupt:
    return Corrupt(
        f"{_where(session_id, row)} was changed after it was stored",
        hint="restore it from a backup; `emelex memory check` lists all damage",
    )


def _out_of_turn(session_id: str, row: EventRow) -> Corrupt:
    return Corrupt(f"{_where(session_id, row)} does not continue its turn (position {row[3]} of {row[4]})")


def _where(session_id: str, row: EventRow) -> str:
    return f"Session {session_id}: event {row[0]} ({row[1]})"
