"""Claiming: expire what is lost, then take the oldest runnable job (behaviours 119, 124, 127, 129).

One transaction does both, so that a job whose worker died is counted by whoever claims next, and never twice. Whoever
counts a loss hears of it once it is committed: nobody else will tell that the job has to wait, or that it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from emelex_core import faults, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row, Transaction
from emelex_core.jobs.kinds import JobKind
from emelex_queue.lease import SQL, JobLease, count_failure, grant, new_token
from emelex_queue.records import ClaimedJob, CountedLoss

Hear: TypeAlias = Callable[[CountedLoss], None]

OWNER_DIED: Final = "the worker's process died while it held the job"
LEASE_EXPIRED: Final = "the worker's lease expired"


def claim(
    database: Database, kind: JobKind, *, clock: Clock, session_id: str | None = None, hear: Hear = lambda loss: None
) -> JobLease | None:
    """Claim the oldest runnable job of a kind, or return None. Jobs of live Sessions are skipped, not waited for.

    `hear` is told each loss that was counted on the way, of whatever kind and Session. Raises: Storage.
    """
    token = new_token()
    with database.write() as transaction:
        now = clock()
        losses = expire(transaction, now=now)
        row = transaction.one(
            SQL["claim"],
            {
                "kind": kind.value,
                "session_id": session_id,
                "token": token,
                "owner": database.owners.slot(),
                "now": now,
                "lease_ms": limits.LEASE_MS,
                "backoff_max_ms": limits.BACKOFF_MAX_MS,
            },
        )
    lease = None if row is None else grant(database, ClaimedJob.from_row(row), token, clock)
    if lease is not None:
        faults.reach("job.claimed")
    for loss in losses:
        hear(loss)
    return lease


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
