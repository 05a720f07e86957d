"""What a pool tells while it runs, and the channel on which its processes tell it.

The channel is a pair of datagram sockets: a message arrives whole or not at all, whatever kills its sender. Events of
jobs are those of a drain (`progress.py`); the pool adds what happens to its processes.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import msgspec

from emelex_workers.progress import JobEnded, JobStarted, JobStep, ModelLoading, PlanningNote, WorkEvent

_SEND_SECONDS: Final = 1.0
"""A parent that does not read for longer is stopped or lost; its workers go on without being heard."""
_MESSAGE_BYTES_MAX: Final = 65_536
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStarted:
    """The pool's processes have been started. `threads` and the jobs `in_flight` are those of one worker."""

    pid: int
    workers: int
    threads: int
    reason: str
    in_flight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A process of the pool has been started, or started again."""

    worker: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded:
    """A process of the pool has ended. `why` is stopped, recycled, failed or killed; `signal` names what killed it.

    `respawn_seconds` is when it is started again, None when it is not; `jobs` are those that it left unsettled.
    """

    worker: str
    pid: int
    why: str
    exit_code: int | None = None
    signal: str | None = None
    respawn_seconds: float | None = None
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFault:
    """The error with which a process of the pool gave up. `kind` is its class in the error tree."""

    worker: str
    kind: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLost:
    """A worker found that its lease no longer held its job; somebody else has counted that attempt."""

    job: str
    kind: str
    session: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStopping:
    """The pool claims no more. `reason` says why; running jobs have `grace_seconds` to finish."""

    reason: str
    grace_seconds: float


PoolEvent: TypeAlias = WorkEvent | PoolStarted | WorkerStarted | WorkerEnded | WorkerFault | JobLost | PoolStopping

_TYPES: Final = {
    kind.__name__: kind for kind in (JobStarted, JobEnded, JobStep, ModelLoading, PlanningNote, WorkerFault, JobLost)
}
"""What children say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """What a parent knows of a worker that was killed with a job in its hands."""

    job: str
    attempt: int
    seconds: float
    diagnostic: str


class _Envelope(msgspec.Struct):
    sender: str
    type: str
    body: msgspec.Raw


class Channel:
    """A one-way channel between forked processes: any of them sends, one receives. Make it before the fork."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._receiver.setblocking(False)
        for end, option in ((self._sender, socket.SO_SNDBUF), (self._receiver, socket.SO_RCVBUF)):
            end.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)

    def send(self, sender: str, event: object) -> bool:
        """Send one message, waiting a bounded time for room; return whether it was sent."""
        envelope = _Envelope(sender=sender, type=type(event).__name__, body=msgspec.Raw(msgspec.json.encode(event)))
        self._sender.settimeout(_SEND_SECONDS)
        try:
            self._sender.send(msgspec.json.encode(envelope))
        except OSError:
            return False
        return True

    def receive_events(self) -> list[tuple[str, PoolEvent]]:
        """Take every event that has arrived, with its sender. Waits for none."""
        return [(sent.sender, _event(sent)) for sent in self._messages()]

    def receive_deaths(self) -> list[Death]:
        """Take every death that has been reported. Waits for none."""
        return [msgspec.json.decode(sent.body, type=Death) for sent in self._messages()]

    def fileno(self) -> int:
        """The descriptor that becomes readable when a message has arrived."""
        return self._receiver.fileno()

    def close(self) -> None:
        """Close this process's ends."""
        self._receiver.close()
        self._sender.close()

    def _messages(self) -> list[_Envelope]:
        found: list[_Envelope] = []
        while True:
            try:
                data = self._receiver.recv(_MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return found
            found.append(msgspec.json.decode(data, type=_Envelope))


def _event(sent: _Envelope) -> PoolEvent:
    return cast(PoolEvent, msgspec.json.decode(sent.body, type=_TYPES[sent.type]))
