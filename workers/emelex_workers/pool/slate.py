"""What a worker is doing, in memory that its parent shares: it can be read after the worker was killed.

One byte says what the process does; then comes a place for each job that the worker may have in its hands at once.

The module owns this invariant: a place's job is written first and its phase, one byte, last, so that a kill at any
moment leaves a place that reads as either the old state or the new one.
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_RECORD: Final = struct.Struct("=d36sII")
"""When the job was started (monotonic seconds), its id, the attempt, and how many model calls have begun."""
_CALLS: Final = struct.Struct("=I")
_CALLS_AT: Final = 1 + _RECORD.size - _CALLS.size
_PLACE_BYTES: Final = 1 + _RECORD.size


class Phase(IntEnum):
    """What a worker does as a whole, and what it does for one job."""

    STARTING = 0
    WAITING = 1
    LOADING = 2
    READING = 3
    COMPUTING = 4
    BETWEEN = 5


_HAS_JOB: Final = frozenset({Phase.READING, Phase.COMPUTING, Phase.BETWEEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job that a slate names. `seconds` is how long it has been worked at."""

    job: str
    attempt: int
    seconds: float
    doing: str


class Place:
    """What is written of one job. One thread of the worker writes it."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory = memory
        self._start = start

    def begin_job(self, job: str, attempt: int) -> None:
        """Say that a claimed job's work begins."""
        _RECORD.pack_into(self._memory, self._start + 1, time.monotonic(), job.encode("ascii"), attempt, 0)
        self._enter(Phase.READING)

    def begin_call(self) -> None:
        """Say that the model computes."""
        calls: int = _CALLS.unpack_from(self._memory, self._start + _CALLS_AT)[0]
        _CALLS.pack_into(self._memory, self._start + _CALLS_AT, calls + 1)
        self._enter(Phase.COMPUTING)

    def end_call(self) -> None:
        """Say that the model has answered."""
        self._enter(Phase.BETWEEN)

    def end_job(self) -> None:
        """Say that the job is out of the worker's hands."""
        self._enter(Phase.WAITING)

    def work(self) -> Work | None:
        """The job that stands here, or None."""
        phase = Phase(self._memory[self._start])
        if phase not in _HAS_JOB:
            return None
        began, job, attempt, calls = _RECORD.unpack_from(self._memory, self._start + 1)
        doing = {
            Phase.READING: "before its first model call",
            Phase.COMPUTING: f"while the model computed (call {calls})",
        }.get(phase, f"after model call {calls}")
        return Work(job=job.decode("ascii"), attempt=attempt, seconds=time.monotonic() - began, doing=doing)

    def _enter(self, phase: Phase) -> None:
        self._memory[self._start] = phase


class Slate:
    """One worker's slate, with so many places for jobs. Make it before the fork; the child writes, the parent reads."""

    def __init__(self, places: int = 1) -> None:
        self._memory = mmap.mmap(-1, 1 + places * _PLACE_BYTES)
        self.places = tuple(Place(self._memory, 1 + number * _PLACE_BYTES) for number in range(places))

    def enter(self, phase: Phase) -> None:
        """Say what the worker does now."""
        self._memory[0] = phase

    @property
    def phase(self) -> Phase:
        """What the worker did when it was last heard of."""
        return Phase(self._memory[0])

    def works(self) -> tuple[Work, ...]:
        """The jobs in the worker's hands."""
        found = (place.work() for place in self.places)
        return tuple(work for work in found if work is not None)

    def clear(self) -> None:
        """Say that a worker starts with nothing in its hands."""
        for place in self.places:
            place.end_job()
        self.enter(Phase.STARTING)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
