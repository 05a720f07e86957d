"""Recycling: a worker whose memory has grown is replaced between two jobs (issue 7, item 1).

What counts is private memory. Pages of a mapped model are shared by all workers and come and go with the page cache.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import psutil

from emelex_core import limits

_STATM: Final = Path("/proc/self/statm")
GROWTH_BYTES_MAX: Final = 512 * limits.MIB
"""Several times what caches and fragmentation take after the first job; a leak reaches it, work does not."""


def private_bytes() -> int:
    """Resident memory of this process that it shares with nobody, in bytes; all of it where the system cannot tell."""
    try:
        # After every job: a tenth of what psutil takes for the same file.
        _, resident, shared, *_ = map(int, _STATM.read_bytes().split())
    except OSError:
        return int(_this_process(os.getpid()).memory_info().rss)
    return (resident - shared) * mmap.PAGESIZE


@cache
def _this_process(pid: int) -> psutil.Process:
    """Making one reads several files; after a fork it is another one."""
    return psutil.Process(pid)


class MemoryGuard:
    """Compares a process with itself after its first job, when the model is loaded and its cache is in use."""

    def __init__(self, growth_bytes_max: int, *, read: Callable[[], int] = private_bytes) -> None:
        self._growth_bytes_max = growth_bytes_max
        self._read = read
        self._base: int | None = None

    def outgrown(self) -> bool:
        """Ask after each job: whether the process has grown past the bound since its first one."""
        now = self._read()
        if self._base is None:
            self._base = now
        return now - self._base > self._growth_bytes_max
