"""Retention of Sessions (behaviours 150, 155, 156, 179): what goes, and what never goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.errors import Invalid
from emelex_core.home import Home
from emelex_core.jobs.kinds import JobKind
from emelex_core.retention.records import RetentionPolicy
from emelex_core.sessions import delete
from emelex_queue import claims
from stores import DAY, ManualClock, child, edit, line, rows, sound

Talk = Callable[..., Session]
Live = Callable[[int], None]


def test_a_session_goes_after_its_age_and_not_before(
    store: MemoryStore, talk: Talk, live_through: Live, ids: Callable[[], set[str]], home: Home
) -> None:
    """Counted from the last recorded activity; the journal says what went, when and why."""
    old = talk("Old parcels")
    live_through(60)
    young = talk("Young parcels")
    live_through(29)
    assert store.maintain().sessions is not None
    assert ids() == {old.id, young.id}
    live_through(2)
    report = store.maintain()
    assert report.problems == ()
    assert report.sessions is not None
    assert [removal.id for removal in report.sessions.phase.removals] == [old.id]
    assert ids() == {young.id}
    assert sound(home.database)
    assert rows(home.database, "SELECT kind, id, dated_at FROM removals") == [("session", old.id, old.updated_at)]


def test_a_session_is_announced_before_it_goes(store: MemoryStore, talk: Talk, live_through: Live) -> None:
    """Its last week is the time to use it, or to export it."""
    session = talk()
    live_through(80)
    report = store.maintain()
    assert report.sessions is not None
    assert report.sessions.expiring == ()
    live_through(4)
    report = store.maintain()
    assert report.sessions is not None
    assert [removal.id for removal in report.sessions.expiring] == [session.id]
    assert report.sessions.phase.removals == ()


def test_using_a_session_keeps_it(store: MemoryStore, talk: Talk, live_through: Live, workspace: Path) -> None:
    """31: a claim advances the activity, which resets retention."""
    session = talk()
    live_through(89)
    store.claim_session(session.id, workspace).release()
    live_through(89)
    store.maintain()
    assert store.get_session(session.id).id == session.id


def test_what_is_in_use_or_has_work_is_kept_and_told(
    store: MemoryStore, talk: Talk, live_through: Live, workspace: Path, home: Home, ids: Callable[[], set[str]]
) -> None:
    """150 and 179: live, pending, running, an active turn, an unreconciled tool; each with its reason."""
    live, pending, running, turn, tool, free = (talk(f"Session {number}") for number in range(6))
    lease = store.claim_session(live.id, workspace)
    for session in (running, pending):
        store.queue_distillation(session.id)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    assert job.job.session_id == running.id
    for number, session in enumerate((turn, tool)):
        edit(
            home.database,
            "INSERT INTO active_turns VALUES (?, ?, x'7b7d', 0, 1)",
            (session.id, f"{number}" * 36),
        )
    edit(
        home.database, "INSERT INTO pending_tools VALUES (?, 0, 'c', 'shell', x'7b7d', 'started', 1, NULL)", (tool.id,)
    )
    live_through(120)
    lease.renew()
    report = store.maintain()
    assert report.sessions is not None
    assert {kept.id: kept.reason for kept in report.sessions.kept} == {
        live.id: "live",
        pending.id: "jobs",
        running.id: "jobs",
        turn.id: "turn",
        tool.id: "turn",
    }
    assert ids() == {live.id, pending.id, running.id, turn.id, tool.id}
    assert free.id not in ids()
    del lease, job


def test_deletion_asks_again_in_its_own_transaction(
    store: MemoryStore, talk: Talk, live_through: Live, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Session that is used between the choice and the deletion stays, with what was just said in it."""
    session = talk()
    live_through(91)
    original = delete.delete
    used: list[str] = []

    def use_first(*arguments: Any, **named: Any) -> delete.DeletedSession:
        with store.claim_session(session.id, workspace) as lease:
            lease.replay()
            lease.append_turn([Event.user("Not so fast."), Event.assistant("Kept.")])
        used.append(session.id)
        return original(*arguments, **named)

    monkeypatch.setattr(delete, "delete", use_first)
    report = store.maintain()
    assert used == [session.id]
    assert report.sessions is not None
    assert report.sessions.phase.removals == ()
    assert store.get_session(session.id).last_sequence == 4


