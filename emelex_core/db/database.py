"""The openers of transactions: `read()` and `write()` (house habit 5).

Three smaller ways stand beside them: `try_write` for destructors, `pragma` to read a setting, and `upkeep` for what
SQLite runs outside transactions only.

The module owns these invariants:

- A write begins IMMEDIATE, so that it never meets BUSY_SNAPSHOT half way.
- The file is still the one that was opened, asked at the start of each transaction and before COMMIT: SQLite itself
  reads and writes a deleted or replaced file without a word.
- Nesting raises. The first error survives the rollback. After an input/output error the connection is not used again.
- One thread at a time uses a Database's connection; a second thread that works at length opens its own (`sibling`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import apsw

from emelex_core import limits
from emelex_core.clock import touched_at
from emelex_core.db import schema
from emelex_core.db.connection import Connection, connect
from emelex_core.db.translate import translate
from emelex_core.errors import Corrupt, EmelexError, Invalid, Storage, StorageReadOnly
from emelex_core.owners import Owners

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")


class Conflict(Corrupt):
    """A statement would break a uniqueness rule. Who can tell whose fault it is says so; else it is corruption."""


class Transaction:
    """An open transaction; it lives as long as its `with` block.

    Every statement raises Invalid for a value that cannot be stored: a lone surrogate, or an integer beyond 64 bits.
    """

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw

    def all(self, statement: str, parameters: Mapping[str, Value] | None = None) -> list[Row]:
        """Run a statement and return all its rows."""
        return list(_storable(self._raw.execute, statement, parameters or {}))

    def one(self, statement: str, parameters: Mapping[str, Value] | None = None) -> Row | None:
        """Run a statement and return its first row, or None."""
        row: Row
        for row in _storable(self._raw.execute, statement, parameters or {}):
            return row
        return None

    def iterate(self, statement: str, parameters: Mapping[str, Value] | None = None) -> Iterator[Row]:
        """Run a statement and yield its rows as SQLite finds them."""
        return iter(_storable(self._raw.execute, statement, parameters or {}))

    def run(self, statement: str, parameters: Mapping[str, Value] | None = None) -> int:
        """Run a statement for its effect and return how many rows it changed."""
        _storable(self._raw.execute, statement, parameters or {})
        return self._raw.changes()

    def run_many(self, statement: str, rows: Iterable[Mapping[str, Value]]) -> None:
        """Run a statement once a parameter set. Raises: Conflict when a row is not unique."""
        _storable(self._raw.executemany, statement, rows)

    def copy_into(
        self, target: apsw.Connection, *, pages_per_step: int, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy the state that this transaction sees, page by page; `progress` is told pages done, and of how many."""
        with target.backup("main", self._raw, "main") as backup:
            while not backup.done:
                backup.step(pages_per_step)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)


