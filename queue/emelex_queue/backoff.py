"""How long a failed job waits: 30 s, doubling, at most 5 min (seed; behaviour 125)."""

from __future__ import annotations

from emelex_core import limits


def backoff_ms(failure_count: int) -> int:
    """Milliseconds to wait after the n-th failure, n from 1."""
    return min(limits.BACKOFF_FIRST_MS << (failure_count - 1), limits.BACKOFF_MAX_MS)


def is_terminal(failure_count: int) -> bool:
    """Whether the n-th failure ends the job."""
    return failure_count >= limits.FAILURES_TERMINAL
