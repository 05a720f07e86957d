"""One attempt at one claimed job, and how it ends.

work ── done ──────────────▶ complete        (the result commits with the settlement)
     ├─ told to stop ──────▶ release         (nothing is counted)
     ├─ taken away ────────▶ nothing         (an operator cancelled it; it is pending already)
     ├─ Session is live ───▶ release         (interactive execution wins)
     ├─ retryable failure ─▶ fail            (back-off, or terminal on the third)
     ├─ permanent failure ─▶ fail, terminal
     └─ lease lost ────────▶ StaleJobLease   (the drain aborts, nothing is recorded; behaviour 168)
"""

from __future__ import annotations

import time
from collections.abc import Callable

from emelex_core import faults, limits
from emelex_core.db.patience import patiently
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import (
    Cancelled,
    Corrupt,
    EmelexError,
    Invalid,
    JobFailure,
    NotFound,
    PermanentFailure,
    SessionBusy,
    StaleJobLease,
)
from emelex_core.jobs.kinds import JobKind
from emelex_core.store import MemoryStore
from emelex_queue.lease import JobLease, bounded
from emelex_workers.compaction import compact
from emelex_workers.distillation import distill
from emelex_workers.heartbeat import Cause, Heartbeat
from emelex_workers.progress import JobEnded, JobStep
from emelex_workers.result import JobResult
from emelex_workers.telling import TellingEngine
from emelex_workers.text import restate, secrets


def attempt(
    store: MemoryStore,
    lease: JobLease,
    engine: ChatEngine,
    *,
    stop: CancelToken,
    chunking: bool,
    tell: Callable[[JobStep], None] | None = None,
) -> JobEnded:
    """Run a claimed job to its settlement and say how it ended.

    Raises: StaleJobLease when the lease was lost; Storage when the database failed, with the job released if possible.
    """
    started = time.monotonic()
    if tell is not None:
        engine = TellingEngine(engine, lease.job.id, calls_max=restate.CALLS_MAX, tell=tell)
    with lease, Heartbeat(store.database, lease, stop) as pulse:
        try:
            result = _work(store, lease, engine, pulse.cancel, chunking=chunking)
            faults.reach("job.inferred")
            patiently(
                lambda: lease.complete(result.apply, record=result.record),
                seconds=limits.SETTLE_WAIT_MS / 1000,
                stopped=lambda: pulse.cancel.cancelled,
            )
        except Cancelled:
            if pulse.cause is Cause.LEASE_LOST:
                raise pulse.error or StaleJobLease(f"the lease of job {lease.job.id} was lost") from None
            if pulse.cause is Cause.TAKEN_AWAY:
                return _ended("released", lease, started)
            return _released(lease, started)
        except SessionBusy:
            return _released(lease, started)
        except (JobFailure, Corrupt, Invalid, NotFound) as error:
            hopeless = isinstance(error, PermanentFailure | Corrupt | NotFound)
            return _failed(lease, started, error, permanent=hopeless)
        except EmelexError:
            # The lease gives itself back for a storage failure; for any other one it counts.
            raise
        except Exception as error:  # noqa: BLE001 - a fault in a job's code must not stop the jobs behind it
            return _failed(lease, started, error, permanent=False)
    return _ended("completed", lease, started, result=result, knowledge_candidates=result.knowledge_candidates)


def _work(store: MemoryStore, lease: JobLease, engine: ChatEngine, cancel: CancelToken, *, chunking: bool) -> JobResult:
    if lease.job.kind is JobKind.COMPACTION:
        return compact(store, lease.job, engine, cancel, chunking=chunking)
    return distill(store, lease.job, engine, cancel)


def _released(lease: JobLease, started: float) -> JobEnded:
    # A lock that is held for a while must not turn a stop into a failure.
    patiently(lease.release, seconds=limits.SETTLE_WAIT_MS / 1000, stopped=lambda: False)
    return _ended("released", lease, started)


def _failed(lease: JobLease, started: float, error: Exception, *, permanent: bool) -> JobEnded:
    """Count the failure; its diagnostic names the cause, bounded and without secrets (behaviours 178 and 187)."""
    message = error.message if isinstance(error, EmelexError) else f"{type(error).__name__}: {error}"
    diagnostic = bounded(secrets.mask(f"attempt {lease.job.attempt}: {message}"))
    retry_at = lease.fail(diagnostic, permanent=permanent)
    outcome = "failed" if retry_at is None else "retry"
    return _ended(outcome, lease, started, error=diagnostic, retry_at=retry_at)


def _ended(
    outcome: str,
    lease: JobLease,
    started: float,
    *,
    result: JobResult | None = None,
    error: str | None = None,
    retry_at: int | None = None,
    knowledge_candidates: int = 0,
) -> JobEnded:
    job = lease.job
    return JobEnded(
        outcome=outcome,
        job=job.id,
        kind=job.kind.value,
        session=job.session_id,
        attempt=job.attempt,
        seconds=time.monotonic() - started,
        engine_seconds=0.0 if result is None else result.usage.seconds,
        prompt_tokens=0 if result is None else result.usage.prompt_tokens,
        output_tokens=0 if result is None else result.usage.output_tokens,
        error=error,
        retry_at=retry_at,
        knowledge_candidates=knowledge_candidates,
    )
