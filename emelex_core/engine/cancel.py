"""Asking a generation to stop, from another thread or a signal handler.

The flag must be settable inside a signal handler, which runs in the middle of whatever the main thread does, even of
its own `wait`. A `threading.Event` guards itself with a lock that such a handler would wait for for ever; so waiting is
done on one bare lock, which any thread may release and which nobody holds while Python code runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress


class CancelToken:
    """A flag that one thread sets and an engine polls. Setting it twice is setting it once."""

    def __init__(self) -> None:
        self._cancelled = False
        self._gate = threading.Lock()
        self._gate.acquire()
        self._watchers: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Ask the generation to stop as soon as it can."""
        self._cancelled = True
        self._open_gate()
        for call in tuple(self._watchers):
            call()

    @contextmanager
    def watched(self, call: Callable[[], None]) -> Generator[None]:
        """Have `call` run in the cancelling thread when anybody asks while the block lasts; at once if they have.

        `call` must be quick, idempotent and free of locks: it may run inside a signal handler.
        """
        self._watchers.append(call)
        try:
            if self.cancelled:
                call()
            yield
        finally:
            self._watchers.remove(call)

    @property
    def cancelled(self) -> bool:
        """Whether anybody asked."""
        return self._cancelled

    def wait(self, seconds: float) -> bool:
        """Wait until cancelled, for at most so many seconds; return whether it was."""
        if not self._cancelled and self._gate.acquire(timeout=seconds):
            # Only a cancelled token's gate can be passed; it is left open for whoever else waits.
            self._open_gate()
        return self._cancelled

    def _open_gate(self) -> None:
        # It stands open already where two ask at once.
        with suppress(RuntimeError):
            self._gate.release()
