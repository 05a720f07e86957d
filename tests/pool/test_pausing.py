"""Pause and resume of the queue, which survive whoever asked for them; and the schema that came with them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.db import schema
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Invalid
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_queue import claims, idle
from emelex_queue.pausing import pause, pauses, resume
from emelex_queue.turns import Turns
from emelex_workers.drain import DrainOptions, drain
from pools import Pool, job_of, named, publish, until
from scripted import ScriptedEngine, ScriptedSource
from stores import ManualClock, rows, sound

Pools = Callable[..., Pool]
GOLDEN = Path(__file__).parents[1] / "migration" / "golden" / "schema-0007.sqlite3.gz"


def test_a_paused_kind_is_not_claimed_by_anybody(store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "quick")
    clock = ManualClock()
    (made,) = pause(store.database, [JobKind.DISTILLATION], reason="the model is being changed", clock=clock)
    assert (made.kind, made.paused_at, made.reason) == (JobKind.DISTILLATION, clock.now, "the model is being changed")
    kind = JobKind.DISTILLATION
    assert claims.claim(store.database, kind, clock=store.clock) is None
    assert claims.claim(store.database, kind, clock=store.clock, session_id=session) is None
    assert not idle.has_claimable(store.database, kind, clock=store.clock)
    assert Turns(store.database, clock=store.clock).claim() is None
    report = drain(
        store, DrainOptions(), engines=ScriptedSource(ScriptedEngine()), listen=lambda event: None, stop=CancelToken()
    )
    assert (report.distillations, report.remaining_jobs) == (0, 1)
    assert resume(store.database) == [JobKind.DISTILLATION]
    assert pauses(store.database) == []
    lease = Turns(store.database, clock=store.clock).claim()
    assert lease is not None
    lease.release()


def test_pausing_twice_keeps_the_first_reason_and_resuming_twice_does_nothing(store: MemoryStore) -> None:
    clock = ManualClock()
    pause(store.database, reason="first", clock=clock)
    clock.turn(5)
    again = pause(store.database, reason="second", clock=clock)
    assert [(one.kind, one.reason, one.paused_at) for one in again] == [
        (JobKind.COMPACTION, "first", clock.now - 5),
        (JobKind.DISTILLATION, "first", clock.now - 5),
    ]
    assert resume(store.database, [JobKind.COMPACTION]) == [JobKind.COMPACTION]
    assert resume(store.database, [JobKind.COMPACTION]) == []
    assert [one.kind for one in pauses(store.database)] == [JobKind.DISTILLATION]


@pytest.mark.parametrize("reason", ["", " ", "x" * 513])
def test_a_reason_is_neither_blank_nor_long(store: MemoryStore, reason: str) -> None:
    with pytest.raises(Invalid):
        pause(store.database, reason=reason, clock=store.clock)
    assert pauses(store.database) == []


def test_a_pause_outlives_pools_and_ends_within_a_moment(
    pool: Pools, home: Path, store: MemoryStore, workspace: Path
) -> None:
    """What runs is not touched; what waits waits, also for a pool that starts later; resuming wakes it up."""
    running, waiting = publish(store, workspace, "hold 0.4", "quick")
    one = pool(1)
    one.wait_for(named("JobStarted"))
    with MemoryStore.open(home) as other:
        pause(other.database, clock=other.clock)
    one.wait_for(named("JobEnded", outcome="completed"))
    assert job_of(store, running).state is JobState.COMPLETED
    late = pool(1)
    late.wait_for(named("WorkerStarted"), count=2)
    (more,) = publish(store, workspace, "quick")
    assert {job_of(store, session).state for session in (waiting, more)} == {JobState.PENDING}
    assert len(one.of("JobStarted")) + len(late.of("JobStarted")) == 1
    resume(store.database)
    until(lambda: {job_of(store, session).state for session in (waiting, more)} == {JobState.COMPLETED}, seconds=2)


def test_a_database_of_schema_7_is_brought_forward(tmp_path: Path) -> None:
    """A file that the release before wrote (behaviours 11 and 14): everything in it is kept, and its jobs go on."""
    path = tmp_path / "old.sqlite3"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(descriptor, "wb") as file:
        file.write(gzip.decompress(GOLDEN.read_bytes()))
    tables = [name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
    before = {table: rows(path, f"SELECT * FROM {table}") for table in tables}
    assert rows(path, "PRAGMA user_version") == [(7,)]
    with MemoryStore.open_path(path) as store:
        assert store.totals().schema_version == schema.CURRENT
        assert [job.last_error for job in store.failed_jobs()] == ["attempt 1: the golden failure"]
        assert pauses(store.database) == []
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        lease.release()
        assert [job.state for job in reading.list_jobs(store.database)].count(JobState.PENDING) == 1
    after = {table: rows(path, f"SELECT * FROM {table}") for table in tables}
    migrations = after.pop("schema_migrations")
    assert [row[0] for row in migrations] == [number for number, _ in schema.MIGRATIONS]
    assert migrations[0] == before.pop("schema_migrations")[0]
    assert after == before
    assert sound(path)
    with MemoryStore.open_path(tmp_path / "fresh.sqlite3", create=True):
        ddl = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2"
        assert rows(path, ddl) == rows(tmp_path / "fresh.sqlite3", ddl)
