"""A clock that tests turn, a look behind the store, and processes that are somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from emelex_core import digests
from processes import keep

ROOT = Path(__file__).resolve().parents[2]
START = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


class ManualClock:
    """A clock that stands until it is turned, in milliseconds."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def turn(self, milliseconds: int) -> None:
        """Go on, or back."""
        self.now += milliseconds


@contextmanager
def behind(path: Path, *, checks: bool = True) -> Iterator[apsw.Connection]:
    """Write past the store's rules. The same SQLite library, so that no lock of the store is dropped."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        raw.set_busy_timeout(5_000)
        raw.pragma("foreign_keys", "OFF")
        raw.pragma("ignore_check_constraints", "OFF" if checks else "ON")
        yield raw
    finally:
        raw.close()


def edit(path: Path, sql: str, parameters: Any = (), *, checks: bool = True) -> int:
    """Run one statement behind the store's back; return how many rows it changed."""
    with behind(path, checks=checks) as raw:
        raw.execute(sql, parameters)
        return raw.changes()


def rows(path: Path, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    """Look behind the store."""
    with behind(path) as raw:
        return raw.execute(sql, parameters).fetchall()


def sound(path: Path) -> bool:
    """Whether SQLite itself finds the file whole and every reference kept."""
    return rows(path, "PRAGMA integrity_check") == [("ok",)] and rows(path, "PRAGMA foreign_key_check") == []


def rechain(path: Path) -> None:
    """Make every digest fit what is stored now, as a writer with a fault would: only other proofs can tell then."""
    with behind(path) as raw:
        sessions: list[Any] = raw.execute("SELECT id FROM sessions").fetchall()
        for (session_id,) in sessions:
            chain = digests.first_chain(session_id)
            events: list[Any] = raw.execute(_CHAINED, (session_id,)).fetchall()
            for row in events:
                chain = digests.next_chain(chain, *row)
                raw.execute(
                    "UPDATE events SET chain = ? WHERE session_id = ? AND sequence = ?", (chain, session_id, row[0])
                )
            raw.execute("UPDATE sessions SET chain = ? WHERE id = ?", (chain, session_id))


_CHAINED = (
    "SELECT sequence, id, turn_id, turn_position, turn_size, kind, source_record, occurred_at, created_at, payload "
    "FROM events WHERE session_id = ? ORDER BY sequence"
)
BECOME_NOBODY = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
"""What root's child runs after its imports to lose root's powers, to which modes mean nothing."""


def child(
    code: str, *arguments: object, env: Mapping[str, str] | None = None, umask: int = -1
) -> subprocess.Popen[str]:
    """Start a Python process."""
    return keep(
        subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(code), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            umask=umask,
        )
    )


def answer(process: subprocess.Popen[str]) -> Any:
    """Wait for a process and return what it printed, as JSON; a failure shows its errors."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; the test waits for it instead of sleeping."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        _, err = process.communicate(timeout=60)
        raise AssertionError(err)
    return text.strip()


def kill(process: subprocess.Popen[str]) -> None:
    """End a process as a crash does."""
    process.kill()
    process.communicate(timeout=60)
