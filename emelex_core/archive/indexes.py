"""The search indexes, held against what they were made of. They are derived: a repair makes them anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.sessions import search

KNOWLEDGE: Final = load("emelex_core", "knowledge_search")
TRANSCRIPTS: Final = load("emelex_core", "transcript_search")


def index_faults(transaction: Transaction) -> Iterator[str]:
    """What each index lacks or has too much, in words; what it was not asked to know yet is no fault."""
    for statement, what in (
        (KNOWLEDGE["index_faults"], "the index of Knowledge"),
        (TRANSCRIPTS["index_faults"], "the index of transcripts"),
    ):
        row = transaction.one(statement)
        missing, extra = (0, 0) if row is None else (cast(int, row[0]), cast(int, row[1]))
        if missing or extra:
            yield f"{what} lacks {missing} rows and has {extra} that nothing stands for"


def rebuild_indexes(database: Database) -> None:
    """Make both indexes anew. Raises: Storage."""
    with database.write() as transaction:
        transaction.run(KNOWLEDGE["clear_index"])
        transaction.run(KNOWLEDGE["fill_index"])
    search.rebuild(database)
