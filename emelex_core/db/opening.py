"""Making and opening a database file (behaviours 1 to 16). Open is not create (house habit 7).

The module owns these invariants:

- The file is made by us: 0600, O_EXCL, O_NOFOLLOW, then it and its directory are synced before SQLite sees it.
- A plain open never makes a file that is missing.
- What is not exactly as we would have made it is refused, never repaired.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from emelex_core import clock, faults, home
from emelex_core.db import schema
from emelex_core.db.connection import connect
from emelex_core.db.database import Database
from emelex_core.db.lock import open_lock
from emelex_core.errors import NotFound, Storage


def open_database(path: Path, *, create: bool = False, read_only: bool = False) -> Database:
    """Open the database at an absolute, resolved path, migrating an older one of ours.

    Raises: NotFound when it is missing and `create` is off; Storage when its directory is missing; Refused when the file,
    its directory or its lock sidecar is not private and ours; NewerSchema; Corrupt.
    """
    if not path.parent.is_dir():
        raise Storage(f"the directory {path.parent} does not exist; nothing was created")
    home.check_directory(path.parent)
    if os.path.lexists(path):
        home.check_private_file(path, what="database")
    elif not create:
        raise NotFound(f"no database at {path}", hint="`emelex import` or `emelex chat` makes one")
    if os.path.lexists(path):
        try:
            return Database(path, read_only=read_only)
        except schema.Outdated:
            if read_only:
                raise
    with open_lock(path):
        if not os.path.lexists(path):
            _make_file(path)
        _migrate(path)
    return Database(path)


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
        raise Storage(f"cannot create {path}: {error.strerror}") from error
    home.sync_directory(path.parent)
    faults.reach("create.file_made")


def _migrate(path: Path) -> None:
    def bring_forward(raw: apsw.Connection) -> None:
        if schema.inspect(raw) == 0:
            raw.pragma("auto_vacuum", "INCREMENTAL")
        raw.pragma("synchronous", "EXTRA")
        raw.pragma("journal_mode", "wal")
        raw.pragma("foreign_keys", "OFF")
        schema.migrate(raw, now=clock.system_clock())

    connect(path, read_only=False, guard=bring_forward).close()
