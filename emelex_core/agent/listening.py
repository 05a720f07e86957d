"""Telling the words of an answer while it is written, up to where a call may begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Listener:
    """Hears an answer and tells its words: pieces that join to them, whatever the answer turns out to be.

    `opens` are texts with which a call begins; with `at_start` only at the very beginning. `close` tells what turned
    out to be words after all. Space is held back until something follows it, since none stands before a call.
    """

    tell: Callable[[str], None]
    opens: tuple[str, ...] = ()
    at_start: bool = False
    _held: str = field(default="", init=False)
    _told: str = field(default="", init=False)
    _silent: bool = field(default=False, init=False)
    _free: bool = field(default=False, init=False)

    @property
    def told(self) -> str:
        """The words so far."""
        return self._told

    def hear(self, piece: str) -> None:
        """Take a piece of the raw answer."""
        if self._silent:
            return None
        self._held += piece
        if self._free or not self.opens:
            return self._release(len(self._held))
        if self.at_start:
            return self._hear_start()
        place = min((found for tag in self.opens if (found := self._held.find(tag)) >= 0), default=-1)
        if place >= 0:
            self._silent = True
            return self._release(len(self._held[:place].rstrip()))
        certain = len(self._held) - max(_begun(self._held, tag) for tag in self.opens)
        return self._release(len(self._held[:certain].rstrip()))

    def close(self, words: str) -> None:
        """Tell what is left of the answer's words."""
        if words.startswith(self._told) and len(words) > len(self._told):
            self.tell(words[len(self._told) :])

    def _hear_start(self) -> None:
        start = self._held.lstrip()
        if not start or any(tag.startswith(start) for tag in self.opens):
            return
        if start.startswith(self.opens):
            self._silent = True
            return
        self._free = True
        self._release(len(self._held))

    def _release(self, size: int) -> None:
        if size:
            piece, self._held = self._held[:size], self._held[size:]
            self._told += piece
            self.tell(piece)


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of a text could begin a tag."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0
