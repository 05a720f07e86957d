"""What every process of a pool does: hold on to its parent, open a store of its own, and say how it ends.

The module owns these invariants:

- Nothing of SQLite and no model crosses the fork: each child opens its own store, so that its owner byte dies with it.
- A child's exit code tells its parent what to do next: replace it, replace it with back-off, or give the pool up.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from huey.consumer import WorkerRecycle
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from emelex_core.clock import Clock
from emelex_core.errors import Corrupt, EmelexError, Invalid, NotFound, PermanentFailure, Refused, StorageBusy
from emelex_core.home import Home
from emelex_core.retention.records import RetentionPolicy
from emelex_core.store import MemoryStore
from emelex_workers.engines import EngineSource
from emelex_workers.overrides import PolicyOverrides
from emelex_workers.pool.events import Channel, WorkerFault
from emelex_workers.pool.latch import Latch
from emelex_workers.pool.slate import Slate
from emelex_workers.pool.tether import Tether

RECYCLED: Final = 99
"""The child has grown too large and asks to be replaced."""
FATAL: Final = 100
"""Above this, the rest is the exit code with which the pool ends: trying again cannot help."""

_HOPELESS: Final = (PermanentFailure, Refused, NotFound, Invalid, Corrupt)
_OPEN_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What a pool has decided before it forks. `parent` is its process id; `in_flight` counts one worker's jobs."""

    home: Home
    clock: Clock
    engines: Callable[[], EngineSource]
    policy: PolicyOverrides
    chunking: bool
    threads: int
    in_flight: int
    nice: int
    grace_seconds: float
    growth_bytes_max: int
    deaths_max: int
    maintenance: str | None
    retention: RetentionPolicy
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What a pool's processes share: two flags, and a channel each way. All made before the first fork."""

    stop: Latch
    abort: Latch
    events: Channel
    deaths: Channel

    def close(self) -> None:
        """Close this process's ends."""
        for line in (self.stop, self.abort, self.events, self.deaths):
            line.close()


class Child:
    """A child's tether and voice; made in the parent, used after the fork."""

    def __init__(self, plan: PoolPlan, lines: Lines, name: str, slate: Slate) -> None:
        self.plan = plan
        self.name = name
        self.slate = slate
        self.tether = Tether(parent=plan.parent, stop=lines.stop, abort=lines.abort, grace_seconds=plan.grace_seconds)
        self._events = lines.events

    def say(self, event: object) -> None:
        """Tell the parent. A parent that does not listen is not waited for at length."""
        self._events.send(self.name, event)

    def open_store(self) -> MemoryStore:
        """Open this process's own store; a locked one is waited for. Raises: as `MemoryStore.open`."""
        patiently = Retrying(
            stop=stop_after_delay(_OPEN_SECONDS_MAX),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            retry=retry_if_exception_type(StorageBusy),
            sleep=self._sleep,
            reraise=True,
        )
        return patiently(MemoryStore.open, self.plan.home, clock=self.plan.clock)

    def _sleep(self, seconds: float) -> None:
        self.tether.stop.wait(seconds)


class Living(Protocol):
    """A process of huey's that is one of ours."""

    child: Child

    def initialize(self) -> None:
        """Open what it needs."""
        ...

    def loop(self) -> None:
        """Do one round."""
        ...

    def shutdown(self) -> None:
        """Close what it opened."""
        ...


def live(process: Living) -> NoReturn:
    """Be a child from the fork to its end. Leaves by SystemExit with the code that tells the parent why."""
    child = process.child
    code = 0
    try:
        child.tether.hold()
        try:
            process.initialize()
            while not child.tether.stop.cancelled:
                process.loop()
        finally:
            process.shutdown()
    except WorkerRecycle:
        code = RECYCLED
    except EmelexError as error:
        child.say(WorkerFault(worker=child.name, kind=error.kind, message=error.message, hint=error.hint))
        code = error.exit_code + FATAL if isinstance(error, _HOPELESS) else error.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of a process: its parent must learn that it was a fault
        child.say(WorkerFault(worker=child.name, kind=type(error).__name__, message=_place(error)))
        code = 1
    sys.exit(code)


def be_nice(nice: int) -> None:
    """Lower this process's priority to a niceness; it is never raised."""
    os.nice(max(0, nice - os.nice(0)))


def _place(error: Exception) -> str:
    """Where an unforeseen error came from. Its own words may quote a transcript, so they are not repeated."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"an unforeseen error in {Path(frame.filename).name}, line {frame.lineno}"
