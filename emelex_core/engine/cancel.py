"""Asking a generation to stop, from another thread or a signal handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class CancelToken:
    """A flag that one thread sets and an engine polls. Setting it twice is setting it once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._watchers: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Ask the generation to stop as soon as it can."""
        self._event.set()
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
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until cancelled, for at most so many seconds; return whether it was."""
        return self._event.wait(seconds)
