"""Deleting a Session: everything that hangs on it, and the media that it alone showed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import NotFound, SessionBusy
from pictures import picture
from stores import ManualClock, child, edit, kill, line, rows, sound

Show = Callable[..., Session]
Names = Callable[[], set[str]]
TABLES = ("events", "event_assets", "jobs", "active_turns", "pending_tools", "session_snapshots", "imports")


def test_everything_goes_with_the_session(store: MemoryStore, show: Show, workspace: Path, names: Names) -> None:
    """156: events, links, jobs, journals, snapshot cascade, and the report counts them."""
    session = show(store.store_asset(picture(1)), store.store_asset(picture(2, 100)))
    store.queue_distillation(session.id)
    path = store.database.path
    edit(path, "INSERT INTO session_snapshots VALUES (?, 1, x'7b7d', x'7b7d', 1)", (session.id,))
    edit(path, "INSERT INTO active_turns VALUES (?, ?, x'7b7d', 0, 1)", (session.id, "t" * 36))
    edit(path, "INSERT INTO pending_tools VALUES (?, 0, 'c', 'n', x'7b7d', 'planned', NULL, NULL)", (session.id,))
    edit(path, "INSERT INTO imports VALUES (?, 0, ?, 1, 0, 0, 1)", (session.id, "0" * 64))
    child_session = store.start_session(workspace, title="child", parent_session_id=session.id)
    report = store.delete_session(session.id)
    assert (report.id, report.title, report.events, report.jobs) == (session.id, "pictures", 2, 1)
    assert (report.assets, report.asset_bytes, report.kept_assets, report.problems) == (2, 164, 0, ())
    assert [rows(path, f"SELECT count(*) FROM {table}") for table in TABLES] == [[(0,)]] * len(TABLES)
    assert names() == set()
    assert store.totals().assets == 0
    assert store.get_session(child_session.id).parent_session_id is None
    with pytest.raises(NotFound):
        store.get_session(session.id)
    assert sound(path)


def test_an_unknown_session_is_not_found(store: MemoryStore) -> None:
    with pytest.raises(NotFound):
        store.delete_session("0" * 36)


def test_media_of_others_stay(store: MemoryStore, show: Show, names: Names) -> None:
    """108: only what no other event links goes, in whatever order the Sessions are deleted."""
    shared, own = store.store_asset(picture(1)), store.store_asset(picture(2))
    first = show(shared, own)
    store.store_asset(picture(1))
    second = show(shared, shared)
    assert (store.delete_session(second.id).assets, names()) == (0, {shared.sha256, own.sha256})
    assert store.read_asset(shared) == picture(1)
    assert (store.delete_session(first.id).assets, names()) == (2, set())


def test_what_was_stored_again_waits_for_its_append(
    store: MemoryStore, show: Show, workspace: Path, clock: ManualClock
) -> None:
    """108 and 110: another writer has the reference and is about to link it."""
    ref = store.store_asset(picture())
    first = show(ref)
    clock.turn(1)
    assert store.store_asset(picture()) == ref
    report = store.delete_session(first.id)
    assert (report.assets, report.kept_assets) == (0, 1)
    second = show(ref)
    with store.claim_session(second.id, workspace) as lease:
        assert lease.replay()[0].media == (ref,)
    assert store.delete_session(second.id).assets == 1


def test_the_grace_of_what_stays_begins_now(store: MemoryStore, show: Show, clock: ManualClock) -> None:
    """108: counted from when it became unreferenced."""
    ref = store.store_asset(picture())
    session = show(ref)
    clock.turn(1)
    store.store_asset(picture())
    clock.turn(100 * limits.ASSET_GRACE_MS)
    assert store.delete_session(session.id).kept_assets == 1
    clock.turn(limits.ASSET_GRACE_MS - 1)
    assert store.collect_assets().rows == 0
    clock.turn(1)
    assert store.collect_assets().rows == 1


def test_what_another_turn_under_way_names_stays(store: MemoryStore, show: Show) -> None:
    """108: the journal of another Session counts, the deleted one's own does not."""
    ref, own = store.store_asset(picture(1)), store.store_asset(picture(2))
    session, other = show(ref, own), show()
    for holder, sha256 in ((other, ref.sha256), (session, own.sha256)):
        edit(
            store.database.path,
            "INSERT INTO active_turns VALUES (?, ?, ?, 0, 1)",
            (holder.id, holder.id, f'{{"sha256":"{sha256}"}}'.encode()),
        )
    report = store.delete_session(session.id)
    assert (report.assets, report.kept_assets) == (1, 1)
    assert store.read_asset(ref) == picture(1)


