"""Base64 text as a source of bytes, decoded a buffer at a time: the decoded whole never stands in memory."""

from __future__ import annotations

import binascii

from emelex_core.errors import Invalid


class Undecodable(Invalid):
    """The text is not base64."""


class Base64Source:
    """Reads like a binary file over the base64 text that begins at `start`. Strict: nothing is passed over."""

    def __init__(self, text: str, start: int = 0) -> None:
        self._text = text
        self._at = start

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size` of them, which is 3 or more; none at the end. Raises: Undecodable."""
        begin = self._at
        self._at = min(begin + size // 3 * 4, len(self._text))
        piece = self._text[begin : self._at]
        if piece.endswith("=") and self._at < len(self._text):
            raise Undecodable("base64 goes on after its end")
        try:
            return binascii.a2b_base64(piece, strict_mode=True) if piece else b""
        except ValueError:
            raise Undecodable("the text is not base64") from None
