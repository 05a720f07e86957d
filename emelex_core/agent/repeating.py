"""An answer that goes in circles, noticed while it is written.

The module owns these invariants:

- An answer goes in circles when it says one sentence three times in a row, or when its end is one passage at least
  three times in a row, over as many characters as some 120 tokens have.
- Signs that only draw, such as a line of dashes, are no passage.
- What is kept is the answer up to the end of the first time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

TIMES: Final = 3
LOOP_CHARACTERS_MIN: Final = 480
"""Three windows of forty tokens, at four characters each."""

_PERIOD_MAX: Final = 1_000
_SENTENCE_WORDS_MIN: Final = 4
_SENTENCE_CHARACTERS_MIN: Final = 20
_CHECK_EVERY: Final = 64
_PROBE: Final = 40
_SENTENCE: Final = re.compile(r"[^.!?\u3002\uff01\uff1f]+[.!?\u3002\uff01\uff1f]+")


class LoopWatch:
    """Hears an answer's pieces, passes them on, and calls `stop` once when it goes in circles.

    `kept` is then the text that is worth keeping; None as long as nothing was found. Pieces after that are dropped.
    """

    def __init__(self, tell: Callable[[str], None], stop: Callable[[], None]) -> None:
        self._tell = tell
        self._stop = stop
        self._unchecked = 0
        self.text = ""
        self.kept: str | None = None

    def hear(self, piece: str) -> None:
        """Take the next piece."""
        if self.kept is not None:
            return
        self._tell(piece)
        self.text += piece
        self._unchecked += len(piece)
        if self._unchecked < _CHECK_EVERY:
            return
        self._unchecked = 0
        self.kept = before_loop(self.text)
        if self.kept is not None:
            self._stop()


def before_loop(text: str) -> str | None:
    """Return the text up to the end of the first of a passage's repetitions; None for a text that goes on."""
    size = _sentence_loop(text)
    if size is None:
        size = _passage_loop(text)
    return None if size is None else text[:size].rstrip()


def _sentence_loop(text: str) -> int | None:
    """Where the first of three equal sentences ends that the text has at its end."""
    start = max(len(text) - TIMES * _PERIOD_MAX, 0)
    found = list(_SENTENCE.finditer(text, start))[-TIMES:]
    sentences = {match.group().strip() for match in found}
    if len(found) < TIMES or len(sentences) > 1:
        return None
    (sentence,) = sentences
    long = len(sentence.split()) >= _SENTENCE_WORDS_MIN and len(sentence) >= _SENTENCE_CHARACTERS_MIN
    return found[0].end() if long else None


def _passage_loop(text: str) -> int | None:
    """Where the first repetition of the passage ends that the text ends with."""
    place = text.rfind(text[-_PROBE:], 0, len(text) - 1)
    period = len(text) - _PROBE - place
    size = max(TIMES * period, LOOP_CHARACTERS_MIN)
    if place < 0 or period > _PERIOD_MAX or len(text) < size or not re.search(r"\w", text[-period:]):
        return None
    start = len(text) - size
    if text[start:-period] != text[start + period :]:
        return None
    while start and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start + period
