"""Waking up on commits of others: PRAGMA data_version, which costs a few microseconds a look (measured.md).

The number changes when another connection has committed since this connection's last look. It never changes by commits
of this connection itself: whoever wrote looks again on its own account.
"""

from __future__ import annotations

from typing import Final

from emelex_core.db.database import Database, Value

POLL_SECONDS: Final = 0.02
"""At this rate a commit is seen within 25 ms, for well under one per cent of a core a process."""


class CommitWatch:
    """Sees commits that other connections make."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: Value = None

    def changed(self) -> bool:
        """Whether anybody else has committed since the last look; the first look says yes. Raises: Storage."""
        version = self._database.pragma("data_version")
        changed = version != self._seen
        self._seen = version
        return changed
