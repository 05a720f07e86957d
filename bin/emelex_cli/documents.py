"""One JSON document written piece by piece, so that a Session of any size passes through little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from emelex_cli.output import to_json


class Document:
    """A JSON object under construction: `value` and `items` add members, and leaving the block ends it.

    After an exception the end is left out, so that a cut document never parses.
    """

    def __init__(self, write: Callable[[str], None], *, indent: int = 0) -> None:
        self._write = write
        self._margin = " " * (indent + 1)
        self._close = " " * indent
        self._empty = True

    def __enter__(self) -> Self:
        self._write("{")
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self._write(f"\n{self._close}}}" + ("" if self._close else "\n"))

    def value(self, name: str, value: Any) -> None:
        """Add a member."""
        self._name(name)
        self._write(to_json(value))

    def items(self, name: str, values: Iterable[Any]) -> None:
        """Add an array, one line an element."""
        self._name(name)
        self._write("[")
        empty = True
        for value in values:
            self._write(("\n" if empty else ",\n") + self._margin + " " + to_json(value))
            empty = False
        self._write("]" if empty else f"\n{self._margin}]")

    def only_object(self, name: str) -> Document:
        """Begin an array that holds one object; leave that object's block, then call `end_only_object`."""
        self._name(name)
        self._write("[")
        return Document(self._write, indent=len(self._margin))

    def end_only_object(self) -> None:
        """End the array that `only_object` began."""
        self._write("]")

    def _name(self, name: str) -> None:
        self._write(("\n" if self._empty else ",\n") + self._margin + to_json(name) + ":")
        self._empty = False
