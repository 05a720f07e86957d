"""Processes that compete for one store: writers, workers and readers, forked from a parent that has nothing open.

Each child tells its parent through a pipe, one JSON line a thing, what the store acknowledged to it; a line is written
only after the verb has returned. `Ledger` keeps what was told, and `losses` holds the store against it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emelex_core import Event, MemoryStore
from emelex_core.archive.check import check
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.errors import Invalid, SessionBusy, StaleJobLease, StaleSessionLease
from emelex_core.jobs.kinds import JobKind
from emelex_core.jobs.reading import queue_depths
from emelex_core.publish import JOBS
from emelex_queue import claims
from emelex_workers.compaction import _append_summary

Tell = Callable[..., None]
TURN = 3


@dataclass
class Child:
    """One process of the crowd, and what of its words has arrived."""

    role: str
    pid: int
    pipe: int
    buffer: bytes = b""

    def hear(self) -> list[dict[str, Any]]:
        """What the process has told since, whole lines only. Does not wait."""
        while select.select([self.pipe], [], [], 0)[0]:
            data = os.read(self.pipe, 1 << 16)
            if not data:
                break
            self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self, how: int = signal.SIGKILL) -> list[dict[str, Any]]:
        """End the process and return its last words."""
        os.kill(self.pid, how)
        return self.wait()

    def wait(self) -> list[dict[str, Any]]:
        """Wait for the process to end and return its last words."""
        words = []
        while data := os.read(self.pipe, 1 << 16):
            self.buffer += data
        os.waitpid(self.pid, 0)
        words = self.hear()
        os.close(self.pipe)
        return words


@dataclass
class Ledger:
    """What the store acknowledged: the texts of every turn by Session, completed jobs, and counts of everything."""

    turns: dict[str, list[str]] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    def take(self, words: list[dict[str, Any]]) -> None:
        """Write down what a process told."""
        for word in words:
            what = word["what"]
            self.counts[what] += 1
            if "seconds" in word:
                self.slowest[what] = max(self.slowest.get(what, 0.0), word["seconds"])
            if what == "turn":
                self.turns.setdefault(word["session"], []).append(word["marker"])
            elif what == "completed":
                self.completed.add(word["job"])
            elif what == "error":
                self.errors.append(word["error"])


def make(home: Path, workspace: Path, sessions: int) -> list[str]:
    """Make a store with empty Sessions; run in a process of its own, so that the parent never has it open."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        with _last_words():
            with MemoryStore.open(home, create=True) as store:
                ids = [store.start_session(workspace, title=f"shared {number}").id for number in range(sessions)]
            os.write(writer, json.dumps(ids).encode())
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.wait()
    found: list[str] = json.loads(data)
    return found


def spawn(role: str, home: Path, workspace: Path, sessions: list[str], seed: int, *, until: float) -> Child:
    """Start one process: a writer, a worker or a reader. It ends by itself at an instant of the monotonic clock."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with _last_words():

            def tell(what: str, **facts: object) -> None:
                os.write(writer, json.dumps({"what": what, **facts}).encode() + b"\n")

            _live(_ROLES[role], home, workspace, sessions, random.Random(seed), tell, until)
    os.close(writer)
    return Child(role, pid, reader)


def losses(home: Path, ledger: Ledger) -> list[str]:
    """What a process that opens the store now misses or finds wrong; none is the only good answer."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        with _last_words():
            os.write(writer, json.dumps(_losses(home, ledger))[:60_000].encode())
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.wait()
    found: list[str] = json.loads(data) if data else ["the look itself failed"]
    return found


def _losses(home: Path, ledger: Ledger) -> list[str]:
    found: list[str] = []
    with MemoryStore.open(home) as store:
        report = check(store)
        found += [f"{finding.area}: {finding.detail}" for finding in report.findings if finding.weight != "note"]
        for session in store.list_sessions():
            texts = [event.text for event in store.iterate_events(session) if event.kind == "user"]
            found += _order(session.id, texts)
            stored = {text for text in texts if text.endswith(" 1")}
            missing = {f"{marker} 1" for marker in ledger.turns.get(session.id, [])} - stored
            found += [
                f"Session {session.id}: the acknowledged turn {marker!r} is missing" for marker in sorted(missing)
            ]
        with store.database.read() as transaction:
            for job in ledger.completed:
                row = transaction.one(JOBS["provenance"], {"id": job})
                if row is None or row[0] != "completed":
                    found.append(f"job {job} was completed, and is {row}")
    return found


