"""A flag that forked processes share: set once, never taken back, and visible in all of them at once.

It is a pipe with at most a few bytes in it. No lock is involved, so a process that is killed while it looks cannot
leave the flag stuck, and whoever waits for other things as well can wait for its descriptor.
"""

from __future__ import annotations

import os
import select


class Latch:
    """What huey calls a stop flag. Make it before the fork."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def set(self) -> None:
        """Set the flag. It may be called inside a signal handler."""
        if not self.is_set():
            os.write(self._writer, b"!")

    def is_set(self) -> bool:
        """Whether anybody has set it."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most so many seconds; return whether it is."""
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1000))

    def fileno(self) -> int:
        """The descriptor that becomes readable when the flag is set."""
        return self._reader

    def close(self) -> None:
        """Close this process's ends."""
        os.close(self._reader)
        os.close(self._writer)
