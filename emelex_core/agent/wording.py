"""Text for people and models, kept within bounds and made visible: nothing is shortened without saying so."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_PICTURES: Final = 0x2400
_DELETE: Final = 0x7F


def visible(text: str) -> str:
    """Return the text with each control, bidirectional or invisible character as a sign that shows it.

    Line breaks become `␊`, so that what a person approves is one text whose every character is on the screen.
    """
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return _HIDDEN.sub(lambda found: _sign(found.group()), whole)


def shortened(text: str, bytes_max: int) -> str:
    """Return at most so many UTF-8 bytes of a text; what is left out is counted at its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    note = f"… [{len(data)} bytes in all; the rest is not shown]"
    room = max(0, bytes_max - len(note.encode()))
    return data[:room].decode("utf-8", "ignore") + note


def _sign(character: str) -> str:
    code = ord(character)
    if code < ord(" "):
        return chr(_PICTURES + code)
    if code == _DELETE:
        return "\u2421"
    return f"<U+{code:04X} {unicodedata.name(character, 'control')}>"
