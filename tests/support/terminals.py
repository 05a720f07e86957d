"""The real program on a pseudo-terminal of its own: what it shows, what is typed, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from processes import keep
from program import PROGRAM, Program

_SILENCE_SECONDS = 45
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>()][0B]?|\r")


class Terminal:
    """One run. `seen` is everything shown so far, without what moves the cursor."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self._leader = leader
        self._shown = bytearray()
        self._more = threading.Condition()
        self._open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def seen(self) -> str:
        return _SEQUENCE.sub("", bytes(self._shown).decode("utf-8", "replace"))

    @property
    def raw(self) -> bytes:
        return bytes(self._shown)

    def expect(self, words: str, *, after: str = "") -> None:
        """Wait until words are shown, behind others where those are given."""
        self.expect_like(re.escape(words), after=after)

    def expect_like(self, pattern: str, *, after: str = "") -> None:
        """Wait until something like a pattern is shown, behind words where those are given."""
        with self._more:
            while True:
                _, found, behind = self.seen.rpartition(after) if after else ("", "", self.seen)
                place = behind if found or not after else ""
                if re.search(pattern, place):
                    return
                assert self._open, f"it ended without showing {pattern!r}:\n{self.seen[-2_000:]}"
                assert self._more.wait(_SILENCE_SECONDS), f"silence, and no {pattern!r}:\n{self.seen[-2_000:]}"

    def type(self, text: str) -> None:
        """Type; a carriage return is Enter."""
        os.write(self._leader, text.encode())

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program alone."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(60)
        self._reader.join(60)
        return code

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._leader, 65_536)
            except OSError:
                # The other end is closed: the program has ended.
                piece = b""
            with self._more:
                self._shown += piece
                self._open = bool(piece)
                self._more.notify_all()
            if not piece:
                return


@contextmanager
def on_a_terminal(
    emelex: Program, *arguments: str | Path, env: Mapping[str, str | None] | None = None
) -> Iterator[Terminal]:
    """Run the program with a terminal of 120 by 40 at both ends; what still runs at the end of the block is killed."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = keep(
        subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            cwd=emelex.workspace,
            env=emelex.env(
                {"TERM": "xterm", "COLUMNS": "120", "LINES": "40", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})}
            ),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    )
    os.close(follower)
    terminal = Terminal(process, leader)
    try:
        yield terminal
    finally:
        process.kill()
        terminal.end()
        os.close(leader)
