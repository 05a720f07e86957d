"""Appending whole turns to a Session's chain (behaviours 35 to 41).

`prepare` validates and serialises, `lay_out` gives ids and chain values, both outside the transaction; `insert` writes.
The module owns these invariants:

- A turn is 1 to 4,096 events and at most 16 MiB; all of it is stored or nothing.
- Every media reference names a cataloged asset, linked in the same transaction.
- Only the compaction worker writes Summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import msgspec

from emelex_core import clock, codec, digests, ids, limits
from emelex_core.db.database import Conflict, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.events import ASSET_KINDS, ROLES, AssetRef, Event, EventKind, encode_payload, encode_words

SQL: Final = load("emelex_core", "events")
ASSETS: Final = load("emelex_core", "assets")
_RECORD_BYTES_MAX: Final = 512


_SEQUENCE: Final = 1
_SOURCE_RECORD: Final = 9
EventRow: TypeAlias = tuple[
    str, int, str, str, int, int, str, str, bytes, "str | None", "int | None", int, bytes
]  # fmt: skip
"""The values of the statement `add`, in its order."""


class AppendedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What an append made durable: the turn's id and the consecutive sequences and ids of its events."""

    turn_id: str
    first_sequence: int
    last_sequence: int
    event_ids: tuple[str, ...]


class _Prepared(msgspec.Struct, frozen=True, gc=False):
    event: Event
    payload: bytes
    media: tuple[AssetRef, ...]


PreparedTurn: TypeAlias = tuple[_Prepared, ...]


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain ends: the last sequence and the chain value there."""

    sequence: int
    chain: bytes


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Turns laid out after a tail, ready to insert: rows, links, and the tail that they lead to."""

    rows: Sequence[EventRow]
    links: Sequence[tuple[int, int, AssetRef]]
    turns: tuple[AppendedTurn, ...]
    tail: Tail
    bytes: int


def prepare(turn: Sequence[Event], *, allow_summary: bool = False) -> PreparedTurn:
    """Check a turn and serialise its events. Raises: Invalid; nothing was written."""
    if not 1 <= len(turn) <= limits.TURN_EVENTS_MAX:
        raise Invalid(f"a turn holds 1 to {limits.TURN_EVENTS_MAX} events, not {len(turn)}")
    prepared: list[_Prepared] = []
    size = 0
    for index, event in enumerate(turn):
        payload = encode_words(event)
        media: tuple[AssetRef, ...] = ()
        if payload is None or event.kind is EventKind.SUMMARY or event.source_record is not None:
            what = f"event {index + 1} of the turn"
            media = _check(event, what, allow_summary=allow_summary)
            payload = payload or encode_payload(event, what=what)
        if event.occurred_at is not None and not clock.INSTANT_MS_MIN <= event.occurred_at <= clock.INSTANT_MS_MAX:
            raise Invalid(f"event {index + 1} of the turn: its instant {event.occurred_at} is out of range")
        size += len(payload)
        if size > limits.TURN_BYTES_MAX:
            raise Invalid(f"the turn is larger than {limits.TURN_BYTES_MAX} bytes")
        prepared.append(_Prepared(event, payload, media))
    return tuple(prepared)


def size_of(turn: PreparedTurn) -> int:
    """Payload bytes of a prepared turn."""
    return sum(len(item.payload) for item in turn)