def _order(session_id: str, texts: list[str]) -> list[str]:
    """Each turn's events stand together and in order."""
    for start in range(0, len(texts), TURN):
        markers = {text.rpartition(" ")[0] for text in texts[start : start + TURN]}
        numbers = [text.rpartition(" ")[2] for text in texts[start : start + TURN]]
        if len(markers) != 1 or numbers != ["1", "2", "3"]:
            return [f"Session {session_id}: turns are interleaved at event {start + 1}: {texts[start : start + TURN]}"]
    return []


def _live(
    role: Callable[[MemoryStore, Path, list[str], random.Random, Tell, str], None],
    home: Path,
    workspace: Path,
    sessions: list[str],
    chance: random.Random,
    tell: Tell,
    until: float,
) -> None:
    name = f"{os.getpid()}-{chance.randrange(10**9)}"
    try:
        with MemoryStore.open(home) as store:
            number = 0
            while time.monotonic() < until:
                number += 1
                role(store, workspace, sessions, chance, tell, f"{name}-{number}")
    except Exception as error:  # noqa: BLE001 - every error that surfaces is what is looked for
        tell("error", error=f"{type(error).__name__}: {error} {traceback.format_exc()[-600:]}")


def _write(
    store: MemoryStore, workspace: Path, sessions: list[str], chance: random.Random, tell: Tell, name: str
) -> None:
    session = chance.choice(sessions)
    started = time.monotonic()
    try:
        with store.claim_session(session, workspace) as lease:
            tell("claimed", seconds=time.monotonic() - started)
            lease.prove()
            for number in range(chance.randint(1, 3)):
                marker = f"{name}.{number}"
                started = time.monotonic()
                lease.append_turn([Event.user(f"{marker} {part}") for part in range(1, TURN + 1)])
                tell("turn", session=session, marker=marker, seconds=time.monotonic() - started)
            if lease.release(distill=chance.random() < 0.5) is not None:
                tell("published")
        if chance.random() < 0.2:
            _plan(store, session, tell)
    except SessionBusy:
        tell("busy")
    except StaleSessionLease:
        tell("stale")


def _plan(store: MemoryStore, session: str, tell: Tell) -> None:
    """Queue a compaction up to the end of some turn past the newest Summary; somebody else may be faster."""
    found = store.get_session(session)
    page = store.read_events(session, after=found.summary_sequence, limit=30)
    ends = [event.sequence for event in page if event.turn_position == event.turn_size - 1]
    if len(ends) > 2:
        plan = CompactionPlan(through_sequence=ends[-1], target_tokens=100, session_tokens=1, kept_tokens=0)
        with contextlib.suppress(Invalid):
            store.queue_compaction(session, plan)
            tell("planned")


def _work(
    store: MemoryStore, workspace: Path, sessions: list[str], chance: random.Random, tell: Tell, name: str
) -> None:
    kind = chance.choice(list(JobKind))
    started = time.monotonic()
    lease = claims.claim(store.database, kind, clock=store.clock)
    if lease is None:
        tell("nothing to do")
        time.sleep(0.002)
        return
    tell("job claimed", seconds=time.monotonic() - started)
    job = lease.job
    try:
        if chance.random() < 0.1:
            lease.fail("attempt: as the dice fell")
            tell("failed")
        elif chance.random() < 0.1:
            lease.release()
            tell("released")
        else:
            provenance = {
                "job_id": job.id,
                "through_sequence": job.source.through_sequence,
                "source_event_count": job.source.source_event_count,
                "source_first_event_id": job.source.source_first_event_id,
                "source_last_event_id": job.source.source_last_event_id,
                "source_sha256": job.source.source_sha256,
            }
            summarise = kind is JobKind.COMPACTION
            started = time.monotonic()
            lease.complete(
                lambda transaction: (
                    _append_summary(transaction, job, "In short.", provenance, now=store.clock()) if summarise else None
                ),
                record={"kind": kind.value},
            )
            tell("completed", job=job.id, seconds=time.monotonic() - started)
    except SessionBusy:
        lease.release()
        tell("job busy")
    except StaleJobLease:
        tell("job stale")


def _read(
    store: MemoryStore, workspace: Path, sessions: list[str], chance: random.Random, tell: Tell, name: str
) -> None:
    started = time.monotonic()
    store.list_sessions(workspace)
    for _ in store.iterate_events(store.get_session(chance.choice(sessions))):
        pass
    store.totals()
    queue_depths(store.database, now=store.clock())
    tell("read", seconds=time.monotonic() - started)


@contextlib.contextmanager
def _last_words() -> Any:
    """A forked child never returns into its parent's code."""
    try:
        yield
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nothing of the child may reach its parent's code
        traceback.print_exc(file=sys.stderr)
        os._exit(1)


_ROLES = {"writer": _write, "worker": _work, "reader": _read}
