"""Claiming: expire what is lost, then take the oldest runnable job (behaviours 119, 124, 127, 129).

One transaction does both, so that a job whose worker died is counted by whoever claims next, and never twice.
"""

from __future__ import annotations

from typing import Final, cast

from emelex_core import faults, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.jobs.kinds import JobKind
from emelex_queue.lease import SQL, JobLease, count_failure, grant, new_token
from emelex_queue.records import ClaimedJob

OWNER_DIED: Final = "the worker's process died while it held the job"
LEASE_EXPIRED: Final = "the worker's lease expired"


def claim(database: Database, kind: JobKind, *, clock: Clock, session_id: str | None = None) -> JobLease | None:
    """Claim the oldest runnable job of a kind, or return None. Jobs of live Sessions are skipped, not waited for."""
    token = new_token()
    with database.write() as transaction:
        now = clock()
        expire(transaction, now=now)
        row = transaction.one(
            SQL["claim" if session_id is None else "claim_of_session"],
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
    if row is None:
        return None
    faults.reach("job.claimed")
    return grant(database, ClaimedJob.from_row(row), token, clock)


def expire(transaction: Transaction, *, now: int) -> int:
    """Count a failure for each claim that ran out or whose owner died, up to a bound; return how many."""
    for clamp in (SQL["clamp_leases"], SQL["clamp_sessions"]):
        transaction.run(clamp, {"now": now, "lease_ms": limits.LEASE_MS})
    rows = transaction.all(SQL["expired"], {"now": now, "limit": limits.EXPIRED_PER_CLAIM_MAX})
    for job_id, token, failure_count, died in rows:
        reason = OWNER_DIED if died else LEASE_EXPIRED
        count_failure(
            transaction,
            job_id=cast(str, job_id),
            token=cast(bytes, token),
            failure_count=cast(int, failure_count) + 1,
            diagnostic=reason,
            permanent=False,
            now=now,
        )
    return len(rows)


def recover_lost(database: Database, *, clock: Clock) -> int:
    """Count the failures of lost claims now; return how many. Writes only when there is something to count."""
    with database.read() as transaction:
        if not transaction.all(SQL["expired"], {"now": clock(), "limit": 1}):
            return 0
    with database.write() as transaction:
        return expire(transaction, now=clock())
