"""Ctrl-C and TERM in a chat: the first Ctrl-C stops the answer, a second one leaves; TERM leaves at once.

Leaving is quick whatever hangs: what is durable is durable already, and the kernel frees what this process holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from emelex_cli.signals import SIGNALS
from emelex_core.engine.cancel import CancelToken

LEAVE_SECONDS: Final = 1.8
"""How long an orderly end may take once a person has asked twice (issue 5, item 6: 2 s)."""
TWICE_SECONDS: Final = 2.0
"""Two Ctrl-C within this time are one wish."""


class Interrupts:
    """What signals have asked for. `exit_code` is set once the chat is to end."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._loop = asyncio.get_running_loop()
        self._turn: CancelToken | None = None
        self._asking: asyncio.Task[Any] | None = None
        self._last: float | None = None

    @contextmanager
    def taken(self) -> Generator[None]:
        """Take both signals while the block lasts, then give them back as they were: the loop would forget them."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self.hear, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    @contextmanager
    def turn(self) -> Generator[CancelToken]:
        """A turn runs while the block lasts; its token is cancelled by the first signal."""
        self._turn = CancelToken()
        if self.exit_code is not None:
            self._turn.cancel()
        try:
            yield self._turn
        finally:
            self._turn = None

    @contextmanager
    def asking(self, task: asyncio.Task[Any]) -> Generator[None]:
        """Somebody is asked something while the block lasts; a signal that ends the chat ends the question."""
        self._asking = task
        try:
            yield
        finally:
            self._asking = None

    def typed(self) -> None:
        """Take a Ctrl-C that was typed at a prompt, where the terminal sends no signal for it."""
        self._take(signal.SIGINT, at_prompt=True)

    def hear(self, number: int) -> None:
        """Take one signal."""
        self._take(number, at_prompt=self._asking is not None)

    def _take(self, number: int, *, at_prompt: bool) -> None:
        now = self._loop.time()
        again = self._last is not None and now - self._last < TWICE_SECONDS
        self._last = now
        if number == signal.SIGTERM or again or (self._turn is None and not at_prompt):
            self._leave(128 + number)
        elif self._turn is not None:
            self._turn.cancel()

    def _leave(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self._loop.call_later(LEAVE_SECONDS, os._exit, exit_code)
        if self._turn is not None:
            self._turn.cancel()
        if self._asking is not None:
            self._asking.cancel()
