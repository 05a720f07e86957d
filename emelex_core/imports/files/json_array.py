"""The elements of one large JSON array, as bytes, without the array standing in memory.

The module owns these invariants:

- Memory is bounded by one element, and an element by `IMPORT_LINE_BYTES_MAX`; a larger one is counted and passed over.
- Only brackets and strings are looked at. What stands inside an element is its reader's business, so that one broken
  element costs nothing but itself.
- An array that ends too early is an error, behind the elements that were whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from emelex_core import limits
from emelex_core.assets.media import Readable
from emelex_core.errors import Invalid

_BLOCK_BYTES: Final = limits.MIB
_INSIDE: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_BETWEEN: Final = rb'[^"\[\]{}]*+'
_TOKEN: Final = re.compile(
    _BETWEEN + rb'(?:"' + _INSIDE + rb'"' + _BETWEEN + rb')*+(?:([\[{]|[\]}])|("' + _INSIDE + rb")(\\?)\Z|\Z)",
    re.DOTALL,
)
"""Everything up to the next bracket, which is group 1; group 2 is a string that the buffer does not hold to its end."""
_REST: Final = re.compile(_INSIDE + rb'("|(\\?)\Z)', re.DOTALL)
"""The rest of a string that began in an earlier buffer."""
_WRAPPED: Final = re.compile(rb'"conversations"\s*:\s*\Z')
_WHITE: Final = b" \t\r\n"


def elements(stream: Readable, defects: Counter[str], *, what: str) -> Iterator[tuple[int, bytes]]:
    """Yield each object or array in the outermost array, with the offset behind it. `what` names the stream.

    An object in the array's place is one element, or holds the array under the key `conversations`.

    Raises: Invalid where the array does not end, naming the offset of the element that is cut.
    """
    yield from _Splitter(stream, defects, what).run()


class _Splitter:
    """Cuts a stream at the brackets of one depth."""

    def __init__(self, stream: Readable, defects: Counter[str], what: str) -> None:
        self._stream = stream
        self._defects = defects
        self._what = what
        self._buffer = b""
        self._dropped = 0
        self._at = 0
        self._start: int | None = None
        self._skipping = False
        self._in_string = False
        self._depth = 0
        self._base: int | None = None
        self._ended = False

    def run(self) -> Iterator[tuple[int, bytes]]:
        """Yield the elements."""
        while block := self._stream.read(_BLOCK_BYTES):
            self._take(block)
            yield from self._scan()
        if not self._ended:
            place = self._dropped + (self._at if self._start is None else self._start)
            raise Invalid(f"{self._what}: its JSON is cut: what begins at byte {place} does not end")
        if self._base != 2 and self._buffer[self._at :].strip(_WHITE):
            self._defects["trailing_data"] += 1

    def _take(self, block: bytes) -> None:
        """Append a block, and let go what is behind: everything before the element in hand."""
        keep = self._at if self._start is None or self._skipping else self._start
        self._buffer = self._buffer[keep:] + block
        self._dropped += keep
        self._at -= keep
        if self._start is not None:
            self._start = 0 if self._skipping else self._start - keep
        if self._dropped > limits.IMPORT_FILE_BYTES_MAX:
            raise Invalid(f"{self._what}: more than {limits.IMPORT_FILE_BYTES_MAX} bytes")
        if self._start is not None and not self._skipping and len(self._buffer) > limits.IMPORT_LINE_BYTES_MAX:
            self._skipping = True
            self._defects["oversized_conversation"] += 1

    def _scan(self) -> Iterator[tuple[int, bytes]]:
        while not self._ended and self._at < len(self._buffer):
            if self._in_string and not self._end_string():
                return
            match = _TOKEN.match(self._buffer, self._at)
            assert match is not None, "the pattern ends at a bracket, in a string or at the end"
            self._at = match.end()
            if match.group(2) is not None:
                self._in_string = True
                # A backslash at the end of the buffer belongs to the character that comes next.
                self._at -= len(match.group(3))
                return
            token = match.group(1)
            if token is not None and token in b"[{":
                self._open(token, match.start(1))
            elif token is not None and (element := self._close()) is not None:
                yield self._dropped + self._at, element

    def _end_string(self) -> bool:
        """Go behind the string in hand; return whether it ends in this buffer."""
        match = _REST.match(self._buffer, self._at)
        assert match is not None, "the pattern ends at a quote or at the end"
        self._in_string = match.group(1) != b'"'
        self._at = match.end() - (len(match.group(2)) if self._in_string else 0)
        return not self._in_string

    def _open(self, token: bytes, begin: int) -> None:
        if self._base is None:
            self._base = 1 if token == b"[" else 0
        elif self._base == 0 and self._depth == 1 and token == b"[":
            head = self._buffer[max(0, begin - 64) : begin]
            if _WRAPPED.search(head) and not self._skipping:
                self._base, self._start = 2, None
        if self._depth == self._base:
            self._start, self._skipping = begin, False
        self._depth += 1

    def _close(self) -> bytes | None:
        """Return the element that ends here, if one does."""
        self._depth -= 1
        if self._depth < (self._base or 0) or self._depth < 0:
            self._ended = True
            return None
        if self._depth != self._base or self._start is None:
            return None
        element = None if self._skipping else self._buffer[self._start : self._at]
        self._start, self._skipping = None, False
        self._ended = self._base == 0
        return element
