"""Text that is told while it is written: never half a character, never what turns out not to belong to it.

The module owns these invariants:

- The pieces that were told join to the text of the finished generation, exactly.
- Bytes wait until they are whole characters; what could begin a stop text waits until it is none; reasoning that opens
  the text is not told, and neither is the space behind it (`reasoning.without_reasoning`).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from emelex_core.engine.reasoning import CLOSE, OPEN

Tell = Callable[[str], None]


class TextStream:
    """One generation's way to whoever listens. `stops` end the text."""

    def __init__(self, tell: Tell, *, stops: tuple[bytes, ...] = ()) -> None:
        self._tell = tell
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = b""
        self._opening: str | None = ""
        self._reasoned = False
        self._told = 0

    def add(self, data: bytes) -> None:
        """Take what was written next, and tell what is certain."""
        self._held += data
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(certain) :]
        self._pass_on(self._decoder.decode(certain))

    def close(self, text: str) -> None:
        """Tell what is left of the finished text."""
        self._say(text[self._told :])

    def _pass_on(self, text: str) -> None:
        if self._opening is None:
            self._say(text)
            return
        self._opening += text
        while (answer := self._answer(self._opening)) is not None:
            if answer is self._opening:
                self._opening = None
                self._say(answer)
                return
            self._opening, self._reasoned = answer, True

    def _answer(self, opening: str) -> str | None:
        """The opening without a piece of reasoning; the same object when it has none, None when it is too early."""
        start = opening.lstrip()
        if self._reasoned and start != opening:
            return start
        if not start or (len(start) < len(OPEN) and OPEN.startswith(start)):
            return None
        if not start.startswith(OPEN):
            return opening
        _, closed, rest = opening.partition(CLOSE)
        return rest if closed else None

    def _say(self, text: str) -> None:
        if text:
            self._told += len(text)
            self._tell(text)


def _overlap(data: bytes, stop: bytes) -> int:
    """How many bytes at the end of `data` could begin `stop`."""
    for size in range(min(len(stop) - 1, len(data)), 0, -1):
        if data.endswith(stop[:size]):
            return size
    return 0
