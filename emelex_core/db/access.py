"""One connection that one thread at a time uses, and the steps of a transaction on it.

The module owns these invariants:

- Nesting raises. The first error survives the rollback. After an input/output error the connection is not used again.
- The file is still the one that was opened, asked at the start of each view and before each COMMIT: SQLite itself reads
  and writes a deleted or replaced file without a word.
- What SQLite fails with leaves here as a member of the error tree.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from emelex_core.db.connection import Connection
from emelex_core.db.transaction import Transaction
from emelex_core.db.translate import translate
from emelex_core.errors import EmelexError, Storage


class Access:
    """A connection behind a lock. Whoever enters leaves; between the two the connection is the thread's own."""

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        """Connect; `connect` is called again after an input/output error. Raises: as it does."""
        self.path = path
        self.connection = connect()
        self._connect = connect
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._suspect = False

    def enter(self) -> None:
        """Wait for the connection. Raises: Storage after a fork; RuntimeError in a thread that has it already."""
        # Before the lock: in a forked child a thread that does not exist there may hold it.
        self.connection.check_process()
        me = threading.get_ident()
        if self._holder == me:
            raise RuntimeError("transactions do not nest: finish the open one first")
        self._lock.acquire()
        self._holder = me

    def try_enter(self) -> bool:
        """Take the connection if nobody has it, this thread included; return whether it is ours now."""
        me = threading.get_ident()
        if self._holder == me or not self._lock.acquire(blocking=False):
            return False
        self._holder = me
        return True

    def leave(self) -> None:
        """Let the next one in."""
        self._holder = None
        self._lock.release()

    @contextmanager
    def exclusive(self) -> Generator[Connection]:
        """The connection for what needs no transaction. Raises: as `enter` does, and as `told` says."""
        self.enter()
        try:
            yield self.trusted()
        except apsw.Error as error:
            raise self.told(error) from error
        finally:
            self.leave()

    def begin(self, *, writes: bool, wait_ms: int) -> Transaction:
        """Open a transaction on the connection that was entered; `wait_ms` bounds the wait for the lock."""
        connection = self.trusted() if self._suspect else self.connection
        # The one wait of a transaction: what follows BEGIN IMMEDIATE has the lock, and a view's first look takes it.
        connection.wait_at_most(wait_ms)
        connection.raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        if not writes and connection.has_moved():
            raise self.moved()
        return Transaction(connection.raw)

    def commit(self, *, writes: bool) -> None:
        """Make the transaction durable, if the file is still the one that was opened. Raises: Storage."""
        if writes and self.connection.has_moved():
            raise self.moved()
        self.connection.raw.execute("COMMIT")

    def give_up(self) -> None:
        """Roll back, so that the first error survives; a failed COMMIT can leave the transaction open."""
        raw = self.connection.raw
        try:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
        except apsw.Error:
            # The connection is beyond use; the error that led here is the one to tell.
            self._suspect = True

    def trusted(self) -> Connection:
        """The connection, a new one after an input/output error: what a failed sync left in caches is not used."""
        if self._suspect:
            self.connection.close()
            self.connection = self._connect()
            self._suspect = False
        return self.connection

    def told(self, error: apsw.Error) -> EmelexError:
        """The member of the tree that a failure of SQLite stands for."""
        if isinstance(error, apsw.ConnectionClosedError):
            return Storage(f"{self.path} is closed")
        self._suspect = self._suspect or isinstance(error, apsw.IOError)
        return translate(error, self.path)

    def moved(self) -> EmelexError:
        """The error of a file that is not at its place any more."""
        return Storage(
            f"{self.path} was deleted, renamed or replaced while it was open; nothing was written",
            hint="put the file back, or start the program again",
        )


class Span:
    """A `with` block from BEGIN to COMMIT, or to ROLLBACK with the block's own error.

    Not a generator: every append passes here just after a sync, when caches are cold and a frame costs a microsecond.
    """

    __slots__ = ("_access", "_wait_ms", "_writes")

    def __init__(self, access: Access, *, writes: bool, wait_ms: int) -> None:
        """Nothing is entered before the block is."""
        self._access = access
        self._writes = writes
        self._wait_ms = wait_ms

    def __enter__(self) -> Transaction:
        access = self._access
        access.enter()
        try:
            return access.begin(writes=self._writes, wait_ms=self._wait_ms)
        except BaseException as error:
            self._fail(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        access = self._access
        if error is not None:
            self._fail(error)
            return
        try:
            access.commit(writes=self._writes)
        except BaseException as failure:
            self._fail(failure)
            raise
        access.leave()

    def _fail(self, error: BaseException) -> None:
        """Undo, let the next one in, and tell what is SQLite's as a member of the tree."""
        try:
            self._access.give_up()
        finally:
            self._access.leave()
        if isinstance(error, apsw.Error):
            raise self._access.told(error) from error
