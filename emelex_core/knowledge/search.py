"""Finding Knowledge by words, and choosing what a prompt is given (behaviours 146 and 147).

The module owns these invariants:

- Only active entries are found; the index follows their tables by triggers and holds no text of its own.
- A search puts the exact key first, then pins, then by rank; its cursor goes on exactly there.
- Recall drops what is not sure enough before it counts; pins come first and are not exempt. No entry takes more than
  half the budget before the others had their turn, so that a big one starves nobody. Nothing is shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.knowledge import recall as reading
from emelex_core.knowledge.records import Knowledge
from emelex_core.sessions import words

SQL: Final = load("emelex_core", "knowledge_search")
_COLUMNS: Final = 20
"""Those of an entry; behind them stand the place of a hit: group, rank and row."""

Place = tuple[int, float, int]
"""Where a hit stands: 0 for the exact key, 1 for pins, 2 for others; its rank, the best lowest; its row, negated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit:
    """An entry that was found. `place` is the cursor behind it, `snippet` one line around the first word."""

    entry: Knowledge
    place: Place
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a prompt is given, in the order of relevance. `size` is of keys and contents; `left_out` had no room."""

    entries: tuple[Knowledge, ...]
    size: int
    left_out: int


def search(
    transaction: Transaction, text: str, *, workspace_id: int | None, limit: int, after: Place | None = None
) -> list[KnowledgeHit]:
    """Active entries that hold every word, behind a place. Raises: Invalid for the words or the limit."""
    reading.check_limit(limit)
    query = words.parse(text)
    group, rank, row = (None, None, None) if after is None else after
    parameters: dict[str, Value] = {
        "workspace_id": workspace_id,
        "key": query.text,
        "match": words.NOTHING if query.match is None else query.match,
        "group": group,
        "rank": rank,
        "row": row,
    }
    statement = SQL["scan"] if query.match is None else SQL["search"]
    found: list[KnowledgeHit] = []
    size = 0
    for hit in _hits(transaction.iterate(statement, parameters), query):
        size += len(hit.entry.content.encode())
        if found and size > limits.PAGE_BYTES_MAX:
            break
        found.append(hit)
        if len(found) == limit:
            break
    return found


def recall(
    transaction: Transaction,
    *,
    workspace_id: int,
    prompt: str = "",
    entries_max: int = limits.RECALL_ENTRIES,
    budget: int = limits.RECALL_BYTES,
    confidence: float = limits.RECALL_CONFIDENCE,
    measure: Callable[[str], int] | None = None,
) -> Recall:
    """Choose active entries for a prompt: pins, then what shares the most with it, then the newest.

    `budget` is in bytes of key and content, or in what `measure` counts (a model's tokens). Raises: Invalid.
    """
    _check_recall(entries_max, budget, confidence)
    rows = transaction.iterate(
        SQL["recall"],
        {
            "workspace_id": workspace_id,
            "match": words.any_of(prompt),
            "confidence": confidence,
            "limit": limits.RECALL_CANDIDATES_MAX,
        },
    )
    sized = [(entry, (measure or _bytes)(f"{entry.key}\n{entry.content}")) for entry in map(reading.knowledge, rows)]
    taken: set[int] = set()
    size = 0
    for bound in (budget // 2, budget):
        for place, (_, cost) in enumerate(sized):
            if place not in taken and len(taken) < entries_max and cost <= bound and size + cost <= budget:
                taken.add(place)
                size += cost
    return Recall(
        entries=tuple(sized[place][0] for place in sorted(taken)), size=size, left_out=len(sized) - len(taken)
    )


def _hits(rows: Iterator[Row], query: words.Query) -> Iterator[KnowledgeHit]:
    for row in rows:
        entry = reading.knowledge(row[:_COLUMNS])
        place = cast(Place, row[_COLUMNS:])
        text = f"{entry.key}\n{entry.content}"
        if place[0] == 0 or (query.holds(text) if query.match is None else query.proves(text)):
            yield KnowledgeHit(entry=entry, place=place, snippet=words.snippet(entry.content, query))


def _bytes(text: str) -> int:
    return len(text.encode())


def _check_recall(entries_max: int, budget: int, confidence: float) -> None:
    if not 1 <= entries_max <= limits.RECALL_ENTRIES_MAX:
        raise Invalid(f"{entries_max} entries to recall; 1 to {limits.RECALL_ENTRIES_MAX} are accepted")
    if not 1 <= budget <= limits.RECALL_BYTES_MAX:
        raise Invalid(f"a budget of {budget} to recall; 1 to {limits.RECALL_BYTES_MAX} are accepted")
    if not 0 <= confidence <= 1:
        raise Invalid(f"confidence {confidence} is not between 0 and 1")
