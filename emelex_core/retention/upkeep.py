"""The upkeep of the database file: statistics, free pages, the write-ahead log (behaviour 153).

The module owns these invariants:

- Nothing here waits long for others: a reader that is in the way is told of, and the next run tries again.
- A whole VACUUM holds about as much memory as the database has bytes (temp_store is memory), so that only a small one
  gets it; a large one gives its free pages back step by step, others committing in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Database
from emelex_core.db.statements import load
from emelex_core.errors import Storage, StorageBusy
from emelex_core.retention.records import FileReport

SQL: Final = load("emelex_core", "retention")
_SHORT_WAIT_MS: Final = 250
_VACUUM_WAIT_MS: Final = 2_000


def tend(database: Database, *, vacuum: bool, pages_max: int = limits.MAINTAIN_ROWS_MAX) -> FileReport:
    """Refresh statistics, give free pages back (all of them with `vacuum`, else a bounded number), truncate the log.

    Raises: StorageFull, StorageReadOnly, Storage; never StorageBusy.
    """
    before, free_before = _pages(database)
    optimized = _optimize(database)
    kind = _vacuum(database, pages_max=None if vacuum else pages_max, whole=vacuum)
    wal_busy = _truncate(database)
    after, free_after = _pages(database)
    page_bytes = cast(int, database.pragma("page_size"))
    return FileReport(
        bytes_before=before * page_bytes,
        bytes_after=after * page_bytes,
        pages_freed=max(0, free_before - free_after),
        free_pages=free_after,
        wal_bytes=log_bytes(database.path),
        wal_busy=wal_busy,
        optimized=optimized,
        vacuum=kind,
    )


def log_bytes(database: Path) -> int:
    """The size of the write-ahead log; 0 when there is none. Raises: Storage."""
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Storage(f"cannot look at the write-ahead log of {database}: {error.strerror}") from error


def _optimize(database: Database) -> bool:
    try:
        database.upkeep(SQL["optimize"], wait_ms=_SHORT_WAIT_MS)
    except StorageBusy:
        return False
    return True


def _vacuum(database: Database, *, pages_max: int | None, whole: bool) -> str:
    """Give free pages back; say how: none, incremental, whole, or busy."""
    pages, free = _pages(database)
    if whole and pages * cast(int, database.pragma("page_size")) <= limits.VACUUM_BYTES_MAX:
        try:
            database.upkeep(SQL["rewrite"], wait_ms=_VACUUM_WAIT_MS)
        except StorageBusy:
            return "busy"
        return "whole"
    wanted = free if pages_max is None else min(free, pages_max)
    given = 0
    while given < wanted:
        try:
            database.upkeep(SQL["give_back_pages"], wait_ms=_VACUUM_WAIT_MS)
        except StorageBusy:
            return "busy"
        _, left = _pages(database)
        if left >= free - given:
            break
        given = free - left
    return "incremental" if given else "none"


def _truncate(database: Database) -> bool:
    """Move the log into the file and cut it; whether somebody was in the way."""
    try:
        ((busy, _, _),) = database.upkeep(SQL["truncate_log"], wait_ms=_SHORT_WAIT_MS)
    except StorageBusy:
        return True
    return busy != 0


def _pages(database: Database) -> tuple[int, int]:
    """Pages in the file, and how many of them are free."""
    return cast(int, database.pragma("page_count")), cast(int, database.pragma("freelist_count"))
