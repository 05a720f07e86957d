"""The pool's worker: huey's Worker, whose dequeue is a planning turn and a claim, and whose task settles its own job.

    loop ── dequeue ── plan, when something has grown ── load the model, at the first job ── claim
         └─ execute ── huey calls `_work` ── flight ── attempt: run, settle (and claim the next) ── report

The module owns these invariants:

- One worker is one process with one model. Its store and its model are opened after the fork. A local model has one
  job at a time; a server may have several, each in a thread of its own (`flight.py`).
- It claims nothing once it was told to stop, and looks at that flag right before each claim.
- With one job at a time, a settlement claims the next job in its own transaction, unless planning is due, which goes
  first. That job is begun at once, or given back uncounted. With several in flight there is no saying which place would
  be free for it, and so each is claimed by itself.
- Waiting costs next to nothing and ends within some 25 ms of a commit (`wake.py`). What no commit announces, a back-off
  that ran out or a chat that was killed, is looked for twice a second.
- A database that others keep locked beyond the wait is waited for again: it ends no worker before it has a job.
- huey hides what a task raises, so a task raises nothing: what a job could not settle is raised by `loop`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Final

from huey import Huey
from huey.consumer import Worker, WorkerRecycle

from emelex_core.db.database import Transaction
from emelex_core.errors import Cancelled, StaleJobLease, StorageBusy
from emelex_core.jobs.kinds import JobKind
from emelex_queue.huey_storage import JobTableStorage
from emelex_queue.lease import JobLease
from emelex_queue.records import CountedLoss
from emelex_queue.turns import Turns
from emelex_workers import planning
from emelex_workers.attempt import attempt
from emelex_workers.heartbeat import Heart
from emelex_workers.losses import ended_by_loss
from emelex_workers.pool.child import Child, be_nice
from emelex_workers.pool.engine import KeptEngines
from emelex_workers.pool.events import JobLost
from emelex_workers.pool.flight import Flight
from emelex_workers.pool.planning_lock import PlanningLock
from emelex_workers.pool.recycle import MemoryGuard
from emelex_workers.pool.slate import Phase, Place
from emelex_workers.pool.wake import POLL_SECONDS, CommitWatch
from emelex_workers.progress import JobStarted, ModelLoading

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
        self._flight = Flight(child.slate, self._fly)
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
        self._turns = Turns(self._store.database, clock=self._store.clock, hear=self._hear_loss)
        self._opened.callback(self._turns.give_back)
        self._heart = self._opened.enter_context(Heart(self._store.database))
        # A connection of its own: it sees what this worker's jobs commit, too, and waits for none of them.
        watched = self._store.database.sibling()
        self._opened.callback(watched.close)
        self._watch = CommitWatch(watched)
        registered = {kind: self.huey.task(name=kind.value)(self._work) for kind in JobKind}
        names = {kind: self.huey._registry.task_to_string(task.task_class) for kind, task in registered.items()}
        self._storage.attach(self._next_lease, names)
        self._slate.enter(Phase.WAITING)

    def loop(self, now: datetime | None = None) -> None:
        """Take one job, if one comes within a second, and start it. Raises: what the code of any job could not settle.

        Whatever ends this worker before its time gives the jobs back that are still under way.
        """
        try:
            self._take_one(now)
        except WorkerRecycle:
            raise
        except Exception:
            self._tether.abort.cancel()
            raise

    def shutdown(self) -> None:
        """See the jobs under way settled, free the model and close the store."""
        self._flight.join()
        self._opened.close()

    def _take_one(self, now: datetime | None) -> None:
        self._flight.check()
        if not self._flight.has_room(within_seconds=_DEQUEUE_SECONDS):
            return
        task = self.huey.dequeue()
        if task is None:
            return
        self.huey.execute(task, now)
        self._flight.check()
        if self._memory.outgrown():
            self._flight.join()
            raise WorkerRecycle

    def _hear_loss(self, loss: CountedLoss) -> None:
        self.child.say(ended_by_loss(loss))

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
            lease = self._turns.take()
            if lease is not None:
                return lease
            now = time.monotonic()
            changed = self._watch.changed()
            self._unplanned |= changed
            if changed or now >= self._look_at:
                self._look_at = now + _LOOK_SECONDS
                lease = self._turn(now)
                if lease is not None:
                    # There may be more: nothing is waited for before the next look.
                    self._look_at = 0.0
                    return lease
            if now >= give_up:
                return None
            self._tether.stop.wait(POLL_SECONDS)
        return None

    def _turn(self, now: float) -> JobLease | None:
        """Plan what has grown, then claim; the model is there before the first job is."""
        self._plan(now)
        if not self._engines.is_loaded:
            if not self._turns.has_claimable():
                return None
            self.child.say(ModelLoading(reference=self._engines.reference))
            self._engines.load()
        if self._tether.stop.cancelled:
            return None
        return self._turns.claim()

    def _claim_beside(self, transaction: Transaction) -> Callable[[], None]:
        """Claim the next job in the settlement of this one, if it can be begun as soon as this one is reported."""
        # The settlement itself is a change that planning has not seen.
        planning_is_due = time.monotonic() >= min(self._plan_at, self._plan_idle_at)
        if planning_is_due or self._tether.stop.cancelled or self._flight.is_shared:
            return lambda: None
        return self._turns.claim_beside(transaction)

    def _plan(self, now: float) -> None:
        due = now >= self._plan_idle_at or (self._unplanned and now >= self._plan_at)
        if not due:
            return
        self._plan_at = now + _PLAN_SECONDS
        with self._lock.attempt() as held:
            if not held:
                # Somebody plans just now; whether that was enough is asked again soon, not at every claim.
                self._plan_idle_at = max(self._plan_idle_at, self._plan_at)
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
        """The task that huey calls: start the claimed job."""
        self._flight.start(self._storage.take(job_id))

    def _fly(self, lease: JobLease, place: Place) -> None:
        """Run one claimed job to its settlement, in the thread that is its own."""
        job = lease.job
        self.child.say(JobStarted(job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt))
        try:
            ended = attempt(
                self._store,
                lease,
                self._engines.lent(place),
                stop=self._tether.abort,
                chunking=self.child.plan.chunking,
                tell=self.child.say,
                heart=self._heart,
                beside=self._claim_beside,
            )
        except StaleJobLease as error:
            lost = JobLost(
                job=job.id, kind=job.kind.value, session=job.session_id, attempt=job.attempt, reason=error.message
            )
            self.child.say(lost)
        else:
            self.child.say(ended)
