"""What ties a child to its pool: it dies with its parent, hears the pool's flags, and keeps the pool's deadline.

The module owns these invariants:

- SIGKILL of the parent leaves nobody: the kernel sends SIGKILL to each child (PR_SET_PDEATHSIG). Where a system has no
  such thing, and for the moment before it was asked for, the parent's id is compared with the one before the fork.
- A flag or a SIGTERM is heard while the main thread sits in native code: a thread of the child's own listens, and the
  signal's number arrives through a wake-up descriptor.
- From being told to stop, a job has `grace_seconds`; then it is aborted. The child keeps this deadline itself.
- SIGINT and SIGHUP are the parent's business: a terminal sends them to the whole group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final

from emelex_core.engine.ports import CancelToken
from emelex_workers.pool.latch import Latch

_PR_SET_PDEATHSIG: Final = 1
_LOOK_SECONDS: Final = 0.25
"""How long a parent's death may go unseen where the kernel does not tell."""

SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})

_libc: Final[Any] = ctypes.CDLL(None, use_errno=True)


def tie(parent: int) -> None:
    """Have this process killed when its parent dies; die here when it has died already."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _die_without(parent)


class Tether:
    """A child's ear. `stop` says: claim no more; `abort` says: give up the running job, too."""

    def __init__(self, *, parent: int, stop: Latch, abort: Latch, grace_seconds: float) -> None:
        self.stop = CancelToken()
        self.abort = CancelToken()
        self._parent = parent
        self.stop_latch = stop
        self._abort_latch = abort
        self._grace_seconds = grace_seconds
        self._woken, self._wake = os.pipe()

    def hold(self) -> None:
        """Tie this process to its parent and start listening. Call it once, first thing in the child's main thread."""
        tie(self._parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _heard)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=self._listen, name="tether", daemon=True).start()

    def _listen(self) -> None:
        poller = select.poll()
        for descriptor in (self.stop_latch.fileno(), self._abort_latch.fileno(), self._woken):
            poller.register(descriptor, select.POLLIN)
        abort_at: float | None = None
        while not self.abort.cancelled:
            wait = _LOOK_SECONDS if abort_at is None else min(_LOOK_SECONDS, max(0.0, abort_at - time.monotonic()))
            ready = {descriptor for descriptor, _ in poller.poll(wait * 1000)}
            _die_without(self._parent)
            if self._abort_latch.fileno() in ready:
                break
            if ready and abort_at is None:
                abort_at = time.monotonic() + self._grace_seconds
                self.stop.cancel()
                poller.unregister(self.stop_latch.fileno())
                poller.unregister(self._woken)
            if abort_at is not None and time.monotonic() >= abort_at:
                break
        self.stop.cancel()
        self.abort.cancel()
        self._watch_parent()

    def _watch_parent(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            _die_without(self._parent)


@contextlib.contextmanager
def signals_blocked() -> Any:
    """Hold the pool's signals back while a child is forked, so that it never runs its parent's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_without(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _heard(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number has gone through the wake-up descriptor by now."""
    del number, frame
