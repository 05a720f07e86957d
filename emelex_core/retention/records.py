"""What maintenance may do, and what it did. Instants and spans are milliseconds, UTC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from emelex_core import limits
from emelex_core.assets.records import CollectReport
from emelex_core.errors import Invalid

if TYPE_CHECKING:
    from emelex_core.config import Retention

REASONS: Final = {
    "live": "a lease holds it",
    "turn": "a turn is under way or was interrupted",
    "jobs": "a job of it is pending or running",
    "clock": "its dates contradict its place: a clock was wrong",
}
"""Why a Session that is old enough stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long things are kept. Spans are since the last recorded activity; `versions` is the newest of an entry."""

    session_ms: int = limits.RETENTION_SESSION_MS
    knowledge_ms: int = limits.RETENTION_KNOWLEDGE_MS
    tombstone_ms: int = limits.RETENTION_TOMBSTONE_MS
    job_ms: int = limits.RETENTION_JOB_MS
    asset_ms: int = limits.ASSET_GRACE_MS
    removal_ms: int = limits.RETENTION_REMOVALS_MS
    versions: int = limits.RETENTION_VERSIONS
    rows_max: int = limits.MAINTAIN_ROWS

    @classmethod
    def of_days(cls, days: int, *, rows_max: int = limits.MAINTAIN_ROWS) -> Self:
        """Keep Sessions and Knowledge for so many days (limits table, "Retention (CLI gc)"). Raises: Invalid."""
        if not 1 <= days <= limits.RETENTION_DAYS_MAX:
            raise Invalid(f"{days} days of retention; 1 to {limits.RETENTION_DAYS_MAX} are accepted")
        return cls(session_ms=days * limits.DAY_MS, knowledge_ms=days * limits.DAY_MS, rows_max=rows_max)

    def configured(self, retention: Retention) -> Self:
        """This policy with the spans that the configuration sets."""
        sessions, knowledge = retention.sessions_days, retention.knowledge_days
        return replace(
            self,
            session_ms=self.session_ms if sessions is None else sessions * limits.DAY_MS,
            knowledge_ms=self.knowledge_ms if knowledge is None else knowledge * limits.DAY_MS,
        )

    def check(self) -> None:
        """Raise Invalid for a span that is not above zero, and for bounds out of range (behaviour 154)."""
        for span, what in (
            (self.session_ms, "Sessions"),
            (self.knowledge_ms, "Knowledge"),
            (self.tombstone_ms, "what was forgotten"),
            (self.job_ms, "finished jobs"),
            (self.asset_ms, "assets"),
            (self.removal_ms, "the removal journal"),
        ):
            if span <= 0:
                raise Invalid(f"{what} would be kept for {span} ms; it must be above zero")
        if not 1 <= self.versions <= limits.RETENTION_VERSIONS_MAX:
            raise Invalid(f"{self.versions} versions; 1 to {limits.RETENTION_VERSIONS_MAX} are accepted")
        if not 1 <= self.rows_max <= limits.MAINTAIN_ROWS_MAX:
            raise Invalid(f"{self.rows_max} rows a phase; 1 to {limits.MAINTAIN_ROWS_MAX} are accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One thing that went, or would go. `dated_at` is the instant that its age is counted from."""

    kind: str
    id: str
    reason: str
    dated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledRemoval:
    """A removal as the journal keeps it; `row` is the cursor of a page."""

    row: int
    kind: str
    id: str
    reason: str
    dated_at: int
    removed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """What one phase removed. `more` says that its bound was met and a next run goes on."""

    name: str
    removals: tuple[Removal, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """A Session that is old enough and stays all the same; `reason` is a key of REASONS."""

    id: str
    updated_at: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsReport:
    """Retention of Sessions. `expiring` are those that go within the notice, unless they are used."""

    phase: PhaseReport
    kept: tuple[KeptSession, ...]
    expiring: tuple[Removal, ...]
    events: int
    assets: int
    asset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The upkeep of the database file. `vacuum` is none, incremental, whole or busy.

    `wal_busy` says that another reader kept the log from being truncated, which harms nothing (behaviour 153).
    """

    bytes_before: int
    bytes_after: int
    pages_freed: int
    free_pages: int
    wal_bytes: int
    wal_busy: bool
    optimized: bool
    vacuum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProblem:
    """A phase that could not be finished. `kind` is the error's class in the tree, `exit_code` its own."""

    phase: str
    kind: str
    message: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """One run. `counted_at` is the instant up to which time counted; `clock_lag_ms` is how far that is behind the
    clock.

    With `dry_run` the phases hold what would go and nothing was changed; `assets` and `file` are then None.
    `problems` are phases that could not be finished; the others ran all the same.
    """

    dry_run: bool
    counted_at: int
    clock_lag_ms: int
    stale_leases: int
    sessions: SessionsReport | None
    phases: tuple[PhaseReport, ...]
    assets: CollectReport | None
    file: FileReport | None
    problems: tuple[PhaseProblem, ...]
