"""Media that nobody drew: the right first bytes, then noise that a seed decides."""

from __future__ import annotations

import random

PNG = b"\x89PNG\r\n\x1a\n"


def picture(seed: int = 0, size: int = 64) -> bytes:
    """Bytes that begin like a PNG image; the same for the same seed and size."""
    return PNG + random.Random(seed).randbytes(size - len(PNG))


class Stream:
    """A source of so many bytes that are never all in memory, in pieces of at most `piece`."""

    def __init__(self, size: int, *, piece: int = 1 << 20, head: bytes = PNG) -> None:
        self._left = size
        self._head = head
        self._piece = piece

    def read(self, size: int, /) -> bytes:
        count = min(size, self._left, self._piece)
        self._left -= count
        data, self._head = self._head[:count], self._head[count:]
        return data + bytes(count - len(data))
