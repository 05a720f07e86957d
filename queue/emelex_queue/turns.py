"""Whose turn it is: compaction first, then the kinds in turn after each claimed job (behaviour 164)."""

from __future__ import annotations

from collections.abc import Iterable

from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims, idle
from emelex_queue.lease import JobLease


class Turns:
    """One worker's claims through one connection, of these kinds and, if one is named, of this Session.

    `hear` is told each loss that a claim counted. Not for two threads at once.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        kinds: Iterable[JobKind] = JobKind,
        session_id: str | None = None,
        hear: claims.Hear = lambda loss: None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._kinds = list(kinds)
        self._session_id = session_id
        self._hear = hear
        self._next = JobKind.COMPACTION

    def has_claimable(self) -> bool:
        """Whether a claim now would find a job. Writes nothing. Raises: Storage."""
        return any(self._is_claimable(kind) for kind in self._kinds)

    def claim(self) -> JobLease | None:
        """Claim the oldest runnable job of the kind whose turn it is, else of another. Raises: Storage."""
        for kind in sorted(self._kinds, key=lambda kind: kind is not self._next):
            if not self._is_claimable(kind):
                continue
            lease = claims.claim(self._database, kind, clock=self._clock, session_id=self._session_id, hear=self._hear)
            if lease is not None:
                self._next = JobKind.DISTILLATION if kind is JobKind.COMPACTION else JobKind.COMPACTION
                return lease
        return None

    def _is_claimable(self, kind: JobKind) -> bool:
        return idle.has_claimable(self._database, kind, clock=self._clock, session_id=self._session_id)
