"""Events as a journal holds them: a JSON array of {"kind", "payload"}, each payload in the form that `events` stores.

What is journalled has passed the entry gate of an append, so that a checkpoint cannot be refused for what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import Event, EventKind, decode_payload, encode_payload

_NEVER: Final = (EventKind.SUMMARY, EventKind.ERROR)
"""Summaries belong to the compaction worker; the error event is what closes a turn."""


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    payload: msgspec.Raw


_DECODER: Final = msgspec.json.Decoder(list[_Stored])


def encode_event(event: Event, *, what: str) -> bytes:
    """The payload of one event that a turn may hold. Raises: Invalid."""
    if event.kind in _NEVER:
        raise Invalid(f"{what}: a turn under way holds no {event.kind} events")
    if event.source_record is not None or event.occurred_at is not None or event.provenance is not None:
        raise Invalid(f"{what}: a turn under way has no source record, no stated instant and no provenance")
    return encode_payload(event, what=what)


def encode_events(events: Sequence[Event], *, what: str) -> bytes:
    """Several events as one value. Raises: Invalid naming the event."""
    pieces = [
        b'{"kind":"%b","payload":%b}' % (event.kind.encode(), encode_event(event, what=f"{what}, event {number}"))
        for number, event in enumerate(events, start=1)
    ]
    return b"[%b]" % b",".join(pieces)


def decode_event(data: bytes, kind: EventKind, *, what: str) -> Event:
    """Read one payload back. Raises: Corrupt."""
    payload = decode_payload(data, what=what)
    return Event(kind=kind, parts=payload.parts, label=payload.label)


def decode_events(data: bytes, *, what: str) -> tuple[Event, ...]:
    """Read several events back. Raises: Corrupt naming `what` for anything that `encode_events` has not written."""
    try:
        found = _DECODER.decode(data)
        return tuple(decode_event(bytes(one.payload), EventKind(one.kind), what=what) for one in found)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, ValueError) as error:
        raise Corrupt(f"{what}: its events do not parse: {error}") from None
