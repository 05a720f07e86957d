"""Making what was deleted unreadable: zeroes over freed bytes, merged indexes, a rewritten file, an empty log.

SQLite keeps deleted bytes in free pages, in the gaps of pages and in the log until something overwrites them; a
full-text index keeps deleted words until its parts are merged (seed, "Knowledge and retention"; ADR 0018).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from emelex_core.db.database import Database
from emelex_core.db.statements import load
from emelex_core.retention import upkeep
from emelex_core.retention.records import FileReport

SQL: Final = load("emelex_core", "erasure")


@contextmanager
def overwriting(database: Database) -> Generator[None]:
    """Zero what is deleted inside the block, on this connection. Raises: Storage."""
    database.upkeep(SQL["overwrite_deleted"])
    try:
        yield
    finally:
        database.upkeep(SQL["spare_deleted"])


def finish(database: Database) -> FileReport:
    """Merge the indexes, rewrite the file and empty the log. Raises: Storage."""
    merge_indexes(database)
    return upkeep.tend(database, vacuum=True)


def merge_indexes(database: Database) -> None:
    """Drop deleted words from the indexes; costs nothing where none were deleted. Raises: Storage."""
    with database.write() as transaction:
        transaction.run(SQL["merge_knowledge_index"])
        transaction.run(SQL["merge_transcript_index"])


def is_clean(report: FileReport) -> bool:
    """Whether nothing of what was deleted can be read in the file or its log any more."""
    return not report.wal_busy and report.vacuum != "busy" and report.free_pages == 0 and report.wal_bytes == 0
