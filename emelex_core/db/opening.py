"""Making and opening a database file (behaviours 1 to 16). Open is not create (house habit 7).

The module owns these invariants:

- The file is made by us: 0600, O_EXCL, O_NOFOLLOW, then it and its directory are synced before SQLite sees it.
- A plain open never makes a file that is missing.
- What is not exactly as we would have made it is refused, never repaired: the file, its log, its lock files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import apsw

from emelex_core import clock, faults, home
from emelex_core.db import schema
from emelex_core.db.connection import connect, use_wal
from emelex_core.db.database import Database
from emelex_core.db.filesystem import require_local
from emelex_core.db.lock import open_lock
from emelex_core.errors import NotFound, Storage

_COMPANIONS: Final = {
    "-wal": "write-ahead log",
    "-shm": "shared memory file",
    ".open.lock": "lock file",
    ".owners.lock": "owner lock file",
}


def open_database(path: Path, *, create: bool = False, read_only: bool = False) -> Database:
    """Open the database at an absolute, resolved path, migrating an older one of ours.

    Raises: NotFound when it is missing and `create` is off; Storage when its directory is missing; Refused when the
    file, its directory or a file beside it is not private and ours, or one above may be swapped; NewerSchema; Corrupt.
    """
    home.check_way(path.parent)
    if not home.exists(path.parent):
        raise Storage(f"the directory {path.parent} does not exist; nothing was created")
    home.check_directory(path.parent)
    require_local(path.parent)
    if home.exists(path):
        _check_files(path)
        try:
            return Database(path, read_only=read_only)
        except schema.Outdated:
            if read_only:
                raise
    elif not create:
        raise missing(path)
    with open_lock(path):
        if home.exists(path):
            _check_files(path)
        elif create:
            _make_file(path)
        else:
            raise missing(path)
        _migrate(path)
    return Database(path)


def missing(path: Path) -> NotFound:
    """The error of a database that nobody has made yet."""
    return NotFound(f"no database at {path}", hint="`emelex import` or `emelex chat` makes one")


def _check_files(path: Path) -> None:
    home.check_private_file(path, what="database")
    for suffix, what in _COMPANIONS.items():
        companion = path.with_name(path.name + suffix)
        try:
            home.check_private_file(companion, what=what)
        except Storage as error:
            # Most are there only while the database is open. One look decides: they come and go between two.
            if not isinstance(error.__cause__, FileNotFoundError):
                raise


def _make_file(path: Path) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, home.PRIVATE_FILE)
        try:
            os.fchmod(descriptor, home.PRIVATE_FILE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise home.storage_error(error, f"cannot create {path}") from error
    home.sync_directory(path.parent)
    faults.reach("create.file_made")


def _migrate(path: Path) -> None:
    def bring_forward(raw: apsw.Connection) -> None:
        if schema.inspect(raw) == 0:
            raw.pragma("auto_vacuum", "INCREMENTAL")
        raw.pragma("synchronous", "EXTRA")
        # Nothing of a store is ever written outside its own files, the scratch space of a migration included.
        raw.pragma("temp_store", "MEMORY")
        use_wal(raw)
        raw.pragma("foreign_keys", "OFF")
        schema.migrate(raw, now=clock.system_clock())

    connect(path, read_only=False, guard=bring_forward).close()
