"""Appending whole turns to a Session's chain (behaviours 35 to 41).

`prepare` validates and serialises, `lay_out` gives ids and chain values, both outside the transaction; `insert` writes.
The module owns these invariants:

- A turn is 1 to 4,096 events and at most 16 MiB; all of it is stored or nothing.
- Every media reference names a cataloged asset, linked in the same transaction.
- Only the compaction worker writes Summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from emelex_core import clock, codec, digests, ids, limits
from emelex_core.db.database import Conflict, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.events import ASSET_KINDS, ROLES, AssetRef, Event, EventKind, encode_payload

SQL: Final = load("emelex_core", "events")
ASSETS: Final = load("emelex_core", "assets")
_RECORD_BYTES_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedTurn:
    """What an append made durable: the turn's id and the consecutive sequences and ids of its events."""

    turn_id: str
    first_sequence: int
    last_sequence: int
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    event: Event
    payload: bytes
    media: tuple[AssetRef, ...]


PreparedTurn = tuple[_Prepared, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Where a chain ends: the last sequence and the chain value there."""

    sequence: int
    chain: bytes


def prepare(turn: Sequence[Event], *, allow_summary: bool = False) -> PreparedTurn:
    """Check a turn and serialise its events. Raises: Invalid; nothing was written."""
    if not 1 <= len(turn) <= limits.TURN_EVENTS_MAX:
        raise Invalid(f"a turn holds 1 to {limits.TURN_EVENTS_MAX} events, not {len(turn)}")
    prepared: list[_Prepared] = []
    size = 0
    for index, event in enumerate(turn):
        what = f"event {index + 1} of the turn"
        if event.kind is EventKind.SUMMARY and not allow_summary:
            raise Invalid(f"{what}: Summaries are written by the compaction worker only")
        media = event.media
        _check_media(media, what)
        if event.source_record is not None:
            codec.check_line(event.source_record, what=f"{what}: source record", bytes_max=_RECORD_BYTES_MAX)
        if event.occurred_at is not None and not clock.INSTANT_MS_MIN <= event.occurred_at <= clock.INSTANT_MS_MAX:
            raise Invalid(f"{what}: its instant {event.occurred_at} is out of range")
        payload = encode_payload(event, what=what)
        size += len(payload)
        if size > limits.TURN_BYTES_MAX:
            raise Invalid(f"the turn is larger than {limits.TURN_BYTES_MAX} bytes")
        prepared.append(_Prepared(event, payload, media))
    return tuple(prepared)


def size_of(turn: PreparedTurn) -> int:
    """Payload bytes of a prepared turn."""
    return sum(len(item.payload) for item in turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Turns laid out after a tail, ready to insert: rows, links, and the tail that they lead to."""

    rows: tuple[dict[str, int | str | bytes | None], ...]
    links: tuple[tuple[int, int, AssetRef], ...]
    turns: tuple[AppendedTurn, ...]
    tail: Tail
    bytes: int


def lay_out(session_id: str, tail: Tail, turns: Sequence[PreparedTurn], *, now: int) -> Batch:
    """Give events their ids, sequences and chain values after a tail. Pure, and outside any transaction."""
    rows: list[dict[str, int | str | bytes | None]] = []
    links: list[tuple[int, int, AssetRef]] = []
    appended: list[AppendedTurn] = []
    for turn in turns:
        turn_id, *fresh = ids.ordered_ids(1 + len(turn))
        first = tail.sequence + 1
        for position, item in enumerate(turn):
            row = _row(session_id, tail, item, fresh[position], turn_id, position, len(turn), now)
            tail = Tail(sequence=tail.sequence + 1, chain=cast(bytes, row["chain"]))
            rows.append(row)
            links.extend((tail.sequence, ordinal, ref) for ordinal, ref in enumerate(item.media))
        appended.append(
            AppendedTurn(turn_id=turn_id, first_sequence=first, last_sequence=tail.sequence, event_ids=tuple(fresh))
        )
    size = sum(map(size_of, turns))
    return Batch(rows=tuple(rows), links=tuple(links), turns=tuple(appended), tail=tail, bytes=size)


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
    seen: set[object] = set()
    for row in batch.rows:
        record = row["source_record"]
        if record is None:
            continue
        stored = transaction.one(SQL["has_source_record"], {"session_id": session_id, "source_record": record})
        if record in seen or (stored is not None and cast(int, stored[0]) < cast(int, batch.rows[0]["sequence"])):
            return Invalid(f"Session {session_id} holds the source record {str(record)[:80]!r} already")
        seen.add(record)
    return None


def _row(
    session_id: str,
    tail: Tail,
    item: _Prepared,
    event_id: str,
    turn_id: str,
    position: int,
    turn_size: int,
    now: int,
) -> dict[str, int | str | bytes | None]:
    event = item.event
    chain = digests.next_chain(
        tail.chain,
        sequence=tail.sequence + 1,
        event_id=event_id,
        turn_id=turn_id,
        turn_position=position,
        turn_size=turn_size,
        kind=event.kind.value,
        source_record=event.source_record,
        occurred_at=event.occurred_at,
        created_at=now,
        payload=item.payload,
    )
    return {
        "session_id": session_id,
        "sequence": tail.sequence + 1,
        "id": event_id,
        "turn_id": turn_id,
        "turn_position": position,
        "turn_size": turn_size,
        "kind": event.kind.value,
        "role": ROLES[event.kind],
        "payload": item.payload,
        "source_record": event.source_record,
        "occurred_at": event.occurred_at,
        "created_at": now,
        "chain": chain,
    }


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
