"""Removing the files of assets whose catalog rows have gone.

The rows go first, in a committed transaction of their own: a crash then leaves files without rows, which a later pass
finds, and never a row without its file. The files follow, some at a time, under the write lock, each only while its
digest is still not cataloged: a publication of the same bytes either came before, and keeps the file, or comes after,
and links its own. A file that cannot go gets its row back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, cast

from emelex_core import faults, limits
from emelex_core.assets import files
from emelex_core.assets.records import Problems, RemovedRow
from emelex_core.db.database import Database, Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import EmelexError

SQL: Final = load("emelex_core", "assets")
Item = TypeVar("Item")
_DIGEST: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(slots=True, kw_only=True)
class Removed:
    """What was removed so far: catalog rows with their bytes, those without a file among them, and other files."""

    rows: int = 0
    bytes: int = 0
    missing: int = 0
    orphans: int = 0
    problems: Problems = field(default_factory=Problems)


def removed_row(sha256: str, row: Row) -> RemovedRow:
    """The record of a row that a DELETE returned as (size, created_at, touched_at)."""
    size, created_at, touched_at = (cast(int, value) for value in row)
    return RemovedRow(sha256=sha256, size=size, created_at=created_at, touched_at=touched_at)


def remove_files(database: Database, directory: Path, rows: Sequence[RemovedRow], tally: Removed) -> None:
    """Remove the files of rows that are gone from the catalog, and count. Raises: Storage for the database."""
    for batch in _batches(rows):
        with database.write() as transaction:
            for row in batch:
                _remove_row_file(transaction, directory, row, tally)
            faults.reach("collect.file_removed")


def remove_orphans(database: Database, directory: Path, names: Sequence[str], tally: Removed) -> None:
    """Remove files that no row names, and count. Raises: Storage for the database."""
    for batch in _batches(names):
        with database.write() as transaction:
            for name in batch:
                if _is_cataloged(transaction, name):
                    continue
                reason = _unlink(directory / name, size=None)
                if reason is None:
                    tally.orphans += 1
                elif reason:
                    tally.problems.add(name, reason)


def journalled(transaction: Transaction) -> set[str]:
    """Every digest that turns under way have put down, in whatever field (behaviour 108)."""
    found: set[str] = set()
    for row in transaction.iterate(SQL["journals"]):
        found.update(match.decode() for match in _DIGEST.findall(cast(bytes, row[0])))
    return found


def _remove_row_file(transaction: Transaction, directory: Path, row: RemovedRow, tally: Removed) -> None:
    if _is_cataloged(transaction, row.sha256):
        # Stored again in the meantime: the file is wanted.
        return
    reason = _unlink(directory / row.sha256, size=row.size)
    if reason:
        tally.problems.add(row.sha256, reason)
        transaction.run(SQL["put_back"], asdict(row))
        return
    tally.rows += 1
    tally.bytes += row.size
    tally.missing += reason is not None


def _unlink(path: Path, *, size: int | None) -> str | None:
    """Remove a file that is one of ours; return why it stays, empty when there was none, None when it is gone."""
    try:
        reason = files.fault(path, size=size)
        if reason is None:
            path.unlink()
    except (files.Missing, FileNotFoundError):
        return ""
    except OSError as error:
        return f"it cannot be removed: {error.strerror}"
    except EmelexError as error:
        return error.message
    return reason


def _is_cataloged(transaction: Transaction, sha256: str) -> bool:
    return transaction.one(SQL["size"], {"sha256": sha256}) is not None


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(islice(source, limits.COLLECT_FILES_PER_LOCK_MAX)):
        yield batch
