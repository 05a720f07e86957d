"""Looking at jobs, and the explicit retry of terminal ones (behaviours 127 and 128)."""

from __future__ import annotations

from typing import Any, Final, cast

from emelex_core import codec, limits
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import Coverage, Job, QueueDepth

SQL: Final = load("emelex_core", "jobs")


def failed_jobs(database: Database, *, limit: int = limits.PAGE_FAILURES_MAX) -> list[Job]:
    """Terminal jobs, the most recently failed first. Raises: Invalid for a limit out of range."""
    _require_limit(limit, limits.PAGE_FAILURES_MAX)
    with database.read() as transaction:
        return [Job.from_row(row) for row in transaction.all(SQL["failures"], {"limit": limit})]


def retry_failed_job(database: Database, job_id: str, *, now: int) -> Job:
    """Reset one terminal job to pending with no failures; id and source stay. Raises: NotFound for any other job."""
    with database.write() as transaction:
        if not transaction.run(SQL["retry"], {"id": job_id, "now": now}):
            raise NotFound(f"no failed job {job_id}")
        return _get(transaction, job_id)


def retry_all(database: Database, *, now: int) -> list[Job]:
    """Reset every terminal job, the oldest first."""
    with database.write() as transaction:
        found = [cast(str, row[0]) for row in transaction.all(SQL["failed_ids"])]
        for job_id in found:
            transaction.run(SQL["retry"], {"id": job_id, "now": now})
        return [_get(transaction, job_id) for job_id in found]


def list_jobs(
    database: Database,
    *,
    state: JobState | None = None,
    kind: JobKind | None = None,
    session_id: str | None = None,
    limit: int = limits.PAGE_JOBS_MAX,
) -> list[Job]:
    """Jobs, the most recently published first. Raises: Invalid for a limit out of range."""
    _require_limit(limit, limits.PAGE_JOBS_MAX)
    parameters = {
        "state": None if state is None else state.value,
        "kind": None if kind is None else kind.value,
        "session_id": session_id,
        "before_row": None,
        "limit": limit,
    }
    with database.read() as transaction:
        return [Job.from_row(row) for row in transaction.all(SQL["page"], parameters)]


def get_job(database: Database, prefix: str) -> tuple[Job, dict[str, Any] | None]:
    """One job by its id or a prefix, with the record of what made its result.

    Raises: NotFound, AmbiguousId, Invalid.
    """
    from emelex_core.sessions import registry

    with database.read() as transaction:
        job_id = registry.resolve_prefix(transaction, SQL["ids_by_prefix"], prefix, what="job")
        row = transaction.one(SQL["record"], {"id": job_id})
        record = None if row is None else codec.decode_stored(cast(bytes, row[0]), what=f"record of job {job_id}")
        return _get(transaction, job_id), record


def queue_depths(database: Database, *, now: int) -> dict[str, QueueDepth]:
    """How many jobs are where, for each kind."""
    with database.read() as transaction:
        rows = transaction.all(SQL["depth"], {"now": now, "backoff_max_ms": limits.BACKOFF_MAX_MS})
    return {kind.value: _depth([row for row in rows if row[0] == kind.value], now) for kind in JobKind}


def coverage(database: Database) -> Coverage:
    """How many Sessions are distilled, failed, pending."""
    with database.read() as transaction:
        row = transaction.one(SQL["coverage"])
    assert row is not None
    sessions, distilled, failed, pending = (cast(int, value) for value in row)
    return Coverage(sessions=sessions, distilled=distilled, failed=failed, pending=pending)


def _get(transaction: Transaction, job_id: str) -> Job:
    row = transaction.one(SQL["get"], {"id": job_id})
    if row is None:
        raise NotFound(f"no job {job_id}")
    return Job.from_row(row)


def _depth(rows: list[tuple[Any, ...]], now: int) -> QueueDepth:
    counts = {"pending": 0, "running": 0, "waiting": 0, "blocked": 0, "failed": 0, "completed": 0}
    oldest: int | None = None
    for _, state, waiting, blocked, count, published_at in rows:
        where = "waiting" if waiting else "blocked" if blocked else state
        counts[where] += count
        if where == "pending":
            oldest = published_at if oldest is None else min(oldest, published_at)
    age = None if oldest is None else max(0, now - oldest) / 1000
    return QueueDepth(**counts, oldest_pending_seconds=age)


def _require_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise Invalid(f"limit {limit} is not between 1 and {most}")
