"""One planner at a time: measuring a long Session takes seconds, and doing it twice at once helps nobody.

The lock is a flock on a never-unlinked file beside the database, so that it holds across pools and dies with its
holder. Planning twice would do no harm (publishing is idempotent); this only saves the work.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from emelex_core.home import open_private, try_lock


class PlanningLock:
    """This process's hold on the planning lock of one database. Open it after the fork."""

    def __init__(self, database: Path) -> None:
        """Raises: Refused for a file that is not private and ours, Storage."""
        self._path = database.with_name(database.name + ".planning.lock")
        self._descriptor = open_private(self._path, what="planning lock file")

    @contextmanager
    def attempt(self) -> Generator[bool]:
        """Hold the lock for a block, if nobody else does: the value says whether it is held. Waits for nobody.

        Raises: Refused where the file system cannot lock.
        """
        if not try_lock(self._descriptor, self._path):
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; that gives the lock back too."""
        os.close(self._descriptor)
