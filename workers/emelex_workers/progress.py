"""What a drain tells while it works, and what it did in the end. The CLI prints these; nothing here prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A job was claimed and its work begins. `attempt` counts from 1."""

    job: str
    kind: str
    session: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A job's attempt ended. `outcome` is completed, retry, failed or released; tokens are the engine's own counts.

    `error` is the stored diagnostic of a retry or a failure; `retry_at` is the instant of the next attempt in
    milliseconds; `knowledge_candidates` counts what a distillation applied, `form` says whose words a result is in (ADR
    0021), None where there is none. `lost` says that the attempt was another's, who died or let its lease run out: what
    it cost is not known, and stands as zero.
    """

    outcome: str
    job: str
    kind: str
    session: str
    attempt: int
    seconds: float
    engine_seconds: float
    prompt_tokens: int
    output_tokens: int
    error: str | None = None
    retry_at: int | None = None
    knowledge_candidates: int = 0
    form: str | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningNote:
    """A long Session was measured: `planned` when a compaction job was published, else why not.

    `estimated` says that the model's server has no tokenizer, so that `tokens` are not the model's own (ADR 0024).
    """

    session: str
    tokens: int
    planned: bool
    reason: str
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoading:
    """A model is being loaded, because there is work for it."""

    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """Progress inside one job: `done` of `total` model calls."""

    job: str
    done: int
    total: int


WorkEvent: TypeAlias = JobStarted | JobEnded | PlanningNote | ModelLoading | JobStep
Listener: TypeAlias = Callable[[WorkEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """The counts of one drain (contract, "JSON of the main job")."""

    compactions: int
    distillations: int
    knowledge_candidates: int
    retries_scheduled: int
    failed_jobs: int
    released_jobs: int
    remaining_jobs: int
