"""Finding events by words, in all transcripts and in what a Summary has replaced (issue 8, item 10; ADR 0019).

The module owns these invariants:

- Appending writes nothing here: the index is brought up to date when somebody searches, some events under each lock.
- The index holds words and no text. It is derived: rows go with their events by trigger, and it can be made anew.
- What is not indexed yet is counted and said, so that nothing looks complete that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import orjson

from emelex_core import limits
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import MediaPart, ToolCallPart, decode_payload
from emelex_core.sessions import words

SQL: Final = load("emelex_core", "transcript_search")

Place = tuple[float, int]
"""Where a hit stands: its rank, the best lowest, and its row, negated: the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptHit:
    """An event that was found. `said_at` is when its source says it was, else when it was stored.

    `snippet` is one line around the first word; `place` is the cursor behind the hit.
    """

    session_id: str
    session_title: str
    workspace_path: str
    event_id: str
    sequence: int
    kind: str
    said_at: int
    covered: bool
    snippet: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptHits:
    """One page. `unindexed` events were not looked at: the index is behind them and could not be written."""

    hits: tuple[TranscriptHit, ...]
    unindexed: int


def search(
    transaction: Transaction,
    text: str,
    *,
    workspace_id: int | None,
    session_id: str | None = None,
    limit: int,
    after: Place | None = None,
) -> TranscriptHits:
    """Events that hold every word, behind a place. Raises: Invalid for the words or the limit."""
    if not 1 <= limit <= limits.PAGE_EVENTS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_EVENTS_MAX}")
    query = words.parse(text)
    scope: dict[str, Value] = {"workspace_id": workspace_id, "session_id": session_id}
    rank, row = (None, None) if after is None else after
    place: dict[str, Value] = {**scope, "rank": rank, "row": row}
    if query.match is None:
        found = transaction.iterate(SQL["scan"], {**place, "needle": _needle(query)})
        unindexed = 0
    else:
        found = transaction.iterate(SQL["search"], {**place, "match": query.match})
        unindexed = behind(transaction)
    hits: list[TranscriptHit] = []
    for hit in _hits(transaction, found, query):
        hits.append(hit)
        if len(hits) == limit:
            break
    return TranscriptHits(hits=tuple(hits), unindexed=unindexed)


def behind(transaction: Transaction) -> int:
    """How many events the index does not know yet."""
    row = transaction.one(SQL["behind"])
    return 0 if row is None else cast(int, row[0])


def catch_up(database: Database, *, stopped: Callable[[], bool] = lambda: False) -> int:
    """Index what came since; return how many events. Raises: Storage, StorageReadOnly."""
    count = 0
    while not stopped():
        with database.write() as transaction:
            done = _index_batch(transaction)
        count += done
        if not done:
            return count
    return count


def rebuild(database: Database) -> int:
    """Make the index anew from the events; return how many. Raises: Storage."""
    with database.write() as transaction:
        transaction.run(SQL["clear"])
        transaction.run(SQL["advance"], {"row": 0})
    return catch_up(database)


def index_again(transaction: Transaction, row: int, payload: bytes) -> None:
    """Replace an event's words after its payload was changed, where the index has them."""
    if transaction.run(SQL["drop"], {"row": row}):
        transaction.run(SQL["add"], {"row": row, "text": text_of(payload)})


def text_of(payload: bytes) -> str:
    """Everything of an event that somebody may look for: words, calls with their arguments, results."""
    try:
        parts = decode_payload(payload, what="event").parts
    except Corrupt:
        # A check names it; a search has no words for it.
        return ""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            texts += [part.name, orjson.dumps(part.arguments).decode()]
        elif not isinstance(part, MediaPart):
            texts.append(part.text)
    return "\n".join(texts)


def _index_batch(transaction: Transaction) -> int:
    through = cast(int, (transaction.one(SQL["through"]) or (0,))[0])
    count = size = 0
    rows: list[dict[str, Value]] = []
    for row, payload in transaction.iterate(SQL["to_index"], {"through": through, "limit": limits.INDEX_BATCH_EVENTS}):
        size += len(cast(bytes, payload))
        if rows and size > limits.INDEX_BATCH_BYTES:
            break
        rows.append({"row": row, "text": text_of(cast(bytes, payload))})
    transaction.run_many(SQL["add"], rows)
    count = len(rows)
    if count:
        transaction.run(SQL["advance"], {"row": rows[-1]["row"]})
    return count


def _hits(transaction: Transaction, found: Iterator[Row], query: words.Query) -> Iterator[TranscriptHit]:
    for row, rank in found:
        event = transaction.one(SQL["event"], {"row": row})
        if event is None:
            continue
        text = text_of(cast(bytes, event[7]))
        if query.holds(text) if query.match is None else query.proves(text):
            yield TranscriptHit(
                session_id=cast(str, event[0]),
                session_title=cast(str, event[1]),
                workspace_path=cast(str, event[2]),
                event_id=cast(str, event[3]),
                sequence=cast(int, event[4]),
                kind=cast(str, event[5]),
                said_at=cast(int, event[6]),
                covered=bool(event[8]),
                snippet=words.snippet(text, query),
                place=(cast(float, rank), -cast(int, row)),
            )


def _needle(query: words.Query) -> bytes:
    """The first word as it stands in a payload, which is JSON."""
    return orjson.dumps(query.words[0])[1:-1]
