"""Ctrl-C, TERM and HUP in a chat: the first Ctrl-C stops what goes on, a second one leaves; the others leave at once.

The module owns these invariants:

- One Ctrl-C is one wish, wherever it arrives: at a question it answers no and stops the turn, and counts once.
- A turn is only cancelled once it has begun, so that no Session stays behind without the words that it began with.
- A terminal that went away (HUP) is a TERM, and exits with its code: the contract knows 130 and 143 and no third one.
- Leaving is quick whatever hangs: what is durable is durable already, and the kernel frees what this process holds.
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
        self._begun = False
        self._held = False
        self._asking: asyncio.Task[Any] | None = None
        self._working: asyncio.Task[Any] | None = None
        self._last: float | None = None
        self._stopped = False

    @contextmanager
    def taken(self) -> Generator[None]:
        """Take the signals while the block lasts, then give them back as they were: the loop would forget them."""
        before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGHUP)}
        if before[signal.SIGHUP] == signal.SIG_IGN:
            # Started by nohup: the terminal may go.
            del before[signal.SIGHUP]
        for number in before:
            self._loop.add_signal_handler(number, self.hear, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    @contextmanager
    def turn(self) -> Generator[CancelToken]:
        """A turn runs while the block lasts; its token is cancelled by the first signal, but not before `begun`."""
        self._turn = CancelToken()
        self._begun = False
        try:
            yield self._turn
        finally:
            self._turn = None
            self._held = False

    def begun(self) -> None:
        """The turn's input is durable: from here on it can be cancelled, by what was asked before too."""
        self._begun = True
        if self._held or self.exit_code is not None:
            self._stop_turn()

    @contextmanager
    def asking(self, task: asyncio.Task[Any]) -> Generator[None]:
        """Somebody is asked something while the block lasts; a signal ends the question by cancelling it."""
        self._asking = task
        if self._turn is None:
            self._held = False
        try:
            yield
        finally:
            self._asking = None

    @contextmanager
    def working(self, task: asyncio.Task[Any]) -> Generator[None]:
        """A model is loaded or a command works while the block lasts; a signal stops it by cancelling the task."""
        before, self._working = self._working, task
        try:
            yield
        finally:
            self._working = before

    def take_stopped(self) -> bool:
        """Whether a signal cancelled what was asked or worked on since the last call."""
        stopped, self._stopped = self._stopped, False
        return stopped

    def typed(self) -> None:
        """Take a Ctrl-C that was typed at a prompt, where the terminal sends no signal for it."""
        self._take(signal.SIGINT, hold=False)

    def hear(self, number: int) -> None:
        """Take one signal."""
        self._take(number, hold=True)

    def _take(self, number: int, *, hold: bool) -> None:
        now = self._loop.time()
        again = self._last is not None and now - self._last < TWICE_SECONDS
        self._last = now
        if number != signal.SIGINT or again:
            self._leave(128 + (number if number == signal.SIGINT else signal.SIGTERM))
        else:
            self._stop(hold=hold)

    def _stop(self, *, hold: bool) -> None:
        """Stop what goes on. Between two things there is nothing to stop; `hold` stops the next turn instead."""
        tasks = [task for task in (self._asking, self._working) if task is not None]
        for task in tasks:
            self._stopped = task.cancel() or self._stopped
        if self._turn is not None or (hold and not tasks):
            self._stop_turn()

    def _stop_turn(self) -> None:
        if self._turn is not None and self._begun:
            self._turn.cancel()
        else:
            self._held = True

    def _leave(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self._loop.call_later(LEAVE_SECONDS, os._exit, exit_code)
        self._stop(hold=True)
