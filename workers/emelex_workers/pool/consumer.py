"""The pool's parent: huey's Consumer with process workers, its own signals, respawns and shutdown.

    run ── start ── loop: hear events, bury the dead, fill their seats ── shut down

The module owns these invariants:

- The parent holds no connection and no second thread while it may fork, and signals are blocked during a fork.
- TERM and INT reach every child as a flag in a pipe, set inside the signal handler. A second one aborts what runs, a
  third one kills. Nobody is killed before grace and two seconds have passed since the first.
- When the pool ends, no child is left, and each job that a child left behind has been counted (it died by itself) or
  given back (the shutdown killed it).
- Events are heard before deaths are looked at, so that a job's start is always told before its worker's end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Final, TypeAlias, cast

from huey import Huey
from huey.consumer import BaseProcess, Consumer, ConsumerStopped, ProcessEnvironment, Scheduler, Worker

from emelex_core.errors import Invalid, Storage
from emelex_core.store import MemoryStore
from emelex_queue import deaths
from emelex_queue.huey_storage import JobTableStorage
from emelex_workers.pool.child import Child, Lines, Living, PoolPlan, live
from emelex_workers.pool.events import Channel, Death, PoolEvent, PoolStopping, WorkerStarted
from emelex_workers.pool.latch import Latch
from emelex_workers.pool.scheduler import PoolScheduler, count
from emelex_workers.pool.seat import Seat, death_of, fatal_code
from emelex_workers.pool.tether import SIGNALS, signals_blocked
from emelex_workers.pool.worker import PoolWorker
from emelex_workers.progress import JobEnded

Listener: TypeAlias = Callable[[PoolEvent], None]

KILL_SECONDS: Final = 2.0
"""After the grace: how long an aborted job has to be given back."""
HARD_SECONDS: Final = 1.0
"""After a second signal."""
_IDLE_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.01
_SHUTDOWN_LOOK_SECONDS: Final = 0.05
_SCHEDULER: Final = "Scheduler"


class PoolEnvironment(ProcessEnvironment):
    """Forks. The stop flag is the pool's own, and a child's signals are its tether's business."""

    def __init__(self, stop: Latch) -> None:
        super().__init__(signal.SIGINT, signal.SIGTERM)
        self._stop = stop

    def get_stop_flag(self) -> Latch:
        """The pool's flag."""
        return self._stop

    def init_child(self, process: BaseProcess) -> None:
        """Do nothing: `pool_child.live` holds the tether."""
        del process


