"""A real pool in a process of its own, its events as they come, and a look at its jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from emelex_core import Event, MemoryStore
from emelex_core.jobs import reading
from emelex_core.jobs.records import Job
from emelex_queue import idle
from processes import keep

RUNNER = Path(__file__).resolve().parents[1] / "pool" / "runner.py"
Found = Callable[[dict[str, Any]], bool]


def named(name: str, **fields: object) -> Found:
    """Whether an event has this name and these fields."""
    return lambda event: event["event"] == name and all(event[key] == value for key, value in fields.items())


class Pool:
    """One run of `tests/pool/runner.py`. Leaving its block kills what is left."""

    def __init__(self, home: Path, *, prefix: tuple[str, ...] = (), own_group: bool = False, **spec: object) -> None:
        command = [*prefix, sys.executable, "-P", str(RUNNER), json.dumps({"home": str(home), **spec})]
        self.process = keep(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=own_group
            )
        )
        self.events: list[dict[str, Any]] = []
        self._sees_our_ids = "unshare" not in prefix
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, found: Found, *, count: int = 1, seconds: float = 20.0) -> dict[str, Any]:
        """Wait until so many events fit, and return the last of them."""
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                fitting = [event for event in self.events if found(event)]
                if len(fitting) >= count:
                    return fitting[count - 1]
                left = deadline - time.monotonic()
                if left <= 0 or (not self._reader.is_alive() and self.process.poll() is not None):
                    said = "\n".join(map(str, self.events[-30:]))
                    raise AssertionError(f"{len(fitting)} of {count} events came; the last were:\n{said}")
                self._news.wait(min(left, 0.5))

    def signal(self, number: int) -> float:
        """Send a signal to the parent; return when, in monotonic seconds."""
        self.process.send_signal(number)
        return time.monotonic()

    def exit_code(self, seconds: float = 20.0) -> int:
        """Wait for the parent's end."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def pid_of(self, name: str) -> int:
        """Who sits at a place now."""
        with self._news:
            return [event["pid"] for event in self.events if named("WorkerStarted", worker=name)(event)][-1]

    def pids(self) -> list[int]:
        """Everybody whom this pool ever started; nobody for one that counts processes in a namespace of its own."""
        with self._news:
            return (
                [event["pid"] for event in self.events if event["event"] == "WorkerStarted"]
                if self._sees_our_ids
                else []
            )

    def of(self, name: str) -> list[dict[str, Any]]:
        """Every event of a name so far."""
        with self._news:
            return [event for event in self.events if event["event"] == name]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        assert not self._reader.is_alive(), "somebody outlived the pool: its output is still open"
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()


def gone(pids: list[int], *, seconds: float = 2.0) -> list[int]:
    """Wait for processes to end, and return those that have not. A zombie has ended."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in pids if _lives(pid)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.01)


def publish(store: MemoryStore, workspace: Path, *titles: str) -> list[str]:
    """Publish one job a title; return their Sessions."""
    made: list[str] = []
    for title in titles:
        session = store.start_session(workspace, title=title)
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("Never drop the table."), Event.assistant("I will not.")])
            lease.release(distill=True)
        made.append(session.id)
    return made


def job_of(store: MemoryStore, session: str) -> Job:
    """The one job of a Session."""
    (job,) = reading.list_jobs(store.database, session_id=session)
    return job


def settled(store: MemoryStore) -> bool:
    """Whether no job is left to do."""
    return idle.remaining_jobs(store.database) == 0


def until(condition: Callable[[], bool], *, seconds: float = 10.0) -> float:
    """Look every few milliseconds until a condition holds; return how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not come true"
        time.sleep(0.003)
    return time.monotonic() - began


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _lives(pid: int) -> bool:
    """Whether a process has not ended. Its main thread can be a zombie while another thread still holds its files."""
    try:
        return (
            psutil.Process(pid).status() != psutil.STATUS_ZOMBIE or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
        )
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False
