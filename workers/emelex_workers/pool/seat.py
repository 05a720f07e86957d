"""A seat: one place for a process in a pool, whoever fills it at the moment."""

from __future__ import annotations

import signal
from multiprocessing.context import ForkProcess
from typing import Final

from emelex_workers.pool.child import FATAL, RECYCLED
from emelex_workers.pool.events import Death, WorkerEnded
from emelex_workers.pool.respawn import Respawn
from emelex_workers.pool.slate import Slate, Work

_EXPECTED: Final = {0: "stopped", RECYCLED: "recycled"}
"""Ends that are nobody's fault: the seat is filled again at once."""


class Seat:
    """One seat. The process in it is replaced when it dies; its slate and its count of deaths stay."""

    def __init__(self, name: str, *, deaths_max: int, jobs_max: int = 1) -> None:
        self.name = name
        self.slate = Slate(jobs_max)
        self.respawn = Respawn(deaths_max=deaths_max)
        self.process: ForkProcess | None = None
        self.due_at: float | None = None
        """When the empty seat is to be filled, in monotonic seconds; None when it is filled or stays empty."""
        self.shot = False
        """Whether a shutdown had to kill the process."""

    @property
    def pid(self) -> int:
        """The process in the seat, 0 when it is empty."""
        return 0 if self.process is None else self.process.pid or 0

    @property
    def running(self) -> bool:
        """Whether a process sits here that has not ended."""
        return self.process is not None and self.process.pid is not None and self.process.exitcode is None

    @property
    def over(self) -> bool:
        """Whether a process sits here that has ended and was not buried yet."""
        return self.process is not None and self.process.pid is not None and self.process.exitcode is not None

    def kill(self) -> None:
        """Kill the process in the seat: a shutdown's last means."""
        if self.process is not None and self.running:
            self.shot = True
            self.process.kill()

    def bury(self) -> tuple[WorkerEnded, tuple[Work, ...]]:
        """Empty the seat; return how the process ended, and the jobs that it left."""
        process, works = self.process, self.slate.works()
        assert process is not None, "the seat is empty"
        pid, code = self.pid, process.exitcode
        assert code is not None, "only the dead are buried"
        process.close()
        self.process = None
        self.slate.clear()
        jobs = tuple(work.job for work in works)
        if code < 0:
            return WorkerEnded(worker=self.name, pid=pid, why="killed", signal=_signal_name(-code), jobs=jobs), works
        why = _EXPECTED.get(code, "failed")
        return WorkerEnded(worker=self.name, pid=pid, why=why, exit_code=code, jobs=jobs), works


def fatal_code(ended: WorkerEnded) -> int | None:
    """The exit code of the pool when this end makes it pointless to go on, else None."""
    code = ended.exit_code or 0
    return code - FATAL if code > FATAL else None


def death_of(ended: WorkerEnded, work: Work) -> Death:
    """What a parent knows of the death that left a job behind."""
    how = f"was killed by {ended.signal}" if ended.why == "killed" else f"failed with exit code {ended.exit_code}"
    return Death(
        job=work.job, attempt=work.attempt, seconds=work.seconds, diagnostic=f"the worker's process {how} {work.doing}"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
