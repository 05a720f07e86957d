"""Walking through directories by descriptors: no link followed, bounded in depth, entries and time.

What cannot be opened, or went away, is counted and passed over. Directories that only machines read are left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from emelex_core.engine.cancel import CancelToken

DEPTH_MAX: Final = 64
ENTRIES_MAX: Final = 200_000
SECONDS_MAX: Final = 20.0
LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One entry: its path below the start, its mode, how many names it has, and the directory that holds it, open.

    The directory is open until the next entry.
    """

    path: tuple[str, ...]
    mode: int
    names: int
    parent: int


class Walk:
    """One walk. After it `notes` say what was not looked at."""

    def __init__(
        self, cancel: CancelToken, *, entries_max: int = ENTRIES_MAX, seconds_max: float = SECONDS_MAX
    ) -> None:
        self._cancel = cancel
        self._entries_left = entries_max
        self._until = time.monotonic() + seconds_max
        self._unreadable = 0
        self._deep = 0
        self._left_out: set[str] = set()
        self._stopped: str | None = None

    def entries(self, start: int) -> Iterator[Found]:
        """Yield what is below an open directory, in the order of names, directories before what they hold."""
        return self._below(start, ())

    @property
    def notes(self) -> list[str]:
        """What the result is without, in words."""
        notes = [f"not looked into: {', '.join(sorted(self._left_out))}"] if self._left_out else []
        if self._unreadable:
            notes.append(f"{self._unreadable} entries could not be read")
        if self._deep:
            notes.append(f"{self._deep} directories lie deeper than {DEPTH_MAX}")
        if self._stopped is not None:
            notes.append(f"stopped early: {self._stopped}")
        return notes

    def _below(self, directory: int, path: tuple[str, ...]) -> Iterator[Found]:
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            self._unreadable += 1
            return
        for name in names:
            if self._is_over():
                return
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                self._unreadable += 1
                continue
            yield Found(path=(*path, name), mode=status.st_mode, names=status.st_nlink, parent=directory)
            if stat.S_ISDIR(status.st_mode):
                yield from self._into(directory, (*path, name))

    def _into(self, parent: int, path: tuple[str, ...]) -> Iterator[Found]:
        if path[-1] in LEFT_OUT:
            self._left_out.add(path[-1])
            return
        if len(path) >= DEPTH_MAX:
            self._deep += 1
            return
        try:
            directory = os.open(path[-1], _DIRECTORY, dir_fd=parent)
        except OSError:
            self._unreadable += 1
            return
        try:
            yield from self._below(directory, path)
        finally:
            os.close(directory)

    def _is_over(self) -> bool:
        if self._stopped is None:
            self._entries_left -= 1
            if self._cancel.cancelled:
                self._stopped = "it was cancelled"
            elif self._entries_left < 0:
                self._stopped = "there are too many entries"
            elif time.monotonic() > self._until:
                self._stopped = "it took too long"
        return self._stopped is not None
