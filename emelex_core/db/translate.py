"""One translation of SQLite's failures into the error tree, each with the file and the cause (reports, K7)."""

from __future__ import annotations

from pathlib import Path

import apsw

from emelex_core.errors import Corrupt, EmelexError, Refused, Storage, StorageBusy, StorageFull, StorageReadOnly


def translate(error: apsw.Error, path: Path) -> EmelexError:
    """Return the member of the tree that an apsw exception stands for. The caller raises it `from` the original."""
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StorageBusy(
            f"{path} is locked by another process for longer than the wait allows", hint="try again later"
        )
    if isinstance(error, apsw.FullError):
        return StorageFull(f"no space left for {path}", hint="free space, then run the command again")
    if isinstance(error, apsw.ReadOnlyError):
        if extended == apsw.SQLITE_READONLY_DBMOVED:
            return Storage(f"{path} was deleted, renamed or replaced while it was open; nothing was written")
        return StorageReadOnly(f"{path} cannot be written: the file or its file system is read-only")
    if isinstance(error, apsw.CantOpenError):
        # NOFOLLOW met a link, in the file's name or in its directory's.
        if extended == apsw.SQLITE_CANTOPEN_SYMLINK:
            return Refused(f"{path} is a symbolic link, or its directory is")
        return Storage(f"cannot open {path}: {error}")
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return Corrupt(f"{path} is damaged or no database: {error}", hint="see `emelex memory check`")
    if isinstance(error, apsw.PermissionsError):
        return Refused(f"{path}: the system denies access")
    if isinstance(error, apsw.IOError):
        if extended == apsw.SQLITE_IOERR_SHMSIZE:
            return StorageFull(f"no space left beside {path} for the memory that its readers share")
        return Storage(f"input/output error on {path}: {error} (extended code {extended})")
    if isinstance(error, (apsw.SQLError, apsw.SchemaChangeError)):
        return Corrupt(f"{path} does not have the schema that it says: {error}")
    if isinstance(error, apsw.ConstraintError):
        return Corrupt(f"{path}: a stored invariant would be broken: {error}")
    return Storage(f"{path}: {type(error).__name__}: {error}")
