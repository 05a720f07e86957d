"""Telling a service manager: READY, STATUS, STOPPING, and a watchdog that only real progress feeds (sd_notify(3)).

The module owns these invariants:

- Without NOTIFY_SOCKET nothing is sent, and nothing fails.
- The watchdog is fed at most every quarter of its interval, and never by a timer: by an event of a job, or by a round
  of the pool's loop while no job runs or a running one has told a step not too long ago. A pool that hangs starves it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from emelex_workers.pool.events import JobLost, PoolEvent, PoolStarted, PoolStopping, WorkerEnded, WorkerFault
from emelex_workers.progress import JobEnded, JobStarted, JobStep, ModelLoading

STALL_SECONDS: Final = 15 * 60.0
"""A model call that tells nothing for longer is stuck: 1,024 tokens out of a full context took under three minutes."""
_FEEDS_AN_INTERVAL: Final = 4


class Notifier:
    """One process's line to its service manager, if it has one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Take the socket and the watchdog's interval from the environment."""
        given = os.environ if environment is None else environment
        self._address = given.get("NOTIFY_SOCKET", "")
        microseconds = given.get("WATCHDOG_USEC", "")
        ours = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_seconds: float | None = None
        if self._address and ours and microseconds.isdecimal() and int(microseconds):
            self.watchdog_seconds = int(microseconds) / 1_000_000

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._address)

    def send(self, **assignments: str) -> bool:
        """Send assignments such as `READY="1"`; return whether they left. Never raises for a manager that is gone."""
        if not self._address:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(f"{name}={' '.join(value.split())}" for name, value in assignments.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.settimeout(1.0)
                line.sendto(text.encode("utf-8", "replace"), address)
        except OSError:
            return False
        return True


class Supervision:
    """Turns a pool's events into notifications. Give `hear` every event, and call `tick` once a round of its loop."""

    def __init__(
        self,
        notifier: Notifier,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._notifier = notifier
        self._monotonic = monotonic
        self._stall_seconds = stall_seconds
        self._fed_at = -1e9
        self._running: dict[str, float] = {}
        self._counts: dict[str, int] = dict.fromkeys(("completed", "retry", "failed", "released", "lost"), 0)
        self._workers = 0
        self._stopping = False

    def hear(self, event: PoolEvent) -> None:
        """Take one event in."""
        match event:
            case PoolStarted():
                self._workers = event.workers
                self._notifier.send(READY="1", STATUS=self._status())
            case PoolStopping():
                self._stopping = True
                self._notifier.send(STOPPING="1", STATUS=f"stopping: {event.reason}")
            case JobStarted() | JobStep():
                self._running[event.job] = self._monotonic()
            case JobEnded():
                self._ended(event.job, event.outcome)
            case JobLost():
                self._ended(event.job, "lost")
            case WorkerEnded():
                for job in event.jobs:
                    self._running.pop(job, None)
                return
            case ModelLoading() | WorkerFault():
                # What a worker that is going or coming does is no progress of any job.
                return
            case _:
                pass
        self._feed()

    def tick(self) -> None:
        """Note a round of the pool's loop: it feeds the watchdog unless every running job is stuck."""
        now = self._monotonic()
        if not self._running or any(now - told < self._stall_seconds for told in self._running.values()):
            self._feed()

    def _ended(self, job: str, outcome: str) -> None:
        self._running.pop(job, None)
        self._counts[outcome] = self._counts.get(outcome, 0) + 1
        if not self._stopping:
            self._notifier.send(STATUS=self._status())

    def _feed(self) -> None:
        if self._notifier.watchdog_seconds is None:
            return
        now = self._monotonic()
        if now - self._fed_at >= self._notifier.watchdog_seconds / _FEEDS_AN_INTERVAL:
            self._fed_at = now
            self._notifier.send(WATCHDOG="1")

    def _status(self) -> str:
        told = ", ".join(f"{count} {outcome}" for outcome, count in self._counts.items() if count)
        return f"{self._workers} workers, {len(self._running)} jobs running; {told or 'none done yet'}"