def test_its_assets_and_rows_go_with_it_and_knowledge_stays(
    store: MemoryStore, workspace: Path, live_through: Live, home: Home, learn: Callable[..., None]
) -> None:
    """156, 108, 141: events, jobs and the asset that only it linked; the entry's source uuid remains."""
    learn("rule.parcels")
    session = store.start_session(workspace, title="With a picture")
    with store.claim_session(session.id, workspace) as lease:
        ref = store.store_asset(b"%PDF-1.7 parcels")
        lease.append_turn([Event.user("See this.", ref), Event.assistant("Seen.")])
    live_through(91)
    dry = store.maintain(dry_run=True)
    report = store.maintain()
    assert dry.sessions is not None
    assert report.sessions is not None
    assert (dry.sessions.events, dry.sessions.assets) == (report.sessions.events, report.sessions.assets) == (4, 1)
    assert rows(home.database, "SELECT count(*) FROM events") == [(0,)]
    assert not (store.assets_directory / ref.sha256).exists()
    ((alive, uuid),) = rows(home.database, "SELECT source_session_id, source_session_uuid FROM knowledge_versions")
    assert alive is None
    assert uuid is not None


def test_a_dry_run_says_exactly_what_goes_and_changes_nothing(
    store: MemoryStore, talk: Talk, live_through: Live, home: Home
) -> None:
    """The same removals with the same reasons; not one byte of a table differs after it."""
    for number in range(5):
        talk(f"Session {number}")
    live_through(91)

    def contents() -> list[list[tuple[object, ...]]]:
        return [rows(home.database, f"SELECT * FROM {table}") for table in ("sessions", "maintenance_time", "removals")]

    before = contents()
    promised = store.maintain(dry_run=True)
    assert contents() == before
    done = store.maintain()
    assert promised.sessions is not None
    assert done.sessions is not None
    assert promised.sessions.phase == done.sessions.phase
    assert promised.phases == done.phases
    assert len(done.sessions.phase.removals) == 5


def test_a_phase_is_bounded_and_says_that_more_is_left(store: MemoryStore, talk: Talk, live_through: Live) -> None:
    """House habit 18: the longest unused first, so many a run."""
    made = [talk(f"Session {number}").id for number in range(5)]
    live_through(91)
    gone: list[str] = []
    for _ in range(3):
        report = store.maintain(RetentionPolicy(rows_max=2))
        assert report.sessions is not None
        gone += [removal.id for removal in report.sessions.phase.removals]
        assert report.sessions.phase.more == (len(gone) < 5)
    assert gone == made


@pytest.mark.parametrize(
    "policy",
    [
        {"rows_max": 0},
        {"rows_max": 10_001},
        {"session_ms": 0},
        {"knowledge_ms": 0},
        {"tombstone_ms": -1},
        {"job_ms": 0},
        {"asset_ms": 0},
        {"removal_ms": 0},
        {"versions": 0},
        {"versions": 1_001},
    ],
)
def test_bounds_are_refused_before_anything_is_done(store: MemoryStore, policy: dict[str, int], home: Home) -> None:
    """154."""
    with pytest.raises(Invalid):
        store.maintain(RetentionPolicy(**policy))
    assert rows(home.database, "SELECT * FROM maintenance_time") == []


@pytest.mark.parametrize("days", [0, -1, 3_651])
def test_days_of_retention_are_bounded(days: int) -> None:
    """Limits table, "Retention (CLI gc)": 1 to 3,650."""
    with pytest.raises(Invalid):
        RetentionPolicy.of_days(days)
    assert RetentionPolicy.of_days(3_650).session_ms == 3_650 * DAY


def test_a_dead_holders_lease_is_taken_off_and_a_living_ones_is_not(
    store: MemoryStore, talk: Talk, workspace: Path, home: Home, clock: ManualClock
) -> None:
    """24 and 181: an expired lease whose owner lives is its owner's to renew; a dead one's goes at once."""
    mine, theirs = talk("Mine"), talk("Theirs")
    code = """
        import sys
        from emelex_core import MemoryStore
        store = MemoryStore.open(sys.argv[1])
        lease = store.claim_session(sys.argv[2], sys.argv[3])
        print("claimed", flush=True)
        sys.stdin.readline()
    """
    process = child(code, home.root, theirs.id, workspace)
    assert line(process) == "claimed"
    lease = store.claim_session(mine.id, workspace)
    clock.turn(10 * 60 * 1_000)
    assert store.maintain().stale_leases == 0
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert store.maintain(dry_run=True).stale_leases == 1
    assert store.maintain().stale_leases == 1
    assert store.maintain().stale_leases == 0
    lease.renew()