class Database:
    """One open database file: `read()`, `write()`, and where those cannot serve, `try_write`, `pragma` and `upkeep`."""

    def __init__(self, path: Path, *, read_only: bool = False, owners: Owners | None = None) -> None:
        """Open an existing, current database. Raises: Refused, NewerSchema, Corrupt, Storage."""
        self.path = path
        self.read_only = read_only
        self._lock = threading.Lock()
        self._holder: int | None = None
        self.owners = Owners(path, read_only=read_only) if owners is None else owners
        self._suspect = False
        self._connection = self._connect()

    def sibling(self) -> Database:
        """Open another connection to the same file and the same owner, for a thread of its own."""
        return Database(self.path, read_only=self.read_only, owners=self.owners)

    @contextmanager
    def read(self) -> Generator[Transaction]:
        """A consistent view. Keep it short: a held view keeps the write-ahead log from shrinking. Raises: Storage."""
        with self._exclusive(), self._span("BEGIN", limits.BUSY_WAIT_MS) as transaction:
            if self._connection.has_moved():
                raise self._moved()
            yield transaction
            self._connection.raw.execute("COMMIT")

    @contextmanager
    def write(self, *, wait_ms: int = limits.BUSY_WAIT_MS) -> Generator[Transaction]:
        """One atomic change. `wait_ms` bounds the wait for the write lock.

        Raises: StorageBusy, StorageFull, StorageReadOnly, Storage; and whatever the block raises, after a rollback.
        """
        if self.read_only:
            raise StorageReadOnly(f"{self.path} was opened for reading only")
        with self._exclusive(), self._span("BEGIN IMMEDIATE", wait_ms) as transaction:
            yield transaction
            if self._connection.has_moved():
                raise self._moved()
            self._connection.raw.execute("COMMIT")

    def try_write(self, statement: str, parameters: Mapping[str, Value]) -> bool:
        """Run one statement if that takes no waiting at all; return whether it was done. For destructors: never raises.

        Gives up when this thread is inside a transaction, when another uses the connection, or when the file is locked.
        """
        if self._holder == threading.get_ident() or not self._lock.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        try:
            with self._span("BEGIN IMMEDIATE", limits.BUSY_WAIT_DROP_MS) as transaction:
                transaction.run(statement, parameters)
                if self._connection.has_moved():
                    raise self._moved()
                self._connection.raw.execute("COMMIT")
        except (EmelexError, RuntimeError):
            return False
        else:
            return True
        finally:
            self._holder = None
            self._lock.release()

    def pragma(self, name: str) -> Value:
        """Read one pragma, for status, waking up and tests. Raises: Storage, StorageBusy."""
        with self._exclusive():
            connection = self._trusted_connection()
            connection.wait_at_most(limits.BUSY_WAIT_MS)
            try:
                value: Value = connection.raw.pragma(name)
            except apsw.ConnectionClosedError:
                raise Storage(f"{self.path} is closed") from None
            except apsw.Error as error:
                self._suspect = self._suspect or isinstance(error, apsw.IOError)
                raise translate(error, self.path) from error
            return value

    def upkeep(self, statement: str, *, wait_ms: int = limits.BUSY_WAIT_MS) -> list[Row]:
        """Run one statement that cannot stand in a transaction: a checkpoint, VACUUM, PRAGMA optimize.

        Raises: StorageBusy after `wait_ms`, StorageFull, StorageReadOnly, Storage.
        """
        if self.read_only:
            raise StorageReadOnly(f"{self.path} was opened for reading only")
        with self._exclusive():
            connection = self._trusted_connection()
            try:
                if connection.has_moved():
                    raise self._moved()
                connection.wait_at_most(wait_ms)
                return list(connection.raw.execute(statement))
            except apsw.Error as error:
                self._suspect = self._suspect or isinstance(error, apsw.IOError)
                raise translate(error, self.path) from error

    @property
    def sqlite_version(self) -> str:
        """The version of the SQLite library that runs."""
        return apsw.sqlite_lib_version()

    def close(self) -> None:
        """Close the connection; a second call does nothing. The owner's byte is its store's to give back."""
        self._connection.close()

    def _owner_alive(self, *arguments: object) -> bool:
        """The SQL function `owner_alive`: a claim asks it in the statement that takes a lease over."""
        (slot,) = arguments
        return isinstance(slot, int) and self.owners.alive(slot)

    @staticmethod
    def _touched_at(*arguments: object) -> int:
        """The SQL function `touched_at`."""
        before, now = arguments
        return touched_at(cast(int, before), cast(int, now))

    def _connect(self) -> Connection:
        connection = connect(self.path, read_only=self.read_only, guard=schema.require_current)
        connection.raw.create_scalar_function("owner_alive", self._owner_alive, 1)
        connection.raw.create_scalar_function("touched_at", self._touched_at, 2, deterministic=True)
        return connection

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        # Before the lock: in a forked child a thread that does not exist there may hold it.
        self._connection.check_process()
        me = threading.get_ident()
        if self._holder == me:
            raise RuntimeError("transactions do not nest: finish the open one first")
        with self._lock:
            self._holder = me
            try:
                yield
            finally:
                self._holder = None

    @contextmanager
    def _span(self, begin: str, wait_ms: int) -> Generator[Transaction]:
        connection = self._trusted_connection()
        try:
            connection.wait_at_most(wait_ms)
            connection.raw.execute(begin)
            try:
                connection.wait_at_most(limits.BUSY_WAIT_MS)
                yield Transaction(connection.raw)
            except BaseException:
                self._roll_back()
                raise
        except apsw.ConnectionClosedError:
            raise Storage(f"{self.path} is closed") from None
        except apsw.Error as error:
            self._suspect = self._suspect or isinstance(error, apsw.IOError)
            raise translate(error, self.path) from error

    def _trusted_connection(self) -> Connection:
        """The connection, a new one after an input/output error: what a failed sync left in caches is not used."""
        self._connection.check_process()
        if self._suspect:
            self._connection.close()
            self._connection = self._connect()
            self._suspect = False
        return self._connection

    def _roll_back(self) -> None:
        """Roll back so that the first error survives; a failed COMMIT can leave the transaction open."""
        raw = self._connection.raw
        try:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
        except apsw.Error:
            # The connection is beyond use; the error that led here is the one to tell.
            self._suspect = True

    def _moved(self) -> EmelexError:
        return Storage(
            f"{self.path} was deleted, renamed or replaced while it was open; nothing was written",
            hint="put the file back, or start the program again",
        )


def _storable(call: Callable[[str, T], apsw.Cursor], statement: str, values: T) -> apsw.Cursor:
    """Call SQLite; what Python cannot hand over to it is the caller's mistake, told as such."""
    try:
        return call(statement, values)
    except UnicodeEncodeError as error:
        raise Invalid(f"text with a lone surrogate at character {error.start} cannot be stored") from None
    except OverflowError:
        raise Invalid("an integer beyond 64 bits cannot be stored") from None
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_UNIQUE:
            raise Conflict(f"a stored uniqueness rule would be broken: {error}") from error
        raise
