"""Whose turn it is: compaction first, then the kinds in turn after each claimed job (behaviour 164).

A worker that settles a job may claim its next one in the same transaction (`claim_beside`): one commit instead of two,
and one wait for the write lock. The module owns these invariants:

- What a settlement claimed is handed over by the next `take` or `claim`, once; a settlement that was rolled back has
  claimed nothing, whatever it had tried.
- Whoever stops gives back what nobody took, uncounted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from emelex_core import limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.patience import patiently
from emelex_core.errors import EmelexError
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
        self._beside: claims.Claim | None = None

    def has_claimable(self) -> bool:
        """Whether a claim now would find a job. Writes nothing. Raises: Storage."""
        return any(self._is_claimable(kind) for kind in self._kinds)

    def claim(self) -> JobLease | None:
        """Claim the oldest runnable job of the kind whose turn it is, else of another. Raises: Storage."""
        lease = self.take()
        if lease is not None:
            return lease
        for kind in self._in_turn():
            if not self._is_claimable(kind):
                continue
            lease = claims.claim(self._database, kind, clock=self._clock, session_id=self._session_id, hear=self._hear)
            if lease is not None:
                return self._taken(lease)
        return None

    def claim_beside(self, transaction: Transaction) -> Callable[[], None]:
        """Claim as `claim` does, within the settlement of the job before (emelex_queue.lease.Beside).

        Nothing is claimed while an earlier one has not been taken.
        """
        if self._beside is not None:
            return lambda: None
        claimed = claims.claim_within(
            transaction,
            self._in_turn(),
            owner=self._database.owners.slot(),
            now=self._clock(),
            session_id=self._session_id,
        )

        def committed() -> None:
            self._beside = claimed

        return committed

    def take(self) -> JobLease | None:
        """Hand over what the last settlement claimed, if it did and nobody has taken it. Touches no disk."""
        claimed, self._beside = self._beside, None
        lease = None if claimed is None else claimed.take(self._database, clock=self._clock, hear=self._hear)
        return None if lease is None else self._taken(lease)

    def give_back(self) -> None:
        """Release, uncounted, what a settlement claimed and nobody took. What cannot be released now, expiry counts."""
        lease = self.take()
        if lease is not None:
            with contextlib.suppress(EmelexError), lease:
                patiently(lease.release, seconds=limits.SETTLE_WAIT_MS / 1000)

    def _taken(self, lease: JobLease) -> JobLease:
        self._next = JobKind.DISTILLATION if lease.job.kind is JobKind.COMPACTION else JobKind.COMPACTION
        return lease

    def _in_turn(self) -> list[JobKind]:
        return sorted(self._kinds, key=lambda kind: kind is not self._next)

    def _is_claimable(self, kind: JobKind) -> bool:
        return idle.has_claimable(self._database, kind, clock=self._clock, session_id=self._session_id)
