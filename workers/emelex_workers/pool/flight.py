"""The jobs that one worker has in flight: one in its own thread, or several in threads that mostly wait for a server.

The module owns these invariants:

- A job has a place of its own on the slate from before its work begins until it is settled, and so there are never more
  jobs than places.
- Each job is worked at in one thread, with its own lease and heartbeat. The threads share the worker's connection, one
  transaction at a time; none holds one while it waits for an answer.
- What the work of a job raises is kept, and raised to the worker at its next look: a thread never fails unheard.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from emelex_queue.lease import JobLease
from emelex_workers.pool.slate import Place, Slate

Fly: TypeAlias = Callable[[JobLease, Place], None]


class Flight:
    """A worker's jobs under way. Its verbs are for the worker's own thread; `fly` runs in the job's."""

    def __init__(self, slate: Slate, fly: Fly) -> None:
        self._fly = fly
        self._threads = ThreadPoolExecutor(len(slate.places), "job") if len(slate.places) > 1 else None
        self._free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for place in slate.places:
            self._free.put(place)
        self._fault: Exception | None = None

    @property
    def is_shared(self) -> bool:
        """Whether several jobs may be under way at once."""
        return self._threads is not None

    def has_room(self, *, within_seconds: float) -> bool:
        """Wait until another job can start, for at most so long; return whether it can."""
        try:
            place = self._free.get(timeout=within_seconds)
        except queue.Empty:
            return False
        self._free.put(place)
        return True

    def start(self, lease: JobLease) -> None:
        """Begin a claimed job; there must be room. Where there is one place only, the job ends before this returns."""
        place = self._free.get_nowait()
        place.begin_job(lease.job.id, lease.job.attempt)
        if self._threads is None:
            self._run(lease, place)
        else:
            self._threads.submit(self._run, lease, place)

    def check(self) -> None:
        """Raise what the work of a job could not settle, if there was anything."""
        if self._fault is not None:
            raise self._fault

    def join(self) -> None:
        """Wait until no job is under way; none can be started after that."""
        if self._threads is not None:
            self._threads.shutdown()

    def _run(self, lease: JobLease, place: Place) -> None:
        try:
            self._fly(lease, place)
        except Exception as error:  # noqa: BLE001 - kept for `check`; a job's thread has nobody to raise to
            self._fault = error
        finally:
            place.end_job()
            self._free.put(place)
