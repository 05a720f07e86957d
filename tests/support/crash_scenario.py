"""One small life of a store, step by step; each step that returned is written down, so that a crash can be held to it.

Run as `python crash_scenario.py HOME WORKSPACE TRANSCRIPT LOG`. A second run goes on where another was killed: nothing
in it depends on the store being new.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from emelex_core import Event, MemoryStore, limits
from emelex_core.clock import system_clock
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.engine.ports import CancelToken
from emelex_core.imports.importer import import_transcripts
from emelex_core.jobs.kinds import JobKind
from emelex_core.sessions.append import AppendedTurn
from emelex_queue import claims
from emelex_workers.attempt import attempt
from scripted import ScriptedEngine, says, turn


class Log:
    """What was acknowledged. A line is written in one call, so that it is there or not."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, **facts: object) -> None:
        """Write down one acknowledged step."""
        os.write(self._descriptor, (json.dumps(facts) + "\n").encode())

    def turn(self, session_id: str, appended: AppendedTurn) -> None:
        """Write down an acknowledged turn."""
        self.note(session=session_id, first=appended.first_sequence, ids=appended.event_ids, turn=appended.turn_id)


def talk(store: MemoryStore, workspace: Path, log: Log) -> str:
    """A Session with media, whose compaction and distillation are published."""
    session = store.start_session(workspace, title="crash")
    log.note(session=session.id)
    with store.claim_session(session.id, workspace) as lease:
        for number in range(1, 4):
            log.turn(session.id, lease.append_turn(turn(number)))
        image = store.store_asset(b"GIF89a" + os.urandom(32))
        log.note(asset=image.sha256)
        log.turn(session.id, lease.append_turn([Event.user("look", image)]))
        job = lease.release(distill=True)
    assert job is not None
    log.note(job=job.id, state="pending")
    plan = CompactionPlan(through_sequence=8, target_tokens=400, session_tokens=0, kept_tokens=0)
    log.note(job=store.queue_compaction(session.id, plan).id, state="pending")
    return session.id


def work(store: MemoryStore, log: Log) -> None:
    """Settle everything, with an engine that says nothing of use: code does the work."""
    for kind in JobKind:
        while lease := claims.claim(store.database, kind, clock=store.clock):
            ended = attempt(store, lease, ScriptedEngine(write=says("x")), stop=CancelToken(), chunking=True)
            log.note(job=lease.job.id, state=ended.outcome)


def read_in(store: MemoryStore, workspace: Path, transcript: Path, log: Log) -> None:
    """Import a foreign transcript."""
    failed: list[object] = []
    totals = import_transcripts(
        store,
        [transcript],
        format="claude-code",
        workspace=workspace,
        dry_run=False,
        distill=True,
        listen=lambda session: log.note(imported=session.id),
        problem=lambda path, error: failed.append((path, error)),
    )
    assert failed == []
    assert totals.sessions == 1


def tidy(store: MemoryStore, workspace: Path, log: Log) -> None:
    """Delete a Session with its media, and collect an orphan whose grace is over."""
    session = store.start_session(workspace, title="to be deleted")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("look", store.store_asset(b"GIF89a" + os.urandom(32)))])
    store.delete_session(session.id)
    log.note(deleted=session.id)
    store.store_asset(b"GIF89a" + os.urandom(32))
    later = MemoryStore(store.database, store.assets_directory, lambda: system_clock() + 2 * limits.ASSET_GRACE_MS)
    later.collect_assets()


def main(home: str, workspace: str, transcript: str, log_path: str) -> None:
    """Run the whole life once."""
    log = Log(Path(log_path))
    with MemoryStore.open(home, create=True) as store:
        log.note(open=True)
        talk(store, Path(workspace), log)
        work(store, log)
        read_in(store, Path(workspace), Path(transcript), log)
        work(store, log)
        tidy(store, Path(workspace), log)


if __name__ == "__main__":
    main(*sys.argv[1:])
