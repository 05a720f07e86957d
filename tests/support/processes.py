"""Processes that tests start: none outlives its test, whatever happens in it.

A process that a failed test left running fails a later one, where the interpreter finds its object, since a
ResourceWarning is an error here. So each is kept until its test is over; `tests/conftest.py` then ends what is left.
"""

from __future__ import annotations

import subprocess
from typing import TypeVar

T = TypeVar("T", str, bytes)
_kept: list[subprocess.Popen[str] | subprocess.Popen[bytes]] = []


def keep(process: subprocess.Popen[T]) -> subprocess.Popen[T]:
    """Have a process ended with its test, if it has not ended by then: `keep(subprocess.Popen(...))`."""
    _kept.append(process)
    return process


def end_all() -> None:
    """Kill what runs, wait for it, and close its pipes."""
    while _kept:
        process = _kept.pop()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
