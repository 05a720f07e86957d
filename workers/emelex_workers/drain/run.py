"""One run of a drain: its model, whose turn it is, and what came of each job.

It counts lost claims, plans compactions, loads the model only when there is a job for it, and then takes jobs:
compaction first, then the kinds in turn. Several drains and pools may run at once; the table decides who gets what.
Each settlement claims the next job in its own transaction, when another one may be run; what a stop leaves over of that
is given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from emelex_core.db.database import Transaction
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.jobs.kinds import JobKind
from emelex_core.store import MemoryStore
from emelex_queue import claims, idle
from emelex_queue.lease import JobLease
from emelex_queue.records import CountedLoss
from emelex_queue.turns import Turns
from emelex_workers import planning
from emelex_workers.attempt import attempt
from emelex_workers.drain.options import DrainOptions
from emelex_workers.engines import EngineSource
from emelex_workers.heartbeat import Heart
from emelex_workers.losses import ended_by_loss
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
        self._turns = Turns(
            store.database, clock=store.clock, kinds=options.kinds, session_id=options.session_id, hear=self._hear_loss
        )
        self._attempts = 0
        self._ended: list[JobEnded] = []
        self._deadline = None if options.max_seconds is None else time.monotonic() + options.max_seconds

    def work(self, stack: ExitStack) -> None:
        """Take jobs while there are any; plan again whenever the queue ran dry."""
        self._recover_lost()
        self._plan()
        heart = stack.enter_context(Heart(self._store.database))
        stack.callback(self._turns.give_back)
        while self._may_go_on():
            lease = self._turns.take()
            if lease is None and not self._turns.has_claimable():
                self._recover_lost()
                if not self._plan():
                    return
                continue
            engine = self._loaded(stack)
            lease = lease or self._turns.claim()
            if lease is None:
                continue
            self._run(lease, engine, heart)

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

    def _run(self, lease: JobLease, engine: ChatEngine, heart: Heart) -> None:
        job = lease.job
        self._listen(JobStarted(job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt))
        ended = attempt(
            self._store,
            lease,
            engine,
            stop=self._stop,
            chunking=self._options.chunking,
            tell=self._listen,
            heart=heart,
            beside=self._claim_beside,
        )
        self._attempts += 1
        self._hear(ended)

    def _claim_beside(self, transaction: Transaction) -> Callable[[], None]:
        """Claim the next job in the settlement of this one, which is not counted yet, if there may be a next one."""
        return self._turns.claim_beside(transaction) if self._may_go_on(after=1) else lambda: None

    def _recover_lost(self) -> None:
        while losses := claims.recover_lost(self._store.database, clock=self._store.clock):
            for loss in losses:
                self._hear_loss(loss)

    def _hear_loss(self, loss: CountedLoss) -> None:
        """Tell of an attempt that somebody else's death ended: this run has counted it, so this run answers for it."""
        self._hear(ended_by_loss(loss))

    def _hear(self, ended: JobEnded) -> None:
        self._ended.append(ended)
        self._listen(ended)

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

    def _may_go_on(self, *, after: int = 0) -> bool:
        """Whether another job may be taken, after so many that are not counted yet."""
        within_jobs = self._options.max_jobs is None or self._attempts + after < self._options.max_jobs
        within_time = self._deadline is None or time.monotonic() < self._deadline
        return within_jobs and within_time and not self._stop.cancelled

    def _count(self, outcome: str) -> int:
        return sum(ended.outcome == outcome for ended in self._ended)
