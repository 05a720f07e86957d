"""The connection recipe: one small function a setting, applied in order, then read back (house habit 6).

Sources: SQLite's documentation of each pragma, the seed's list, and measured.md for the order that works here. The
invariants that the module owns:

- Never SQLITE_OPEN_CREATE: we make the file ourselves with mode 0600, so that -wal and -shm inherit it.
- NOFOLLOW always; the caller resolves the Home once and opens the resolved path.
- Waiting for a lock is bounded, by a deadline that each transaction sets.
- A connection that crossed a fork is refused before SQLite sees it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from emelex_core import limits
from emelex_core.db.translate import translate
from emelex_core.errors import EmelexError, Refused, Storage, StorageReadOnly

_WAL_LIMIT_BYTES: Final = 64 * limits.MIB
_CHECKPOINT_PAGES: Final = 2_000
_NO_SHARED_MEMORY: Final = frozenset(
    {apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_WRITE}
)
_SLEEP_SECONDS: Final = (0.0005, 0.0015)
"""A busy handler that sleeps this long between looks noticed a freed lock within 0.9 ms; `busy_timeout` took 30 ms."""


class Connection:
    """One SQLite connection with its recipe applied. Not for two threads at once."""

    def __init__(self, path: Path, *, read_only: bool, guard: Callable[[apsw.Connection], None]) -> None:
        """Open an existing database; `guard` looks at it before the first pragma that could write.

        Raises: members of the error tree, as `translate` maps them and as `guard` raises them.
        """
        self.path = path
        self.read_only = read_only
        self._owner_process = os.getpid()
        self._deadline = 0.0
        self._moved = ctypes.c_int(0)
        self._moved_at = ctypes.addressof(self._moved)
        try:
            try:
                self.raw = self._prepare(_open(path, read_only=read_only), guard)
            except apsw.Error as error:
                if not (read_only and _lacks_shared_memory(error)):
                    raise
                self.raw = self._prepare(_open_immutable(path), guard)
        except apsw.CantOpenError as error:
            if not read_only and path.exists() and not os.access(path.parent, os.W_OK):
                raise StorageReadOnly(f"{path} cannot be written: its directory or file system is read-only") from error
            raise translate(error, path) from error
        except apsw.Error as error:
            raise translate(error, path) from error

    def wait_at_most(self, milliseconds: int) -> None:
        """Bound the next waits for a lock to this long from now."""
        self._deadline = time.monotonic() + milliseconds / 1000

    def check_process(self) -> None:
        """Raise Storage in a process that inherited this connection by fork; SQLite forbids its use there."""
        if os.getpid() != self._owner_process:
            raise Storage("this database connection was opened before a fork; open the store again in the child")

    def has_moved(self) -> bool:
        """Whether the file under this connection was deleted, renamed or replaced (SQLITE_FCNTL_HAS_MOVED, 2–4 µs)."""
        self.raw.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._moved_at)
        return self._moved.value != 0

    def close(self) -> None:
        """Close; a second call does nothing, and a forked child leaves the parent's connection alone.

        Never raises: what a last checkpoint could not move stays in the log, and the next opening reads it there.
        """
        if os.getpid() == self._owner_process:
            with contextlib.suppress(apsw.Error):
                self.raw.close()

    def _prepare(self, raw: apsw.Connection, guard: Callable[[apsw.Connection], None]) -> apsw.Connection:
        try:
            raw.set_busy_handler(self._wait)
            self.wait_at_most(limits.BUSY_WAIT_MS)
            _guarded(raw, self.path, guard)
            _apply_recipe(raw, read_only=self.read_only)
        except BaseException:
            with contextlib.suppress(apsw.Error):
                raw.close()
            raise
        return raw

    def _wait(self, attempt: int) -> bool:
        del attempt
        if time.monotonic() >= self._deadline:
            return False
        time.sleep(random.uniform(*_SLEEP_SECONDS))  # noqa: S311 - jitter, not a secret
        return True


def _open(path: Path, *, read_only: bool) -> apsw.Connection:
    mode = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    return apsw.Connection(str(path), flags=mode | apsw.SQLITE_OPEN_NOFOLLOW)


def _open_immutable(path: Path) -> apsw.Connection:
    """Open where no -shm can be made: nobody can write there, and there must be no log to read; SQLite is told so."""
    if _has_log(path):
        raise Storage(
            f"{path} cannot be read here: its -wal file holds changes, and the file system lets no reader share memory"
        )
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{_escape(str(path))}?immutable=1", flags=flags)


def _lacks_shared_memory(error: apsw.Error) -> bool:
    """Whether a first look failed for want of the -shm file: on a read-only file system, or on a full one."""
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.FullError)):
        return getattr(error, "extendedresult", 0) != apsw.SQLITE_CANTOPEN_SYMLINK
    return getattr(error, "extendedresult", 0) in _NO_SHARED_MEMORY


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _guarded(raw: apsw.Connection, path: Path, guard: Callable[[apsw.Connection], None]) -> None:
    """Let the guard look. What it refuses stays as it is: closing would move a log's changes into the file."""
    keep = _has_log(path)
    if keep:
        _configure(raw, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    guard(raw)
    if keep:
        _configure(raw, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def _escape(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _apply_recipe(raw: apsw.Connection, *, read_only: bool) -> None:
    """Apply every setting in the order that works, then read each back. Raises: Refused naming what did not hold."""
    if not read_only:
        _expect(raw, "synchronous", "EXTRA", 3)
        use_wal(raw)
        _set(raw, "journal_size_limit", _WAL_LIMIT_BYTES)
        _set(raw, "wal_autocheckpoint", _CHECKPOINT_PAGES)
        if sys.platform == "darwin":
            _expect(raw, "fullfsync", "ON", 1)
            _expect(raw, "checkpoint_fullfsync", "ON", 1)
    _expect(raw, "foreign_keys", "ON", 1)
    _expect(raw, "temp_store", "MEMORY", 2)
    _expect(raw, "trusted_schema", "OFF", 0)
    _configure(raw, apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    _configure(raw, apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    _configure(raw, apsw.SQLITE_DBCONFIG_DQS_DDL, 0)


def use_wal(raw: apsw.Connection) -> None:
    """Keep a write-ahead log, so that readers never block the writer. Raises: Refused where the disk cannot."""
    mode = raw.pragma("journal_mode", "wal")
    if mode != "wal":
        raise Refused(
            f"the file system cannot keep a write-ahead log (journal mode stays {mode!r})", hint="use a local one"
        )


def _expect(raw: apsw.Connection, name: str, value: str, reads_as: int) -> None:
    raw.pragma(name, value)
    found = raw.pragma(name)
    if found != reads_as:
        raise Storage(f"SQLite did not accept PRAGMA {name} = {value}: it reads {found!r}")


def _set(raw: apsw.Connection, name: str, value: int) -> None:
    raw.pragma(name, value)
    found = raw.pragma(name)
    if found != value:
        raise Storage(f"SQLite did not accept PRAGMA {name} = {value}: it reads {found!r}")


def _configure(raw: apsw.Connection, option: int, value: int) -> None:
    if raw.config(option, value) != value:
        raise Storage(f"SQLite did not accept database option {option} = {value}")


def connect(path: Path, *, read_only: bool, guard: Callable[[apsw.Connection], None]) -> Connection:
    """Open a connection; a failure leaves nothing open. Raises: members of the error tree."""
    try:
        return Connection(path, read_only=read_only, guard=guard)
    except EmelexError:
        raise
    except OSError as error:
        raise Storage(f"cannot open {path}: {error.strerror}") from error
