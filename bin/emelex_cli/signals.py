"""Ctrl-C and TERM: the first asks the work to stop, the second ends the process at once (behaviour 167)."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from emelex_core.engine.cancel import CancelToken

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """What was asked. `token` is set with the first signal; `exit_code` is then 128 and its number."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self._signal: int | None = None

    @property
    def exit_code(self) -> int | None:
        """The documented exit code of the signal that came, or None."""
        return None if self._signal is None else 128 + self._signal

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle one signal."""
        del frame
        if self._signal is not None:
            os._exit(128 + number)
        self._signal = number
        self.token.cancel()


@contextmanager
def stopping() -> Generator[Stop]:
    """Take both signals while the block lasts, then give them back. For the main thread."""
    stop = Stop()
    before = {number: signal.signal(number, stop.take) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
