"""Databases of other agents, read from a private copy.

The module owns these invariants:

- Nothing is written beside a foreign database: no journal, no WAL, no shared memory, not even when it was left behind
  by a writer that died.
- What is read is one state of it, with what its WAL holds. It is copied first, so that the agent that owns it never
  waits for an import.
- The copy lies in a directory that only this user can read, and goes with the reader.
- Its schema is data: views, triggers and virtual tables are never read, and no function of it runs.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import urllib.parse
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, cast

import apsw

from emelex_core import limits
from emelex_core.db.statements import Statements, parse
from emelex_core.errors import Invalid, Storage, StorageBusy, StorageFull
from emelex_core.imports.files.jsonl import open_unpacked

SQLITE_MAGIC: Final = b"SQLite format 3\0"
CELL_BYTES_MAX: Final = limits.IMPORT_LINE_BYTES_MAX
_COMPANIONS: Final = ("-wal", "-journal")
_WAL_VERSION_OFFSET: Final = 19
_HEADER_BYTES: Final = 100
_COPY_ATTEMPTS_MAX: Final = 5
_BACKUP_PAGES: Final = 4_096
_WAIT_MS: Final = limits.BUSY_WAIT_MS

Row = tuple[Any, ...]


class ForeignStore:
    """One state of a foreign database. `opened` makes one."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._columns: dict[str, frozenset[str]] = {}

    def rows(self, statement: str, parameters: dict[str, Any] | None = None) -> Iterator[Row]:
        """Run a statement and yield its rows. Raises: Invalid for a database that is damaged."""
        try:
            yield from cast("Iterator[Row]", self._connection.execute(statement, parameters or {}))
        except apsw.Error as error:
            raise Invalid(f"{self._path}: the database cannot be read: {error}") from error

    def tables(self) -> dict[str, frozenset[str]]:
        """The ordinary tables, with the names of their columns."""
        if not self._columns:
            for (name,) in self.rows(SCHEMA["tables"]):
                found = self.rows(SCHEMA["columns"], {"table": name})
                self._columns[name] = frozenset(column for (column,) in found)
        return self._columns


def load_foreign(name: str) -> Statements:
    """Read `foreign/<name>.sql`: statements over another program's schema, which ours knows nothing of."""
    path = Path(__file__).with_name("foreign") / f"{name}.sql"
    return Statements(path.name, parse(path.read_text("utf-8"), file=path.name))


SCHEMA: Final = load_foreign("schema")


def is_database(path: Path) -> bool:
    """Whether a file begins like a database. Raises: NotFound, Invalid when it cannot be opened."""
    with open_unpacked(path) as stream:
        return stream.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


@contextlib.contextmanager
def opened(path: Path) -> Generator[ForeignStore]:
    """Copy a foreign database and open the copy.

    Raises: Invalid for a damaged one, StorageBusy for one that is written all the time, Storage where there is no room.
    """
    if path.stat().st_size > limits.IMPORT_FILE_BYTES_MAX:
        raise Invalid(f"{path}: a database of more than {limits.IMPORT_FILE_BYTES_MAX} bytes")
    with _private_directory() as folder:
        copy = folder / "copy.sqlite3"
        try:
            if not _back_up(path, copy):
                _copy_files(path, copy)
            connection = apsw.Connection(str(copy))
        except OSError as error:
            raise Storage(f"{path}: copying it to {folder} failed: {error.strerror or error}") from error
        except apsw.Error as error:
            raise _named(error, path) from error
        try:
            _distrust(connection)
            yield ForeignStore(connection, path)
        finally:
            connection.close()


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Return the tables of a database, without copying it where it can be looked at as it stands. Raises: as `opened`.

    A file without a WAL is its own whole state but for what is being written right now, which does not matter here.
    """
    wal = _beside(path, "-wal")
    if wal.exists() and wal.stat().st_size:
        with opened(path) as store:
            return store.tables()
    place = f"file:{urllib.parse.quote(str(path))}?mode=ro&immutable=1"
    try:
        connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error as error:
        raise _named(error, path) from error
    try:
        _distrust(connection)
        return ForeignStore(connection, path).tables()
    finally:
        connection.close()


@contextlib.contextmanager
def _private_directory() -> Generator[Path]:
    try:
        folder = tempfile.mkdtemp(prefix="emelex-import-")
    except OSError as error:
        raise Storage(f"no directory for a copy of a database can be made: {error.strerror or error}") from error
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _back_up(path: Path, copy: Path) -> bool:
    """Copy through SQLite, which keeps to the locks of a living writer; False where that would write beside the file.

    A database in WAL mode is opened so only while its shared memory stands there, and that is opened for reading.
    """
    with open_unpacked(path) as stream:
        header = stream.read(_HEADER_BYTES)
    if header[_WAL_VERSION_OFFSET : _WAL_VERSION_OFFSET + 1] == b"\x02" and not _beside(path, "-shm").exists():
        return False
    place = f"file:{urllib.parse.quote(str(path))}?mode=ro&readonly_shm=1"
    try:
        source = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        target = apsw.Connection(str(copy))
        try:
            source.set_busy_timeout(_WAIT_MS)
            with target.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(_BACKUP_PAGES)
        finally:
            source.close()
            target.close()
    except (apsw.ReadOnlyError, apsw.CantOpenError):
        # A journal that its writer left behind has to be rolled back, or the shared memory went: in the copy, then.
        copy.unlink(missing_ok=True)
        return False
    return True


def _copy_files(path: Path, copy: Path) -> None:
    """Copy a database that nobody has open, with the WAL or journal that was left behind."""
    for _ in range(_COPY_ATTEMPTS_MAX):
        before = _witness(path)
        shutil.copyfile(path, copy)
        for suffix in _COMPANIONS:
            _beside(copy, suffix).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(_beside(path, suffix), _beside(copy, suffix), follow_symlinks=False)
        if _witness(path) == before:
            return
    raise StorageBusy(
        f"{path}: it was changed while it was copied, {_COPY_ATTEMPTS_MAX} times", hint="stop its writer first"
    )


def _witness(path: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells that a database and its companions were not written: inode, size and time of the last change."""
    found: list[tuple[int, int, int] | None] = []
    for suffix in ("", *_COMPANIONS):
        try:
            status = _beside(path, suffix).lstat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _distrust(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _named(error: apsw.Error, path: Path) -> Invalid | Storage:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StorageBusy(f"{path}: another process holds it", hint="try again when its agent is idle")
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{path}: there is no room for a copy of it")
    if isinstance(error, apsw.IOError):
        return Storage(f"{path}: copying it failed: {error}")
    return Invalid(f"{path}: the database cannot be read: {error}")
