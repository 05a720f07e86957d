"""The pool's scheduler: huey's Scheduler process, which keeps the books of the dead.

It counts the claims that nobody holds any more several times a second, so that a killed worker's job is soon back, and
it writes down what the parent knows of a death: the parent itself holds no connection, since it forks.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from multiprocessing.connection import wait
from typing import Final

from huey import Huey
from huey.consumer import Scheduler

from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.errors import EmelexError, StorageBusy
from emelex_queue import claims, deaths
from emelex_workers.losses import ended_by_loss
from emelex_workers.maintain import Keeper
from emelex_workers.pool.child import Child, Lines
from emelex_workers.pool.events import Death, WorkerFault
from emelex_workers.pool.slate import Phase
from emelex_workers.progress import JobEnded

_LOOK_SECONDS: Final = 0.25
"""Between two looks for lost claims; a look is one read."""


class PoolScheduler(Scheduler):
    """The scheduler of a pool. Everything but its making happens in the child."""

    def __init__(self, huey: Huey, child: Child, lines: Lines) -> None:
        super().__init__(huey, child.tether.stop_latch, 1, False)
        self.child = child
        self._lines = lines
        self._opened = ExitStack()
        self._look_at = 0.0
        self._reported: list[Death] = []

    def initialize(self) -> None:
        """Open the store."""
        self._store = self._opened.enter_context(self.child.open_store())
        if self.child.plan.maintenance is not None:
            self._keep(self.child.plan.maintenance)
        self.child.slate.enter(Phase.WAITING)

    def loop(self, now: datetime | None = None) -> None:
        """Count what was reported, and look for lost claims when it is time. Raises: Storage, Corrupt."""
        wait([self._lines.deaths.fileno(), self._lines.stop.fileno()], max(0.0, self._look_at - time.monotonic()))
        try:
            self._reported += self._lines.deaths.receive_deaths()
            while self._reported:
                self._count(self._reported[0])
                del self._reported[0]
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _LOOK_SECONDS
                for loss in claims.recover_lost(self._store.database, clock=self._store.clock):
                    self.child.say(ended_by_loss(loss))
        except StorageBusy:
            # Others commit; what was reported is kept, and the next round tries again.
            return

    def shutdown(self) -> None:
        """Close the store."""
        self._opened.close()

    def _keep(self, schedule: str) -> None:
        """Maintain the store on a schedule, in a thread: the dead are counted meanwhile."""
        keeper = Keeper(
            self.child.open_store,
            self.child.tether.stop,
            tell=self._tell_fault,
            schedule=schedule,
            policy=self.child.plan.retention,
        )
        self._opened.callback(keeper.join)
        keeper.start()

    def _tell_fault(self, error: EmelexError) -> None:
        self.child.say(WorkerFault(worker="maintenance", kind=error.kind, message=error.message))

    def _count(self, death: Death) -> None:
        ended = count(self._store.database, death, clock=self._store.clock)
        if ended is not None:
            self.child.say(ended)


def count(database: Database, death: Death, *, clock: Clock) -> JobEnded | None:
    """Count a death and say how it left the job; None when that attempt had ended before. Raises: Storage."""
    counted = deaths.count_death(
        database, job_id=death.job, attempt=death.attempt, diagnostic=death.diagnostic, clock=clock
    )
    return None if counted is None else ended_by_loss(counted, seconds=death.seconds)
