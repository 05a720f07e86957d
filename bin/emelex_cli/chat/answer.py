"""An answer that streams in as Markdown: finished blocks are printed for good, the one being written is redrawn.

The module owns these invariants:

- What was printed is never redrawn, so that a terminal's own scrolling and copying keep working.
- Every text is neutralised before it is laid out; addresses of links are shown, never hidden behind words.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from emelex_cli.output import neutralise

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_FENCES: Final = ("```", "~~~")
_REDRAW_SECONDS: Final = 0.08
"""Laying out a long block takes milliseconds, and pieces come faster than anybody reads."""


class Answer:
    """One answer on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open = ""
        self._live: Live | None = None
        self._drawn = 0.0

    def add(self, text: str) -> None:
        """Show one more piece."""
        finished, self._open = split_blocks(self._open + text)
        if finished.strip():
            self._take_down()
            self._print(finished)
        self._redraw()

    def end(self) -> None:
        """Print what is left. Nothing happens when nothing is."""
        self._take_down()
        if self._open.strip():
            self._print(self._open)
        self._open = ""

    def _print(self, text: str) -> None:
        from rich.markdown import Markdown

        self._console.print(Markdown(neutralise(text), hyperlinks=False))

    def _redraw(self) -> None:
        from rich.live import Live
        from rich.markdown import Markdown

        now = time.monotonic()
        if not self._open.strip() or now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        if self._live is None:
            # What does not fit the screen is cut while it grows, and printed whole when it is finished.
            self._live = Live(console=self._console, transient=True, auto_refresh=False, vertical_overflow="ellipsis")
            self._live.start()
        self._live.update(Markdown(neutralise(self._open), hyperlinks=False), refresh=True)

    def _take_down(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown behind its last finished block: a blank line outside of fenced code ends one."""
    place = end = 0
    fence: str | None = None
    for line in text.splitlines(keepends=True):
        place += len(line)
        bare = line.strip()
        if fence is None and bare.startswith(_FENCES):
            fence = bare[:3]
        elif fence is not None and bare.startswith(fence):
            fence = None
        elif fence is None and not bare and line.endswith("\n"):
            end = place
    return text[:end], text[end:]
