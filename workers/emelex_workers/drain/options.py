"""What a drain may do."""

from __future__ import annotations

from dataclasses import dataclass, field

from emelex_core.jobs.kinds import JobKind
from emelex_workers.overrides import PolicyOverrides


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """What a drain may do. None means no bound. `session_id` is a full id."""

    max_jobs: int | None = None
    max_seconds: float | None = None
    kind: JobKind | None = None
    session_id: str | None = None
    chunking: bool = True
    policy: PolicyOverrides = field(default_factory=PolicyOverrides)

    @property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds in its scope."""
        return tuple(JobKind) if self.kind is None else (self.kind,)
