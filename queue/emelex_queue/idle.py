"""Whether there is anything to do: asked by every cron run, and answered by reading alone, without the rooms that work.

A caller that hears no can stop; one that hears yes must still claim, since others may be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from emelex_core import limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.jobs.kinds import JobKind

SQL: Final = load("emelex_queue", "jobs")
CORE: Final = load("emelex_core", "jobs")
SESSIONS: Final = load("emelex_core", "sessions")


def is_idle(database: Database, kinds: Sequence[JobKind], *, clock: Clock, session_id: str | None = None) -> bool:
    """Whether no job can be claimed, no claim was lost and no Session has grown since it was planned."""
    now = clock()
    with database.read() as transaction:
        if transaction.one(SQL["expired"], {"now": now, "limit": 1}) is not None:
            return False
        if any(_claimable(transaction, kind, now, session_id) for kind in kinds):
            return False
        if JobKind.COMPACTION not in kinds:
            return True
        grown = {"trigger_tokens": 0, "session_id": session_id, "now": now}
        return transaction.one(SESSIONS["to_plan"], grown) is None


def remaining_jobs(database: Database, *, kind: JobKind | None = None, session_id: str | None = None) -> int:
    """Jobs that are not settled, in the scope of a drain."""
    with database.read() as transaction:
        row = transaction.one(
            CORE["remaining"], {"kind": None if kind is None else kind.value, "session_id": session_id}
        )
    assert row is not None
    return cast(int, row[0])


def has_claimable(database: Database, kind: JobKind, *, clock: Clock, session_id: str | None = None) -> bool:
    """Whether a claim now would find a job: asked before a model is loaded. Writes nothing."""
    with database.read() as transaction:
        return _claimable(transaction, kind, clock(), session_id)


def _claimable(transaction: Transaction, kind: JobKind, now: int, session_id: str | None) -> bool:
    parameters = {
        "kind": kind.value,
        "now": now,
        "session_id": session_id,
        "backoff_max_ms": limits.BACKOFF_MAX_MS,
    }
    return transaction.one(SQL["has_claimable"], parameters) is not None
