"""Kinds and states of jobs, spelled the same in SQL, JSON and prose; `emelex_queue.states` has the moves."""

from __future__ import annotations

from enum import StrEnum


class JobKind(StrEnum):
    """What a job makes."""

    COMPACTION = "compaction"
    DISTILLATION = "distillation"


class JobState(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
