"""What a worker is doing, in memory that its parent shares: it can be read after the worker was killed.

The worker writes a job first and its phase last; the phase is one byte, so that a kill at any moment leaves a slate
that reads as either the old state or the new one.
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


class Phase(IntEnum):
    """What a worker does."""

    STARTING = 0
    WAITING = 1
    LOADING = 2
    READING = 3
    COMPUTING = 4
    BETWEEN = 5


_HAS_JOB: Final = frozenset({Phase.READING, Phase.COMPUTING, Phase.BETWEEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The job that a slate names. `seconds` is how long it has been worked at."""

    job: str
    attempt: int
    seconds: float
    doing: str


class Slate:
    """One worker's slate. Make it before the fork; the child writes, the parent reads."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def enter(self, phase: Phase) -> None:
        """Say what the worker does now."""
        self._memory[0] = phase

    def begin_job(self, job: str, attempt: int) -> None:
        """Say that a claimed job's work begins."""
        _RECORD.pack_into(self._memory, 1, time.monotonic(), job.encode("ascii"), attempt, 0)
        self.enter(Phase.READING)

    def begin_call(self) -> None:
        """Say that the model computes."""
        calls: int = _CALLS.unpack_from(self._memory, _CALLS_AT)[0]
        _CALLS.pack_into(self._memory, _CALLS_AT, calls + 1)
        self.enter(Phase.COMPUTING)

    @property
    def phase(self) -> Phase:
        """What the worker did when it was last heard of."""
        return Phase(self._memory[0])

    def work(self) -> Work | None:
        """The job in the worker's hands, or None."""
        phase = self.phase
        if phase not in _HAS_JOB:
            return None
        began, job, attempt, calls = _RECORD.unpack_from(self._memory, 1)
        doing = {
            Phase.READING: "before its first model call",
            Phase.COMPUTING: f"while the model computed (call {calls})",
        }.get(phase, f"after model call {calls}")
        return Work(job=job.decode("ascii"), attempt=attempt, seconds=time.monotonic() - began, doing=doing)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