def test_a_live_claim_keeps_the_session(store: MemoryStore, show: Show, workspace: Path, clock: ManualClock) -> None:
    """29: SessionBusy with the deadline; an expired lease does not."""
    session = show(store.store_asset(picture()))
    lease = store.claim_session(session.id, workspace)
    with pytest.raises(SessionBusy) as caught:
        store.delete_session(session.id)
    assert caught.value.held_until == clock.now + limits.LEASE_MS
    assert store.totals().assets == 1
    clock.turn(limits.LEASE_MS)
    assert store.delete_session(session.id).events == 2
    del lease


def test_the_claim_of_a_dead_process_does_not_keep_it(
    store: MemoryStore, show: Show, home: Path, workspace: Path, clock: ManualClock
) -> None:
    """29 and 181."""
    session = show()
    holder = child(
        """
        import sys
        from emelex_core import MemoryStore
        store = MemoryStore.open(sys.argv[1], clock=lambda: int(sys.argv[4]))
        lease = store.claim_session(sys.argv[2], sys.argv[3])
        print("held", flush=True)
        sys.stdin.read()
        """,
        home,
        session.id,
        workspace,
        clock.now,
    )
    assert line(holder) == "held"
    with pytest.raises(SessionBusy):
        store.delete_session(session.id)
    kill(holder)
    assert store.delete_session(session.id).id == session.id


def test_a_live_worker_keeps_the_session(store: MemoryStore, show: Show, clock: ManualClock) -> None:
    """155: until its lease ends."""
    session = show()
    store.queue_distillation(session.id)
    edit(
        store.database.path,
        "UPDATE jobs SET state = 'running', lease_token = zeroblob(16), lease_until = ?, lease_owner = ?",
        (clock.now + 60_000, store.database.owners.slot()),
    )
    with pytest.raises(SessionBusy) as caught:
        store.delete_session(session.id)
    assert caught.value.held_until == clock.now + 60_000
    clock.turn(60_000)
    assert store.delete_session(session.id).jobs == 1


def test_knowledge_outlives_its_session(store: MemoryStore, show: Show) -> None:
    """156 and the seed: the foreign key is null, uuid, range and digest stay."""
    session = show()
    path = store.database.path
    edit(path, "INSERT INTO knowledge VALUES (1, ?, 'k', 1, 0, NULL, NULL, 1, 1)", (session.workspace_id,))
    edit(
        path,
        "INSERT INTO knowledge_versions "
        "VALUES (1, 1, 'c', 0.5, 'distillation', ?, ?, 1, 2, ?, 'e', 1, 'user', 'q', 'j', 1, NULL, NULL)",
        (session.id, session.id, "a" * 64),
    )
    store.delete_session(session.id)
    assert rows(
        path,
        "SELECT source_session_id, source_session_uuid, source_first_sequence, source_last_sequence, source_sha256 "
        "FROM knowledge_versions",
    ) == [(None, session.id, 1, 2, "a" * 64)]
    assert sound(path)


def test_a_bad_file_does_not_stop_the_deletion(store: MemoryStore, show: Show, names: Names) -> None:
    """112's rule: it is a problem in the report and stays cataloged."""
    bad, good = store.store_asset(picture(1)), store.store_asset(picture(2))
    session = show(bad, good)
    (store.assets_directory / bad.sha256).chmod(0o644)
    report = store.delete_session(session.id)
    assert [problem.name for problem in report.problems] == [bad.sha256]
    assert (report.assets, names()) == (1, {bad.sha256})
    assert store.get_asset(bad.sha256).references == 0


def test_a_lease_that_is_held_loses_nothing(store: MemoryStore, workspace: Path) -> None:
    """29: the refused call changes nothing; the turn under way is appended."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        with pytest.raises(SessionBusy):
            store.delete_session(session.id)
        lease.append_turn([Event.user("still here")])
    assert store.get_session(session.id).last_sequence == 1
