"""Records of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

from emelex_core.db.database import Row
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.provenance import SourceProvenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as stored. Instants are milliseconds since the epoch, UTC."""

    id: str
    kind: JobKind
    session_id: str
    state: JobState
    failure_count: int
    run_at: int
    lease_until: int | None
    retry_after: int | None
    last_error: str | None
    failed_at: int | None
    completed_at: int | None
    published_at: int
    source: SourceProvenance
    target_tokens: int | None

    @property
    def attempt(self) -> int:
        """Which attempt runs now or comes next, from 1."""
        return self.failure_count + 1

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read the columns of the statements `get`, `page` and `failures`."""
        return cls(
            id=cast(str, row[0]),
            kind=JobKind(cast(str, row[1])),
            session_id=cast(str, row[2]),
            state=JobState(cast(str, row[3])),
            failure_count=cast(int, row[4]),
            run_at=cast(int, row[5]),
            lease_until=cast("int | None", row[6]),
            retry_after=cast("int | None", row[7]),
            last_error=cast("str | None", row[8]),
            failed_at=cast("int | None", row[9]),
            completed_at=cast("int | None", row[10]),
            published_at=cast(int, row[11]),
            source=source_from(row, 12),
            target_tokens=cast("int | None", row[17]),
        )


def source_from(row: Row, start: int) -> SourceProvenance:
    """Read five provenance columns from `start` on."""
    return SourceProvenance(
        through_sequence=cast(int, row[start]),
        source_event_count=cast(int, row[start + 1]),
        source_first_event_id=cast(str, row[start + 2]),
        source_last_event_id=cast(str, row[start + 3]),
        source_sha256=cast(str, row[start + 4]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How many jobs of one kind are where; `oldest_pending_seconds` is None when none waits to be claimed."""

    pending: int
    running: int
    waiting: int
    blocked: int
    failed: int
    completed: int
    oldest_pending_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many Sessions have been distilled, have failed, or wait."""

    sessions: int
    distilled: int
    failed: int
    pending: int
