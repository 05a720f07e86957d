"""The database file as a whole: SQLite's own checks, its indexes, and an exact online copy.

Each look is one read transaction: it sees one state and keeps no writer waiting, but the write-ahead log cannot shrink
until it ends (1 GB takes a few seconds).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from emelex_core import home
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.db.translate import translate
from emelex_core.errors import Corrupt, Storage, StorageBusy

SQL: Final = load("emelex_core", "inspection")
_PAGES_PER_STEP: Final = 1_024

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much; what it raises ends the work."""


def integrity_problems(transaction: Transaction) -> list[str]:
    """What SQLite finds wrong with pages, indexes and constraints; at most 100 lines, none for a sound file."""
    found = [str(row[0]) for row in transaction.all(SQL["integrity"])]
    return [] if found == ["ok"] else found


def dangling_references(transaction: Transaction) -> list[str]:
    """Rows whose foreign key leads nowhere, in words."""
    rows = transaction.all(SQL["dangling"])
    return [f"{table!s} row {row!s} refers to a missing row of {parent!s}" for table, row, parent, _ in rows]


def rebuild_indexes(transaction: Transaction) -> None:
    """Make every index anew from its table."""
    transaction.run(SQL["rebuild_indexes"])


def copy_database(database: Database, target: Path, *, progress: Progress | None = None) -> None:
    """Copy one committed state of an open database into a new private file, and sync it.

    Raises: Storage when the target exists or cannot be written; Corrupt.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(target, flags, home.PRIVATE_FILE))
    except OSError as error:
        raise Storage(f"cannot create {target}: {error.strerror}") from error
    try:
        with database.read() as transaction:
            _copy_pages(transaction, target, progress)
    except apsw.Error as error:
        raise translate(error, target) from error
    _sync(target)


def give_up_log(database: Database) -> None:
    """Bring everything into the main file and keep no write-ahead log, so that it can be read where nobody can write.

    Opening it for writing makes a log again. Raises: StorageBusy while another connection is open.
    """
    ((mode,),) = database.upkeep(SQL["give_up_log"])
    if mode != "delete":
        raise StorageBusy(f"somebody else has {database.path} open")


def _copy_pages(transaction: Transaction, target: Path, progress: Progress | None) -> None:
    # A first look pins the state that is copied: writers go on, and the copy never starts again because of them.
    transaction.one(SQL["pin"])
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        # The file is worth nothing before it is whole; it is synced once, then.
        copy.pragma("journal_mode", "off")
        copy.pragma("synchronous", "off")
        transaction.copy_into(copy, pages_per_step=_PAGES_PER_STEP, progress=progress)
        if copy.pragma("integrity_check") != "ok":
            raise Corrupt(f"the copy {target} is not sound")
    finally:
        copy.close()


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Storage(f"cannot sync {path}: {error.strerror}") from error
