"""Who still needs a snapshot, and the lock under which that question and its consequence are one step.

The module owns these invariants:

- Binding and removing exclude each other across processes: both hold the Home-wide mutation lock, binding through the
  commit of its row, removing through the rename that takes the snapshot away (behaviours 55 and 57).
- Asking creates nothing: without a database nobody needs a snapshot; one that cannot be read is an error (56).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from emelex_core import home
from emelex_core.db.opening import open_database
from emelex_core.db.statements import load
from emelex_core.models import files

SQL: Final = load("emelex_core", "sessions")
LOCK: Final = ".mutation.lock"


class SnapshotReferenceGuard(Protocol):
    """Says whether something outside the models still refers to a snapshot."""

    def is_referenced(self, snapshot_id: str) -> bool:
        """Whether anything does. A digest alone will do: the same bytes under another name are needed too.

        Raises: what keeps the answer from being known; removal then does not happen.
        """
        ...


class MemorySnapshotReferenceGuard:
    """The guard over a memory database: a snapshot is needed while a Session is bound to it."""

    def __init__(self, database: Path) -> None:
        """Name the database; it is opened when it is asked, and only for reading."""
        self._database = database

    def is_referenced(self, snapshot_id: str) -> bool:
        """Whether a Session is bound to the snapshot's bytes. Raises: Storage, Refused, Corrupt, NewerSchema."""
        if not home.exists(self._database):
            return False
        database = open_database(self._database, read_only=True)
        try:
            with database.read() as transaction:
                return transaction.one(SQL["bound_to_snapshot"], {"snapshot_id": snapshot_id}) is not None
        finally:
            database.close()
            database.owners.close()


@contextmanager
def mutation(models: Path) -> Generator[None]:
    """Hold the Home-wide snapshot-mutation lock; the directory of models is made when it is missing.

    Raises: StorageBusy when another holds it for too long; Refused, Storage.
    """
    files.private_directory(models)
    with files.exclusive(models / LOCK):
        yield
