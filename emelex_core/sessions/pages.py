"""Reading events in bounded pages, each event proven against the Session's chain (behaviours 42, 45, 47, 52).

The module owns these invariants:

- A page holds at most so many events and bytes, its first event always; no database view is held between pages.
- What is read goes through `proof`, which owns what is proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, cast

import msgspec

from emelex_core import digests, limits
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.sessions.proof import EventRow, Proof, Proven, unproven
from emelex_core.sessions.records import StoredEvent

SQL: Final = load("emelex_core", "events")
_END: Final = 2**62

Link: TypeAlias = tuple[int, str, str]
"""One transactional asset link of an event: ordinal, digest, kind."""


class ProvenPage(msgspec.Struct, frozen=True, kw_only=True):
    """Proven events, and their asset links by sequence, of one view of the database."""

    proven: Proven
    links: dict[int, list[Link]]


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
    events: list[StoredEvent] = []
    size = 0
    for row in _rows(transaction, session_id, after=after, through=through, limit=limit):
        event = unproven(session_id, row)
        size += event.payload_bytes
        if events and size > limits.PAGE_BYTES_MAX:
            break
        events.append(event)
    return events


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
    for found in verified_pages(database, session_id, after=after, chain=chain, through=through):
        yield from found.proven.events


def verified_pages(
    database: Database,
    session_id: str,
    *,
    after: int = 0,
    chain: bytes | None = None,
    through: int = _END,
) -> Iterator[ProvenPage]:
    """Yield the events after a sequence up to another as `verified` does, in pages, with the links to their media."""
    if chain is None:
        if after != 0:
            raise Invalid("a verified read that starts inside a Session needs the chain value there")
        chain = digests.first_chain(session_id)
    proof = Proof(session_id, after=after, chain=chain)
    while proof.sequence < through:
        first = proof.sequence
        with database.read() as transaction:
            rows = _rows(transaction, session_id, after=first, through=through, limit=limits.PROOF_EVENTS_MAX)
            proven = proof.take(rows, bytes_max=limits.PAGE_BYTES_MAX)
            links = _links(transaction, session_id, after=first, through=proof.sequence)
        if not proven.events:
            break
        yield ProvenPage(proven=proven, links=links)
    proof.finish()


def rehash(transaction: Transaction, session_id: str, *, through: int) -> bool:
    """Whether the stored events 1 to `through` are, byte for byte, the ones that their chain was made of.

    Runs inside the caller's transaction and keeps one event in memory at a time; 1 GB takes about a second.
    """
    chain = digests.first_chain(session_id)
    expected = 1
    for row in _rows(transaction, session_id, after=0, through=through, limit=-1):
        sequence, event_id, turn_id, position, size, kind, _, payload, record, occurred, created, stored = row
        chain = digests.next_chain(
            chain, sequence, event_id, turn_id, position, size, kind, record, occurred, created, payload
        )
        if sequence != expected or chain != stored:
            return False
        expected += 1
    return expected == through + 1


def _rows(transaction: Transaction, session_id: str, *, after: int, through: int, limit: int) -> Iterator[EventRow]:
    """The stored rows after a sequence, as SQLite finds them. Raises: Corrupt for text that is none any more."""
    place: dict[str, Value] = {"session_id": session_id, "after": after, "through": through, "limit": limit}
    try:
        yield from cast("Iterator[EventRow]", transaction.iterate(SQL["page"], place))
    except UnicodeDecodeError as error:
        raise Corrupt(f"Session {session_id}: an event after {after} holds text that is not UTF-8: {error}") from None


def _links(transaction: Transaction, session_id: str, *, after: int, through: int) -> dict[int, list[Link]]:
    found: dict[int, list[Link]] = {}
    place: dict[str, Value] = {"session_id": session_id, "after": after, "through": through}
    for sequence, ordinal, sha256, kind in transaction.iterate(SQL["links"], place):
        link = (cast(int, ordinal), cast(str, sha256), cast(str, kind))
        found.setdefault(cast(int, sequence), []).append(link)
    return found
