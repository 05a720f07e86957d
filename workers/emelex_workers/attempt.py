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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

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
from emelex_queue.lease import Beside, JobLease, bounded
from emelex_queue.records import ClaimedJob
from emelex_workers.compaction import compact
from emelex_workers.distillation import distill
from emelex_workers.heartbeat import Cause, Heart
from emelex_workers.metered import MeteredEngine
from emelex_workers.progress import JobEnded, JobStep
from emelex_workers.result import JobResult
from emelex_workers.text import restate, secrets


def attempt(
    store: MemoryStore,
    lease: JobLease,
    engine: ChatEngine,
    *,
    stop: CancelToken,
    chunking: bool,
    tell: Callable[[JobStep], None] | None = None,
    heart: Heart | None = None,
    beside: Beside = lambda transaction: lambda: None,
) -> JobEnded:
    """Run a claimed job to its settlement and say how it ended. Without a `heart` it has one of its own.

    `beside` is what the worker does in the transaction that completes the job: it claims its next one.
    Raises: StaleJobLease when the lease was lost; Storage when the database failed, with the job released if possible.
    """
    job = lease.job
    metered = MeteredEngine(engine, job.id, calls_max=restate.CALLS_MAX, tell=tell)
    so_far = _Attempt(job, metered)
    with _beating(store, heart) as beating, lease, beating.beat(lease, stop) as pulse:
        try:
            result = _work(store, lease, metered, pulse.cancel, chunking=chunking)
            faults.reach("job.inferred")
            patiently(
                lambda: lease.complete(result.apply, record=result.record, beside=beside),
                seconds=limits.SETTLE_WAIT_MS / 1000,
                stopped=lambda: pulse.cancel.cancelled,
            )
        except Cancelled:
            if pulse.cause is Cause.LEASE_LOST:
                raise pulse.error or StaleJobLease(f"the lease of job {job.id} was lost") from None
            if pulse.cause is not Cause.TAKEN_AWAY:
                _release(lease)
            return so_far.ended("released")
        except SessionBusy:
            _release(lease)
            return so_far.ended("released")
        except (JobFailure, Corrupt, Invalid, NotFound) as error:
            hopeless = isinstance(error, PermanentFailure | Corrupt | NotFound)
            return _failed(lease, so_far, error, permanent=hopeless)
        except EmelexError:
            # The lease gives itself back for a storage failure; for any other one it counts.
            raise
        except Exception as error:  # noqa: BLE001 - a fault in a job's code must not stop the jobs behind it
            return _failed(lease, so_far, error, permanent=False)
    done = so_far.ended("completed", knowledge_candidates=result.knowledge_candidates)
    return replace(done, form=result.record.get("form"))


class _Attempt:
    """What one attempt has cost so far."""

    def __init__(self, job: ClaimedJob, metered: MeteredEngine) -> None:
        self._job = job
        self._metered = metered
        self._began = time.monotonic()

    def ended(
        self, outcome: str, *, error: str | None = None, retry_at: int | None = None, knowledge_candidates: int = 0
    ) -> JobEnded:
        """How it ended, and what it took in all."""
        return JobEnded(
            outcome=outcome,
            job=self._job.id,
            kind=self._job.kind.value,
            session=self._job.session_id,
            attempt=self._job.attempt,
            seconds=time.monotonic() - self._began,
            engine_seconds=self._metered.seconds,
            prompt_tokens=self._metered.prompt_tokens,
            output_tokens=self._metered.output_tokens,
            error=error,
            retry_at=retry_at,
            knowledge_candidates=knowledge_candidates,
        )


def _beating(store: MemoryStore, heart: Heart | None) -> AbstractContextManager[Heart]:
    return Heart(store.database) if heart is None else nullcontext(heart)


def _work(store: MemoryStore, lease: JobLease, engine: ChatEngine, cancel: CancelToken, *, chunking: bool) -> JobResult:
    if lease.job.kind is JobKind.COMPACTION:
        return compact(store, lease.job, engine, cancel, chunking=chunking)
    return distill(store, lease.job, engine, cancel)


def _release(lease: JobLease) -> None:
    # A lock that is held for a while must not turn a stop into a failure.
    patiently(lease.release, seconds=limits.SETTLE_WAIT_MS / 1000, stopped=lambda: False)


def _failed(lease: JobLease, so_far: _Attempt, error: Exception, *, permanent: bool) -> JobEnded:
    """Count the failure; its diagnostic names the cause, bounded and without secrets (behaviours 178 and 187)."""
    message = error.message if isinstance(error, EmelexError) else f"{type(error).__name__}: {error}"
    diagnostic = bounded(secrets.mask(f"attempt {lease.job.attempt}: {message}"))
    retry_at = lease.fail(diagnostic, permanent=permanent)
    return so_far.ended("failed" if retry_at is None else "retry", error=diagnostic, retry_at=retry_at)
