"""The pool's worker: huey's Worker, whose dequeue is a planning turn and a claim, and whose task settles its own job.

    loop ── dequeue ── plan, when something has grown ── load the model, at the first job ── claim
         └─ execute ── huey calls `_work` ── attempt: run, settle ── report

The module owns these invariants:

- One worker is one process with one model and one thread of work. Its store and its model are opened after the fork.
- It claims nothing once it was told to stop, and looks at that flag right before each claim.
- Waiting costs next to nothing and ends within some 25 ms of a commit (`wake.py`). What no commit announces, a back-off
  that ran out or a chat that was killed, is looked for twice a second.
- A database that others keep locked beyond the wait is waited for again: it ends no worker before it has a job.
- huey hides what a task raises, so a task raises nothing: what it could not settle is raised by `loop`.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from datetime import datetime
from typing import Final

from huey import Huey
from huey.consumer import Worker, WorkerRecycle

from emelex_core.errors import Cancelled, StaleJobLease, StorageBusy
from emelex_core.jobs.kinds import JobKind
from emelex_queue.huey_storage import JobTableStorage
from emelex_queue.lease import JobLease
from emelex_queue.turns import Turns
from emelex_workers import planning
from emelex_workers.attempt import attempt
from emelex_workers.planning_lock import PlanningLock
from emelex_workers.pool_child import Child, be_nice
from emelex_workers.pool_engine import KeptEngines
from emelex_workers.pool_events import JobLost
from emelex_workers.progress import JobStarted, ModelLoading
from emelex_workers.recycle import MemoryGuard
from emelex_workers.slate import Phase
from emelex_workers.wake import POLL_SECONDS, CommitWatch

_DEQUEUE_SECONDS: Final = 0.9
"""How long one dequeue waits for a job."""
_LOOK_SECONDS: Final = 0.5
_PLAN_SECONDS: Final = 1.0
"""Between two plannings of one worker, when something was committed."""
_PLAN_IDLE_SECONDS: Final = 30.0
"""Between two plannings when nothing was: a killed chat's Session becomes free without a commit."""


class PoolWorker(Worker):
    """One worker of a pool. Everything but its making happens in the child."""

    def __init__(self, huey: Huey, child: Child, storage: JobTableStorage) -> None:
        super().__init__(huey, child.tether.stop_latch, _LOOK_SECONDS, _LOOK_SECONDS, 1.0)
        self.child = child
        self._tether = child.tether
        self._slate = child.slate
        self._storage = storage
        self._memory = MemoryGuard(child.plan.growth_bytes_max)
        self._opened = ExitStack()
        self._fault: Exception | None = None
        self._look_at = self._plan_at = self._plan_idle_at = 0.0
        self._unplanned = True

    def initialize(self) -> None:
        """Open the store, take the owner byte, and offer this process's claims to huey."""
        plan = self.child.plan
        be_nice(plan.nice)
        os.environ.setdefault("OMP_NUM_THREADS", str(plan.threads))
        self._store = self._opened.enter_context(self.child.open_store())
        self._lock = PlanningLock(self._store.database.path)
        self._opened.callback(self._lock.close)
        self._engines = KeptEngines(plan.engines(), self._slate)
        self._opened.callback(self._engines.close)
        self._turns = Turns(self._store.database, clock=self._store.clock)
        self._watch = CommitWatch(self._store.database)
        registered = {kind: self.huey.task(name=kind.value)(self._work) for kind in JobKind}
        names = {kind: self.huey._registry.task_to_string(task.task_class) for kind, task in registered.items()}
        self._storage.attach(self._next_lease, names)
        self._slate.enter(Phase.WAITING)

    def loop(self, now: datetime | None = None) -> None:
        """Take one job, if one comes within a second, and see it settled. Raises: what the job's code could not."""
        task = self.huey.dequeue()
        if task is None:
            return
        self.huey.execute(task, now)
        if self._fault is not None:
            raise self._fault
        self._slate.enter(Phase.WAITING)
        if self._memory.outgrown():
            raise WorkerRecycle

    def shutdown(self) -> None:
        """Free the model and close the store."""
        self._opened.close()

    def _next_lease(self) -> JobLease | None:
        """Wait for a claimed job, under a second (huey_storage.ClaimSource). A locked database has none now."""
        try:
            return self._await_lease()
        except StorageBusy:
            # What was being planned when it was met is planned at the next look.
            self._unplanned = True
            return None

    def _await_lease(self) -> JobLease | None:
        give_up = time.monotonic() + _DEQUEUE_SECONDS
        while not self._tether.stop.cancelled:
            now = time.monotonic()
            changed = self._watch.changed()
            self._unplanned |= changed
            if changed or now >= self._look_at:
                self._look_at = now + _LOOK_SECONDS
                lease = self._turn(now)
                if lease is not None:
                    # What this worker commits itself, its watch does not show: it looks again right after the job.
                    self._look_at = 0.0
                    self._unplanned = True
                    return lease
            if now >= give_up:
                return None
            self._tether.stop.wait(POLL_SECONDS)
        return None

    def _turn(self, now: float) -> JobLease | None:
        """Plan what has grown, then claim; the model is there before the first job is."""
        self._plan(now)
        if self._engines.loaded is None:
            if not self._turns.has_claimable():
                return None
            self.child.say(ModelLoading(reference=self._engines.reference))
            self._engines.load()
            self._slate.enter(Phase.WAITING)
        if self._tether.stop.cancelled:
            return None
        return self._turns.claim()

    def _plan(self, now: float) -> None:
        due = now >= self._plan_idle_at or (self._unplanned and now >= self._plan_at)
        if not due:
            return
        self._plan_at = now + _PLAN_SECONDS
        with self._lock.attempt() as held:
            if not held:
                return
            self._unplanned = False
            self._plan_idle_at = now + _PLAN_IDLE_SECONDS
            try:
                planning.plan_due(
                    self._store,
                    self._engines,
                    self.child.plan.policy,
                    session_id=None,
                    listen=self.child.say,
                    stop=self._tether.stop,
                )
            except Cancelled:
                return

    def _work(self, job_id: str) -> None:
        """The task that huey calls: run one claimed job to its settlement."""
        lease = self._storage.take(job_id)
        job = lease.job
        self._slate.begin_job(job.id, job.attempt)
        self.child.say(JobStarted(job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt))
        try:
            ended = attempt(
                self._store,
                lease,
                self._engines.load(),
                stop=self._tether.abort,
                chunking=self.child.plan.chunking,
                tell=self.child.say,
            )
        except StaleJobLease as error:
            lost = JobLost(
                job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt, reason=error.message
            )
            self.child.say(lost)
        except Exception as error:  # noqa: BLE001 - huey would only log it: `loop` raises it
            self._fault = error
        else:
            self.child.say(ended)
