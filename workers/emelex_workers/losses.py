"""How the loss of a claim is told: as the end of an attempt, by whoever counted it."""

from __future__ import annotations

from emelex_queue.records import CountedLoss
from emelex_workers.progress import JobEnded


def ended_by_loss(loss: CountedLoss, *, seconds: float = 0.0) -> JobEnded:
    """The end of an attempt whose worker is gone. `seconds` is how long it had worked, as far as that is known."""
    return JobEnded(
        outcome="failed" if loss.retry_at is None else "retry",
        job=loss.id,
        kind=loss.kind.value,
        session=loss.session_id,
        attempt=loss.attempt,
        seconds=seconds,
        engine_seconds=0.0,
        prompt_tokens=0,
        output_tokens=0,
        error=loss.diagnostic,
        retry_at=loss.retry_at,
        lost=True,
    )
