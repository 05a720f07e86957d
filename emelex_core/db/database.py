"""The openers of transactions: `read()` and `write()` (house habit 5).

Three smaller ways stand beside them: `try_write` for destructors, `pragma` to read a setting, and `upkeep` for what
SQLite runs outside transactions only.

The module owns these invariants:

- A write begins IMMEDIATE, so that it never meets BUSY_SNAPSHOT half way.
- One thread at a time uses a Database's connection; a second thread that works at length opens its own (`sibling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import apsw

from emelex_core import limits
from emelex_core.clock import touched_at
from emelex_core.db import schema
from emelex_core.db.access import Access, Span
from emelex_core.db.connection import Connection, connect
from emelex_core.db.transaction import Conflict, Row, Transaction, Value
from emelex_core.errors import EmelexError, StorageReadOnly
from emelex_core.owners import Owners

__all__ = ["Conflict", "Database", "Row", "Transaction", "Value"]


class Database:
    """One open database file: `read()`, `write()`, and where those cannot serve, `try_write`, `pragma` and `upkeep`."""

    def __init__(self, path: Path, *, read_only: bool = False, owners: Owners | None = None) -> None:
        """Open an existing, current database. Raises: Refused, NewerSchema, Corrupt, Storage."""
        self.path = path
        self.read_only = read_only
        self.owners = Owners(path, read_only=read_only) if owners is None else owners
        self._access = Access(path, self._connect)

    def sibling(self) -> Database:
        """Open another connection to the same file and the same owner, for a thread of its own."""
        return Database(self.path, read_only=self.read_only, owners=self.owners)

    def read(self) -> AbstractContextManager[Transaction]:
        """A consistent view. Keep it short: a held view keeps the write-ahead log from shrinking. Raises: Storage."""
        return Span(self._access, writes=False, wait_ms=limits.BUSY_WAIT_MS)

    def write(self, *, wait_ms: int = limits.BUSY_WAIT_MS) -> AbstractContextManager[Transaction]:
        """One atomic change. `wait_ms` bounds the wait for the write lock.

        Raises: StorageBusy, StorageFull, StorageReadOnly, Storage; and whatever the block raises, after a rollback.
        """
        if self.read_only:
            raise StorageReadOnly(f"{self.path} was opened for reading only")
        return Span(self._access, writes=True, wait_ms=wait_ms)

    def try_write(self, statement: str, parameters: Mapping[str, Value]) -> bool:
        """Run one statement if that takes no waiting at all; return whether it was done. For destructors: never raises.

        Gives up when this thread is inside a transaction, when another uses the connection, or when the file is locked.
        """
        access = self._access
        if not access.try_enter():
            return False
        try:
            access.connection.check_process()
            access.begin(writes=True, wait_ms=limits.BUSY_WAIT_DROP_MS).run(statement, parameters)
            access.commit(writes=True)
        except (EmelexError, apsw.Error, RuntimeError):
            access.give_up()
            return False
        else:
            return True
        finally:
            access.leave()

    def pragma(self, name: str) -> Value:
        """Read one pragma, for status, waking up and tests. Raises: Storage, StorageBusy."""
        with self._access.exclusive() as connection:
            connection.wait_at_most(limits.BUSY_WAIT_MS)
            value: Value = connection.raw.pragma(name)
            return value

    def upkeep(self, statement: str, *, wait_ms: int = limits.BUSY_WAIT_MS) -> list[Row]:
        """Run one statement that cannot stand in a transaction: a checkpoint, VACUUM, PRAGMA optimize.

        Raises: StorageBusy after `wait_ms`, StorageFull, StorageReadOnly, Storage.
        """
        if self.read_only:
            raise StorageReadOnly(f"{self.path} was opened for reading only")
        with self._access.exclusive() as connection:
            if connection.has_moved():
                raise self._access.moved()
            connection.wait_at_most(wait_ms)
            return list(connection.raw.execute(statement))

    @property
    def sqlite_version(self) -> str:
        """The version of the SQLite library that runs."""
        return apsw.sqlite_lib_version()

    def close(self) -> None:
        """Close the connection; a second call does nothing. The owner's byte is its store's to give back."""
        self._access.connection.close()

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
