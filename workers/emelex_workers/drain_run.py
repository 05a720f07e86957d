"""One run of a drain: its model, whose turn it is, and what came of each job.

It counts lost claims, plans compactions, loads the model only when there is a job for it, and then takes jobs:
compaction first, then the kinds in turn. Several drains and pools may run at once; the table decides who gets what.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.jobs.kinds import JobKind
from emelex_core.store import MemoryStore
from emelex_queue import claims, idle
from emelex_queue.lease import JobLease
from emelex_workers import planning
from emelex_workers.attempt import attempt
from emelex_workers.drain import DrainOptions
from emelex_workers.engines import EngineSource
from emelex_workers.progress import DrainReport, JobEnded, JobStarted, Listener, ModelLoading


class DrainRun:
    """One call of `drain`: its counts, its model, and whose turn it is."""

    def __init__(
        self, store: MemoryStore, options: DrainOptions, engines: EngineSource, listen: Listener, stop: CancelToken
    ) -> None:
        self._store = store
        self._options = options
        self._engines = engines
        self._listen = listen
        self._stop = stop
        self._engine: ChatEngine | None = None
        self._next = JobKind.COMPACTION
        self._ended: list[JobEnded] = []
        self._deadline = None if options.max_seconds is None else time.monotonic() + options.max_seconds

    def work(self, stack: ExitStack) -> None:
        """Take jobs while there are any; plan again whenever the queue ran dry."""
        claims.recover_lost(self._store.database, clock=self._store.clock)
        self._plan()
        while self._may_go_on():
            if not any(self._is_claimable(kind) for kind in self._kinds()):
                if not self._plan():
                    return
                continue
            engine = self._loaded(stack)
            lease = self._claim()
            if lease is None:
                continue
            self._run(lease, engine)

    def report(self) -> DrainReport:
        """The counts so far."""
        done = [ended for ended in self._ended if ended.outcome == "completed"]
        return DrainReport(
            compactions=sum(ended.kind == JobKind.COMPACTION for ended in done),
            distillations=sum(ended.kind == JobKind.DISTILLATION for ended in done),
            knowledge_candidates=sum(ended.knowledge_candidates for ended in done),
            retries_scheduled=self._count("retry"),
            failed_jobs=self._count("failed"),
            released_jobs=self._count("released"),
            remaining_jobs=idle.remaining_jobs(
                self._store.database, kind=self._options.kind, session_id=self._options.session_id
            ),
        )

    def _run(self, lease: JobLease, engine: ChatEngine) -> None:
        job = lease.job
        self._listen(JobStarted(job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt))
        ended = attempt(self._store, lease, engine, stop=self._stop, chunking=self._options.chunking, tell=self._listen)
        self._ended.append(ended)
        self._listen(ended)
        self._next = JobKind.DISTILLATION if job.kind is JobKind.COMPACTION else JobKind.COMPACTION

    def _claim(self) -> JobLease | None:
        for kind in self._kinds():
            lease = claims.claim(
                self._store.database, kind, clock=self._store.clock, session_id=self._options.session_id
            )
            if lease is not None:
                return lease
        return None

    def _kinds(self) -> list[JobKind]:
        """The kinds in the order in which they are tried now."""
        if self._options.kind is not None:
            return [self._options.kind]
        return sorted(JobKind, key=lambda kind: kind is not self._next)

    def _plan(self) -> int:
        if self._options.kind is JobKind.DISTILLATION:
            return 0
        return planning.plan_due(
            self._store,
            self._engines,
            self._options.policy,
            session_id=self._options.session_id,
            listen=self._listen,
            stop=self._stop,
        )

    def _loaded(self, stack: ExitStack) -> ChatEngine:
        if self._engine is None:
            self._listen(ModelLoading(reference=self._engines.reference))
            self._engine = stack.enter_context(self._engines.load())
        return self._engine

    def _is_claimable(self, kind: JobKind) -> bool:
        return idle.has_claimable(
            self._store.database, kind, clock=self._store.clock, session_id=self._options.session_id
        )

    def _may_go_on(self) -> bool:
        within_jobs = self._options.max_jobs is None or len(self._ended) < self._options.max_jobs
        within_time = self._deadline is None or time.monotonic() < self._deadline
        return within_jobs and within_time and not self._stop.cancelled

    def _count(self, outcome: str) -> int:
        return sum(ended.outcome == outcome for ended in self._ended)
