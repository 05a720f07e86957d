"""Output of which a head and a tail are kept: what began it and how it ended count most."""

from __future__ import annotations


class HeadAndTail:
    """Bytes of which a head and a tail are kept."""

    def __init__(self, bytes_max: int) -> None:
        self._half = max(bytes_max - 256, 0) // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Keep what fits."""
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        surplus = len(self._tail) - self._half
        if surplus > 0:
            self._dropped += surplus
            del self._tail[:surplus]

    def text(self) -> tuple[str, bool]:
        """Return the text, and whether bytes that are no UTF-8 were replaced. A cut falls between characters."""
        if not self._dropped:
            return _decoded(bytes(self._head + self._tail))
        head = _without_cut_end(bytes(self._head))
        tail = bytes(self._tail)
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        first, first_replaced = _decoded(head)
        last, last_replaced = _decoded(tail)
        dropped = self._dropped + len(self._head) - len(head) + len(self._tail) - len(tail)
        return f"{first}\n[… {dropped} bytes are left out here …]\n{last}", first_replaced or last_replaced


def _decoded(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


def _without_cut_end(data: bytes) -> bytes:
    """Drop the beginning of a character whose rest was cut off."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data
