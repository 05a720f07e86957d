"""Claiming: expire what is lost, then take the oldest runnable job (behaviours 119, 124, 127, 129).

One transaction does both, so that a job whose worker died is counted by whoever claims next, and never twice. Whoever
counts a loss hears of it once it is committed: nobody else will tell that the job has to wait, or that it has ended.

The transaction may be the one that settles the job before (`claim_within`): one commit for both is most of what an
empty job costs. A claim stands when its transaction does; only then is it taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from emelex_core import faults, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.errors import EmelexError
from emelex_core.jobs.kinds import JobKind
from emelex_queue.lease import SQL, JobLease, count_failure, grant, new_token
from emelex_queue.records import ClaimedJob, CountedLoss

Hear: TypeAlias = Callable[[CountedLoss], None]

OWNER_DIED: Final = "the worker's process died while it held the job"
LEASE_EXPIRED: Final = "the worker's lease expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a transaction has claimed, as the row that it wrote or None, and the losses that it has counted."""

    row: Row | None
    token: bytes
    losses: tuple[CountedLoss, ...]

    def take(self, database: Database, *, clock: Clock, hear: Hear) -> JobLease | None:
        """Make the lease, once the transaction has committed, and tell the losses.

        Raises: what `hear` raises; the job is then given back, uncounted.
        """
        lease = None if self.row is None else grant(database, ClaimedJob.from_row(self.row), self.token, clock)
        if lease is not None:
            faults.reach("job.claimed")
        try:
            for loss in self.losses:
                hear(loss)
        except BaseException:
            # Whoever cannot be told any more will not work either, which is no failure of the job.
            if lease is not None:
                with contextlib.suppress(EmelexError), lease:
                    lease.release()
            raise
        return lease


def claim(
    database: Database, kind: JobKind, *, clock: Clock, session_id: str | None = None, hear: Hear = lambda loss: None
) -> JobLease | None:
    """Claim the oldest runnable job of a kind, or return None. Jobs of live Sessions are skipped, not waited for.

    `hear` is told each loss that was counted on the way, of whatever kind and Session. Raises: Storage.
    """
    owner = database.owners.slot()
    with database.write() as transaction:
        claimed = claim_within(transaction, [kind], owner=owner, now=clock(), session_id=session_id)
    return claimed.take(database, clock=clock, hear=hear)


def claim_within(
    transaction: Transaction, kinds: Iterable[JobKind], *, owner: int, now: int, session_id: str | None
) -> Claim:
    """Claim the oldest runnable job of the first kind that has one, as a part of a transaction under way."""
    losses = expire(transaction, now=now)
    parameters: dict[str, Value] = {
        "session_id": session_id,
        "token": (token := new_token()),
        "owner": owner,
        "now": now,
        "lease_ms": limits.LEASE_MS,
        "backoff_max_ms": limits.BACKOFF_MAX_MS,
    }
    found = (transaction.one(SQL["claim"], {**parameters, "kind": kind.value}) for kind in kinds)
    row = next((row for row in found if row is not None), None)
    return Claim(row=row, token=token, losses=tuple(losses))


def expire(transaction: Transaction, *, now: int) -> list[CountedLoss]:
    """Count a failure for each claim that ran out or whose owner died, up to a bound; return what was counted."""
    for clamp in (SQL["clamp_leases"], SQL["clamp_sessions"]):
        transaction.run(clamp, {"now": now, "lease_ms": limits.LEASE_MS})
    rows = transaction.all(SQL["expired"], {"now": now, "limit": limits.EXPIRED_PER_CLAIM_MAX})
    return [_count(transaction, row, now) for row in rows]


def recover_lost(database: Database, *, clock: Clock) -> list[CountedLoss]:
    """Count the failures of lost claims now, up to a bound; writes only when there is something to count.

    Raises: Storage.
    """
    with database.read() as transaction:
        if not transaction.all(SQL["expired"], {"now": clock(), "limit": 1}):
            return []
    with database.write() as transaction:
        return expire(transaction, now=clock())


def _count(transaction: Transaction, row: Row, now: int) -> CountedLoss:
    job_id, token, kind, session_id, failure_count, died = row
    attempt = cast(int, failure_count) + 1
    diagnostic = OWNER_DIED if died else LEASE_EXPIRED
    retry_at = count_failure(
        transaction,
        job_id=cast(str, job_id),
        token=cast(bytes, token),
        failure_count=attempt,
        diagnostic=diagnostic,
        permanent=False,
        now=now,
    )
    return CountedLoss(
        id=cast(str, job_id),
        kind=JobKind(cast(str, kind)),
        session_id=cast(str, session_id),
        attempt=attempt,
        retry_at=retry_at,
        diagnostic=diagnostic,
    )