class PoolConsumer(Consumer):
    """One run of one pool. `exit_code` says how it ended."""

    def __init__(
        self,
        huey: Huey,
        plan: PoolPlan,
        *,
        workers: int,
        listen: Listener,
        each_round: Callable[[], None] = lambda: None,
    ) -> None:
        self.exit_code = 0
        self._plan = plan
        self._lines: Final = _new_lines()
        self._listener = listen
        self._each_round = each_round
        self._listener_error: BaseException | None = None
        self._seats: dict[str, Seat] = {}
        self._signals: list[int] = []
        self._given_up: str | None = None
        super().__init__(huey, workers, False, worker_type="process", shutdown_timeout=plan.grace_seconds)

    # --- what huey asks for -------------------------------------------------------------------------------------------

    def get_environment(self, worker_type: str) -> PoolEnvironment:
        """Forked processes, tied to this one."""
        del worker_type
        return PoolEnvironment(self._lines.stop)

    def _create_worker(self) -> Worker:
        number = 1 + sum(name != _SCHEDULER for name in self._seats)
        return self._new_worker(self._seat(f"Worker-{number}"))

    def _create_scheduler(self) -> Scheduler:
        return self._new_scheduler(self._seat(_SCHEDULER))

    def _create_process(self, process: BaseProcess, name: str) -> ForkProcess:
        made = self.environment.create_process(partial(live, cast(Living, process)), name)
        self._seats[name].process = made
        return made

    def _set_signal_handlers(self) -> None:
        """Do nothing: `run` has set them before the first fork."""

    def start(self) -> None:
        """Start every process. Raises: Invalid when this process has a second thread."""
        _require_one_thread()
        with signals_blocked():
            super().start()
        for seat in self._seats.values():
            self._tell(WorkerStarted(worker=seat.name, pid=seat.pid))

    def run(self) -> None:
        """Run until a signal, until `request_stop`, or until the pool gives up. Raises: what the listener raised."""
        with self._handlers():
            try:
                super().run()
            finally:
                self._shut_down()
        if self._listener_error is not None:
            raise self._listener_error

    def loop(self, health_check_ts: float | None = None) -> float | None:
        """One round: wait for news, tell it, bury the dead, fill their seats."""
        self._wait_for_news(self._seconds_to_next_respawn(), self._lines.stop.fileno(), self._lines.events.fileno())
        # What is told is told together: a parent that woke up for each event would take its workers' time.
        self._wait_for_news(_GATHER_SECONDS, self._lines.stop.fileno())
        self._hear()
        if self.stop_flag.is_set() or self._listener_error is not None:
            raise ConsumerStopped
        self.check_worker_health()
        self._each_round()
        return health_check_ts

    def check_worker_health(self) -> bool:
        """Bury who has died and fill the seats that are due; return whether nobody had died."""
        _reap_strangers({seat.pid for seat in self._seats.values()})
        over = [seat for seat in self._seats.values() if seat.over]
        for seat in over:
            self._replace(seat)
        for seat in self._seats.values():
            if seat.due_at is not None and time.monotonic() >= seat.due_at and not self.stop_flag.is_set():
                self._fill(seat)
        return not over

    def request_stop(self) -> None:
        """End the run as a first signal would; the exit code is 0. May be called inside the listener."""
        self._lines.stop.set()

    # --- seats --------------------------------------------------------------------------------------------------------

    def _seat(self, name: str) -> Seat:
        seat = Seat(name, deaths_max=self._plan.deaths_max, jobs_max=self._plan.in_flight)
        self._seats[name] = seat
        return seat

    def _new_worker(self, seat: Seat) -> PoolWorker:
        child = Child(self._plan, self._lines, seat.name, seat.slate)
        return PoolWorker(self.huey, child, cast(JobTableStorage, self.huey.storage))

    def _new_scheduler(self, seat: Seat) -> PoolScheduler:
        return PoolScheduler(self.huey, Child(self._plan, self._lines, seat.name, seat.slate), self._lines)

    def _replace(self, seat: Seat) -> None:
        """Bury a dead process, report the jobs that it left, and decide when its seat is filled again."""
        ended, works = seat.bury()
        for work in works:
            self._lines.deaths.send("parent", death_of(ended, work))
        fatal = fatal_code(ended)
        delay: float | None = None
        if ended.why in {"stopped", "recycled"}:
            delay = 0.0
        elif fatal is not None:
            self._give_up(fatal, f"{seat.name} cannot work")
        else:
            delay = seat.respawn.after_death()
            if delay is None:
                self._give_up(ended.exit_code or 1, f"{seat.name} died {seat.respawn.deaths} times in a row")
        seat.due_at = None if delay is None else time.monotonic() + delay
        self._tell(replace(ended, respawn_seconds=delay))

    def _fill(self, seat: Seat) -> None:
        _require_one_thread()
        seat.due_at = None
        if seat.name == _SCHEDULER:
            self.scheduler = self._create_process(self._new_scheduler(seat), seat.name)
        else:
            worker = self._new_worker(seat)
            index = int(seat.name.rpartition("-")[2]) - 1
            self.worker_threads[index] = (worker, self._create_process(worker, seat.name))
        assert seat.process is not None
        with signals_blocked():
            seat.process.start()
        self._tell(WorkerStarted(worker=seat.name, pid=seat.pid))

    def _give_up(self, code: int, reason: str) -> None:
        self._given_up = self._given_up or reason
        self.exit_code = self.exit_code or code
        self._lines.stop.set()

    # --- news ---------------------------------------------------------------------------------------------------------

    def _seconds_to_next_respawn(self) -> float:
        now = time.monotonic()
        waits = [max(0.0, seat.due_at - now) for seat in self._seats.values() if seat.due_at is not None]
        return min([*waits, _IDLE_SECONDS])

    def _wait_for_news(self, seconds: float, *descriptors: int) -> None:
        sentinels = [seat.process.sentinel for seat in self._seats.values() if seat.process is not None and seat.pid]
        wait([*descriptors, *sentinels], seconds)

    def _hear(self) -> None:
        for sender, event in self._lines.events.receive_events():
            if isinstance(event, JobEnded) and not event.lost and sender != _SCHEDULER:
                self._seats[sender].respawn.proved()
            self._tell(event)

    def _tell(self, event: PoolEvent) -> None:
        """Tell the listener. What it raises ends the run; it is not called again after that."""
        if self._listener_error is not None:
            return
        try:
            self._listener(event)
        except BaseException as error:  # noqa: BLE001 - kept, and raised by `run` when no child is left
            self._listener_error = error

    # --- the end ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _handlers(self) -> Generator[None]:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        # A hang-up that was ignored before (nohup) stays ignored.
        taken = [number for number in SIGNALS if number != signal.SIGHUP or before[number] != signal.SIG_IGN]
        for number in taken:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number in taken:
                signal.signal(number, before[number])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signals.append(number)
        (self._lines.stop if len(self._signals) == 1 else self._lines.abort).set()

    def _shut_down(self) -> None:
        """Let running jobs finish within the grace, abort them after it, kill what is left two seconds later."""
        self._lines.stop.set()
        if self._signals:
            self.exit_code = 128 + (signal.SIGINT if self._signals[0] == signal.SIGINT else signal.SIGTERM)
        self._tell(PoolStopping(reason=self._why_stopping(), grace_seconds=self._plan.grace_seconds))
        kill_at = time.monotonic() + self._plan.grace_seconds + KILL_SECONDS
        left: list[Death] = []
        orphans: list[tuple[str, int]] = []
        while any(seat.process is not None and seat.process.pid is not None for seat in self._seats.values()):
            if self._lines.abort.is_set():
                kill_at = min(kill_at, time.monotonic() + HARD_SECONDS)
            if time.monotonic() >= kill_at or len(self._signals) > 2:
                for seat in self._seats.values():
                    seat.kill()
            self._wait_for_news(_SHUTDOWN_LOOK_SECONDS, self._lines.events.fileno())
            self._hear()
            for seat in [seat for seat in self._seats.values() if seat.over]:
                ended, works = seat.bury()
                self._tell(ended)
                if seat.shot:
                    orphans += [(work.job, work.attempt) for work in works]
                else:
                    left += [death_of(ended, work) for work in works]
        self._settle_remains(left + self._lines.deaths.receive_deaths(), orphans)
        self._lines.close()

    def _settle_remains(self, left: list[Death], orphans: list[tuple[str, int]]) -> None:
        """Nobody is left to fork for, so this process may open the store: no job waits for its lease to run out."""
        if not left and not orphans:
            return
        try:
            with MemoryStore.open(self._plan.home, clock=self._plan.clock) as store:
                for job, attempt in orphans:
                    deaths.release_orphan(store.database, job_id=job, attempt=attempt)
                for death in left:
                    ended = count(store.database, death, clock=store.clock)
                    if ended is not None:
                        self._tell(ended)
        except Storage:
            # The next claim by anybody counts them: their owners are dead.
            return

    def _why_stopping(self) -> str:
        if self._signals:
            return signal.Signals(self._signals[0]).name
        return self._given_up or "asked to"


def _new_lines() -> Lines:
    return Lines(stop=Latch(), abort=Latch(), events=Channel(), deaths=Channel())


def _require_one_thread() -> None:
    """A fork copies locks that other threads hold, and nobody gives them back in the child."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others or threading.current_thread() is not threading.main_thread():
        raise Invalid(f"a pool forks, so it needs a process without other threads; running: {', '.join(others)}")


def _reap_strangers(ours: set[int]) -> None:
    """As process 1 of a container, reap what others left to us. Ours are left to `multiprocessing`."""
    while os.getpid() == 1:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)
