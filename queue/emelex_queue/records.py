"""What the queue hands to workers: a claimed job, and a failure that was counted for whoever had lost one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

from emelex_core.db.database import Row
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import source_from
from emelex_core.provenance import SourceProvenance


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """What a worker needs of the job that it claimed."""

    id: str
    kind: JobKind
    session_id: str
    failure_count: int
    source: SourceProvenance
    target_tokens: int | None
    published_at: int

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.failure_count + 1

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read the columns that the claim statements return."""
        return cls(
            id=cast(str, row[0]),
            kind=JobKind(cast(str, row[1])),
            session_id=cast(str, row[2]),
            failure_count=cast(int, row[3]),
            source=source_from(row, 5),
            target_tokens=cast("int | None", row[10]),
            published_at=cast(int, row[11]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A failure that others counted: the job's owner was dead, or its lease had run out.

    `attempt` is the one that was lost, from 1; `retry_at`, in milliseconds, is None when the job became terminal.
    """

    id: str
    kind: JobKind
    session_id: str
    attempt: int
    retry_at: int | None
    diagnostic: str

    @property
    def state(self) -> JobState:
        """What the loss made of the job."""
        return JobState.FAILED if self.retry_at is None else JobState.PENDING
