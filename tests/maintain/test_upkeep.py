"""The upkeep of the file (behaviour 153): statistics, free pages, the log. A phase that fails stops no other (112)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.db import statements
from emelex_core.errors import Cancelled, StorageBusy
from emelex_core.home import Home
from emelex_core.retention import upkeep
from stores import child, edit, kill, line, rows, sound

Talk = Callable[..., Session]

READER = """
    import sys
    from emelex_core import MemoryStore
    store = MemoryStore.open(sys.argv[1])
    with store.database.read() as transaction:
        transaction.all("SELECT count(*) FROM sessions")
        print("reading", flush=True)
        sys.stdin.readline()
"""


def test_a_reader_keeps_the_log_and_fails_nothing(store: MemoryStore, talk: Talk, home: Home) -> None:
    """153: wal_busy is told; the next run truncates."""
    process = child(READER, home.root)
    assert line(process) == "reading"
    talk()
    report = store.maintain()
    assert report.problems == ()
    assert report.file is not None
    assert report.file.wal_busy
    assert report.file.wal_bytes > 0
    kill(process)
    report = store.maintain()
    assert report.file is not None
    assert (report.file.wal_busy, report.file.wal_bytes) == (False, 0)


def test_a_writer_in_the_way_of_a_vacuum_is_told(
    store: MemoryStore, talk: Talk, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a bounded time, then leaves the file as it is."""
    talk()
    monkeypatch.setattr(upkeep, "_VACUUM_WAIT_MS", 50)
    code = READER.replace(".read() as", ".write() as")
    process = child(code, home.root)
    assert line(process) == "reading"
    report = upkeep.tend(store.database, vacuum=True)
    assert report.vacuum == "busy"
    assert report.wal_busy
    kill(process)
    assert upkeep.tend(store.database, vacuum=True).vacuum == "whole"


def test_free_pages_are_given_back_in_bounded_steps(
    store: MemoryStore, talk: Talk, workspace: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without asking for it, a bounded number; with it, a large file gives all of them back without a rewrite."""
    session = talk()
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        for _ in range(3):
            lease.append_turn([Event.user("x" * 4_000_000)])
    full = store.totals().database_bytes
    store.delete_session(session.id)
    report = upkeep.tend(store.database, vacuum=False, pages_max=limits.VACUUM_PAGES)
    assert report.vacuum == "incremental"
    # A page of the map of pages may go along.
    assert limits.VACUUM_PAGES <= report.pages_freed < limits.VACUUM_PAGES + 10
    assert report.bytes_after < full
    monkeypatch.setattr(limits, "VACUUM_BYTES_MAX", 0)
    report = upkeep.tend(store.database, vacuum=True)
    assert (report.vacuum, report.free_pages) == ("incremental", 0)
    assert store.totals().database_bytes < full / 10
    assert sound(home.database)


def test_a_bad_phase_is_told_and_the_others_run(
    store: MemoryStore, talk: Talk, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """112: an asset directory with another mode, and a locked moment, stop neither each other nor the rest."""
    talk()
    store.store_asset(b"%PDF-1.7 parcels")
    store.assets_directory.chmod(0o755)

    def busy(*arguments: object, **named: object) -> object:
        raise StorageBusy("locked for longer than the wait allows")

    with monkeypatch.context() as locked:
        locked.setattr("emelex_core.retention.sweeps.run", busy)
        report = store.maintain()
    assert [problem.phase for problem in report.problems] == [
        "purged_knowledge",
        "tombstoned_knowledge",
        "knowledge_versions",
        "knowledge_proposals",
        "completed_jobs",
        "failed_jobs",
        "assets",
    ]
    assert report.sessions is not None
    assert report.file is not None
    assert report.assets is None
    store.assets_directory.chmod(0o700)
    assert store.maintain().problems == ()


def test_it_stops_between_phases(store: MemoryStore) -> None:
    """167: told to stop, a run ends with what is committed."""
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Cancelled):
        store.maintain(stopped=stopped)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("name", "index"), [("claim", "jobs_to_claim"), ("has_claimable", "jobs_to_claim"), ("expired", "jobs_running")]
)
def test_statistics_leave_the_claims_plan_alone(
    store: MemoryStore, talk: Talk, home: Home, name: str, index: str
) -> None:
    """ADR 0002 after PRAGMA optimize has looked at a table full of finished jobs."""
    session = talk(distill=True)
    edit(
        home.database,
        """
        INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, published_at, completed_at,
                          through_sequence, source_event_count,
                          source_first_event_id, source_last_event_id, source_sha256)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        SELECT printf('%036d', i), 'distillation', ?, 'completed', 0, 1, 1, i, 1, 1, printf('%036d', 1),
               printf('%036d', 1), printf('%064d', i) FROM n
        """,
        (session.id,),
    )
    store.maintain()
    edit(home.database, "ANALYZE")
    assert rows(home.database, "SELECT count(*) FROM sqlite_stat1 WHERE tbl = 'jobs'") != [(0,)]
    text = statements.load("emelex_queue", "jobs")[name]
    with store.database.sibling().read() as transaction:
        bindings = dict.fromkeys(re.findall(r":(\w+)", text))
        plan = [str(row[3]) for row in transaction.all(f"EXPLAIN QUERY PLAN {text}", bindings)]
    assert any(index in step for step in plan), plan
