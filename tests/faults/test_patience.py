"""Bounded waits (issue 3, item 8; reports K2): a lock that is held for a while costs time and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.db.patience import patiently
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Corrupt, StorageBusy
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from emelex_queue.lease import JobLease
from emelex_workers.attempt import attempt
from scripted import ScriptedEngine, says, turn
from stores import behind, child, line


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore.open(tmp_path / "home", create=True)


HOLD = """
    import sys, time, apsw
    raw = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READWRITE)
    raw.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    sys.stdin.readline()
    time.sleep(float(sys.argv[2]))
    raw.execute("COMMIT")
"""


def test_a_lock_that_is_held_for_seconds_is_waited_for(store: MemoryStore, tmp_path: Path) -> None:
    """K2: somebody's `BEGIN IMMEDIATE` of 2 s; an append waits and goes through."""
    session = store.start_session(tmp_path, title="t")
    with store.claim_session(session.id, tmp_path) as lease:
        holder = child(HOLD, store.database.path, 2)
        assert line(holder) == "held"
        started = time.monotonic()
        assert holder.stdin is not None
        holder.stdin.write("go\n")
        holder.stdin.flush()
        lease.append_turn([Event.user("waited for")])
        assert 1.5 < time.monotonic() - started < 5
        holder.communicate(timeout=60)
    assert [event.text for event in store.read_events(session.id)] == ["waited for"]


def test_a_lock_that_is_held_too_long_is_a_bounded_failure_that_names_the_file(store: MemoryStore) -> None:
    """K2: the wait ends, and says where."""
    with behind(store.database.path) as raw:
        raw.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with (
            pytest.raises(StorageBusy, match=str(store.database.path)),
            store.database.write(wait_ms=300) as transaction,
        ):
            transaction.all("PRAGMA user_version")
        assert 0.25 < time.monotonic() - started < 3
        raw.execute("ROLLBACK")


def test_a_settlement_outlasts_the_wait_of_its_statements(store: MemoryStore, tmp_path: Path) -> None:
    """The outer retry: each try gives up after 20 ms, together they wait until the lock is free."""
    tries = 0

    def settle() -> str:
        nonlocal tries
        tries += 1
        with store.database.write(wait_ms=20) as transaction:
            transaction.all("PRAGMA user_version")
        return "settled"

    holder = child(HOLD, store.database.path, 0.5)
    assert line(holder) == "held"
    assert holder.stdin is not None
    holder.stdin.write("go\n")
    holder.stdin.flush()
    assert patiently(settle, seconds=30) == "settled"
    assert tries > 1
    holder.communicate(timeout=60)


def test_patience_ends_at_its_bound_when_told_to_stop_and_for_other_errors(store: MemoryStore) -> None:
    """It never hides an error, never waits for what waiting does not change, and never outlives a stop."""
    tries = 0

    def busy() -> None:
        nonlocal tries
        tries += 1
        raise StorageBusy("locked")

    started = time.monotonic()
    with pytest.raises(StorageBusy, match="locked"):
        patiently(busy, seconds=0.2)
    assert tries > 1
    assert time.monotonic() - started < 2
    tries = 0
    with pytest.raises(StorageBusy):
        patiently(busy, seconds=60, stopped=lambda: tries >= 3)
    assert tries == 3

    def corrupt() -> None:
        nonlocal tries
        tries += 1
        raise Corrupt("damaged")

    with pytest.raises(Corrupt):
        patiently(corrupt, seconds=60)
    assert tries == 4


def test_a_worker_does_not_throw_a_finished_job_away_for_a_lock(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes of inference may stand behind a settlement: a lock that is met twice costs time, not the result."""
    session = store.start_session(tmp_path, title="t")
    with store.claim_session(session.id, tmp_path) as lease:
        lease.append_turn(turn(1))
        lease.release(distill=True)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    real, tries = JobLease.complete, 0

    def complete(*arguments: Any, **named: Any) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise StorageBusy("locked")
        real(*arguments, **named)

    monkeypatch.setattr(JobLease, "complete", complete)
    ended = attempt(store, job, ScriptedEngine(write=says("nothing")), stop=CancelToken(), chunking=True)
    assert (ended.outcome, tries) == ("completed", 3)
