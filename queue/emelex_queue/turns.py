"""Whose turn it is: compaction first, then the kinds in turn after each claimed job (behaviour 164)."""

from __future__ import annotations

from collections.abc import Iterable

from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims, idle
from emelex_queue.lease import JobLease


class Turns:
    """One worker's claims through one connection. Not for two threads at once."""

    def __init__(self, database: Database, *, clock: Clock, kinds: Iterable[JobKind] = JobKind) -> None:
        self._database = database
        self._clock = clock
        self._kinds = list(kinds)
        self._next = JobKind.COMPACTION

    def has_claimable(self) -> bool:
        """Whether a claim now would find a job. Writes nothing. Raises: Storage."""
        return any(idle.has_claimable(self._database, kind, clock=self._clock) for kind in self._kinds)

    def claim(self) -> JobLease | None:
        """Claim the oldest runnable job of the kind whose turn it is, else of another. Raises: Storage."""
        for kind in sorted(self._kinds, key=lambda kind: kind is not self._next):
            if not idle.has_claimable(self._database, kind, clock=self._clock):
                continue
            lease = claims.claim(self._database, kind, clock=self._clock)
            if lease is not None:
                self._next = JobKind.DISTILLATION if kind is JobKind.COMPACTION else JobKind.COMPACTION
                return lease
        return None
