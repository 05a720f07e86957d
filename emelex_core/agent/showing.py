"""What a person is shown before they approve: all of it, or how much of it is not there.

The module owns these invariants:

- Nothing is cut without saying so. What was cut is named by its size and its digest.
- A line break stays one, and each line is made visible by itself, so that no text can write over another.
- Blanks cannot push text off the screen: long runs of them, and of blank lines, are shown as a count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from emelex_core.agent.wording import visible

BLANKS_MAX: Final = 32
"""So many blanks in a row are shown as they stand: an indentation, not a screen."""
BLANK_LINES_MAX: Final = 3

_BLANKS: Final = re.compile(rf"(?:[^\S\n]|[\u2409\u2800]){{{BLANKS_MAX + 1},}}")
_PIECE_BYTES_MIN: Final = 32
"""A shorter beginning of a line tells nobody anything."""


def shown(text: str) -> str:
    """Return the whole text for a person: lines made visible, long runs of blanks and blank lines as counts."""
    return "\n".join(line for _, line in _lines(text))


def numbered(text: str, bytes_max: int, *, sign: str = "") -> str:
    """Return the lines that fit into so many bytes with their numbers, and how much of the text is not shown.

    `sign` stands before each number.
    """
    pieces: list[str] = []
    left = bytes_max
    for number, line in _lines(text.removesuffix("\n")):
        piece = f"{sign}{number} | {line}"
        size = len(piece.encode()) + 1
        if size > left:
            if left > _PIECE_BYTES_MIN:
                pieces.append(piece.encode()[: left - len("…\n".encode())].decode("utf-8", "ignore") + "…")
            pieces.append(f"[from line {number} on it is not shown, or not whole]")
            break
        left -= size
        pieces.append(piece)
    return "\n".join(pieces)


def facts(text: str) -> str:
    """How much a text is, and its digest, by which the file that came to be can be compared."""
    data = text.encode("utf-8", "replace")
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    lines = "1 line" if count == 1 else f"{count} lines"
    return f"{lines}, {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines as they are shown, each with the number of the first one that it stands for."""
    blank = 0
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            blank += 1
            continue
        yield from _gap(lines, number - blank, blank)
        blank = 0
        yield number, _visible(line)
    yield from _gap(lines, len(lines) + 1 - blank, blank)


def _gap(lines: list[str], first: int, count: int) -> Iterator[tuple[int, str]]:
    if count > BLANK_LINES_MAX:
        yield first, f"⟨{count} blank lines⟩"
        return
    yield from ((number, _visible(lines[number - 1])) for number in range(first, first + count))


def _visible(line: str) -> str:
    return _BLANKS.sub(lambda found: _count(found.group()), visible(line))


def _count(run: str) -> str:
    return f"⟨{len(run)} {'spaces' if run.strip(' ') == '' else 'blanks'}⟩"
