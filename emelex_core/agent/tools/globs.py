"""File patterns: `*`, `?` and `[…]` within a name, `**` for any number of directories."""

from __future__ import annotations

import fnmatch
import re
from typing import Final

from emelex_core.errors import ToolError

_ANY: Final = "**"
_PARTS_MAX: Final = 64


class Glob:
    """A pattern. Without a slash it is matched against the name alone, at any depth; otherwise against the path."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        if not parts or len(parts) > _PARTS_MAX or ".." in parts or "\0" in pattern:
            raise ToolError(f"{pattern[:80]!r} is not a pattern of names below the directory")
        if "/" not in pattern:
            parts = [_ANY, *parts]
        self._parts = [None if part == _ANY else re.compile(fnmatch.translate(part)) for part in parts]

    def matches(self, path: tuple[str, ...]) -> bool:
        """Whether a path, given as its names, fits. The time is at most names times parts."""
        reached = {0}
        for name in path:
            reached = self._after(self._closed(reached), name)
        return len(self._parts) in self._closed(reached)

    def _after(self, reached: set[int], name: str) -> set[int]:
        following: set[int] = set()
        for index in reached:
            if index < len(self._parts):
                part = self._parts[index]
                if part is None:
                    following.add(index)
                elif part.match(name):
                    following.add(index + 1)
        return following

    def _closed(self, reached: set[int]) -> set[int]:
        """Add what `**` reaches by standing for no directory at all."""
        closed = set(reached)
        for index, part in enumerate(self._parts):
            if part is None and index in closed:
                closed.add(index + 1)
        return closed
