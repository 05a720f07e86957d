"""One JSON document written piece by piece, so that a store of any size passes through little memory.

The text is strict UTF-8 and safe to show: control and bidirectional characters stand in it as escapes, and nothing is
lost by that. A cut document never parses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, Self

import orjson

Write = Callable[[bytes], None]
"""Takes all the bytes; what it raises ends the document."""

_UNSAFE: Final = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What would act on a terminal or hide from a reader; C0 controls are escapes in any JSON."""


def to_json(value: Any) -> bytes:
    """Return a value as one line of JSON in UTF-8."""
    data = orjson.dumps(value)
    if data.isascii() and b"\x7f" not in data:
        return data
    return _UNSAFE.sub(_escaped, data.decode()).encode()


class Document:
    """A JSON object under construction. Leaving the block ends it; an exception leaves it without its end."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._empty = True

    def __enter__(self) -> Self:
        self._write(b"{")
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self._write(b"\n}")

    def value(self, name: str, value: Any) -> None:
        """Add a member."""
        self._name(name)
        self._write(to_json(value))

    def items(self, name: str, values: Iterable[Any]) -> None:
        """Add an array, one line an element."""
        with self.array(name) as element:
            for value in values:
                element(to_json(value))

    def objects(self, name: str, makers: Iterable[Callable[[Document], None]]) -> None:
        """Add an array of objects that are written piece by piece themselves."""
        with self.array(name) as element:
            for make in makers:
                element(b"")
                with Document(self._write) as inner:
                    make(inner)

    @contextmanager
    def array(self, name: str) -> Generator[Write]:
        """Add an array whose elements the block writes."""
        self._name(name)
        self._write(b"[")
        empty = True

        def element(data: bytes) -> None:
            nonlocal empty
            self._write((b"\n " if empty else b",\n ") + data)
            empty = False

        yield element
        self._write(b"]" if empty else b"\n]")

    def _name(self, name: str) -> None:
        self._write((b"\n" if self._empty else b",\n") + to_json(name) + b":")
        self._empty = False


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x1_0000:
        return f"\\u{code:04x}"
    code -= 0x1_0000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