def lay_out(session_id: str, tail: Tail, turns: Sequence[PreparedTurn], *, now: int) -> Batch:
    """Give events their ids, sequences and chain values after a tail. Pure, and outside any transaction."""
    rows: list[EventRow] = []
    links: list[tuple[int, int, AssetRef]] = []
    appended: list[AppendedTurn] = []
    sequence, chain, size_bytes = tail.sequence, tail.chain, 0
    for turn in turns:
        turn_id, *fresh = ids.ordered_ids(1 + len(turn))
        first, size = sequence + 1, len(turn)
        for position, item in enumerate(turn):
            event, payload, event_id = item.event, item.payload, fresh[position]
            kind, record, occurred = event.kind.value, event.source_record, event.occurred_at
            sequence += 1
            size_bytes += len(payload)
            chain = digests.next_chain(
                chain, sequence, event_id, turn_id, position, size, kind, record, occurred, now, payload
            )
            role = ROLES[event.kind]
            rows.append(
                (
                    session_id,
                    sequence,
                    event_id,
                    turn_id,
                    position,
                    size,
                    kind,
                    role,
                    payload,
                    record,
                    occurred,
                    now,
                    chain,
                )
            )
            if item.media:
                links.extend((sequence, ordinal, ref) for ordinal, ref in enumerate(item.media))
        appended.append(
            AppendedTurn(turn_id=turn_id, first_sequence=first, last_sequence=sequence, event_ids=tuple(fresh))
        )
    last = Tail(sequence=sequence, chain=chain)
    return Batch(rows=rows, links=links, turns=tuple(appended), tail=last, bytes=size_bytes)


def insert(transaction: Transaction, session_id: str, batch: Batch) -> None:
    """Insert a batch. The caller has advanced the Session's row in the same transaction, which proved the tail.

    Raises: Invalid for a media reference that is not cataloged and for a source record that is stored already; the
    caller's transaction rolls everything back.
    """
    try:
        transaction.run_many(SQL["add"], batch.rows)
    except Conflict as error:
        raise _repeated(transaction, session_id, batch) or error from None
    for sequence, ordinal, ref in batch.links:
        _require_cataloged(transaction, ref)
        transaction.run(
            SQL["link_asset"],
            {
                "session_id": session_id,
                "sequence": sequence,
                "ordinal": ordinal,
                "sha256": ref.sha256,
                "kind": ref.kind,
            },
        )


def _repeated(transaction: Transaction, session_id: str, batch: Batch) -> Invalid | None:
    """The record id that the caller appends a second time, as an error; None when the conflict is not the caller's."""
    seen: set[str] = set()
    for row in batch.rows:
        record = row[_SOURCE_RECORD]
        if record is None:
            continue
        stored = transaction.one(SQL["has_source_record"], {"session_id": session_id, "source_record": record})
        if record in seen or (stored is not None and cast(int, stored[0]) < batch.rows[0][_SEQUENCE]):
            return Invalid(f"Session {session_id} holds the source record {record[:80]!r} already")
        seen.add(record)
    return None


def _check(event: Event, what: str, *, allow_summary: bool) -> tuple[AssetRef, ...]:
    """Check what is beside an event's words, and return its media. Raises: Invalid."""
    if event.kind is EventKind.SUMMARY and not allow_summary:
        raise Invalid(f"{what}: Summaries are written by the compaction worker only")
    media = event.media
    _check_media(media, what)
    record = event.source_record
    # A short ASCII word passes at once: an import asks this for every event.
    if record is not None and not (len(record) <= _RECORD_BYTES_MAX and record.isascii() and record.strip()):
        codec.check_line(record, what=f"{what}: source record", bytes_max=_RECORD_BYTES_MAX)
    return media


def _check_media(media: Sequence[AssetRef], what: str) -> None:
    if len(media) > limits.ASSETS_PER_EVENT_MAX:
        raise Invalid(f"{what}: {len(media)} media; at most {limits.ASSETS_PER_EVENT_MAX} are accepted")
    for ref in media:
        if ref.kind not in ASSET_KINDS:
            raise Invalid(f"{what}: media of the kind {ref.kind!r} are not accepted")


def _require_cataloged(transaction: Transaction, ref: AssetRef) -> None:
    row = transaction.one(ASSETS["take"], {"sha256": ref.sha256})
    if row is None:
        raise Invalid(f"asset {ref.sha256[:80]} is not stored here", hint="store its bytes first, then append again")
    if row[0] != ref.size:
        raise Invalid(f"asset {ref.sha256} has {cast(int, row[0])} bytes, not {ref.size}")
