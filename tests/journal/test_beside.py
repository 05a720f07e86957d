"""What the rest of the store makes of journals: media, retention, deletion, copies (behaviours 108, 156, 161, 179)."""

from __future__ import annotations

import json
from pathlib import Path

from emelex_core import Event, MemoryStore, Session, SessionLease
from emelex_core.archive.backup import backup
from emelex_core.archive.check import check
from emelex_core.archive.export import export_session
from emelex_core.archive.records import Weight
from emelex_core.home import Home
from emelex_core.journal.turns import Journal
from emelex_core.sessions.append import prepare
from journals import HELLO, calls, proposal, result, told
from pictures import picture
from stores import DAY, ManualClock, rows

TABLES = ("active_turns", "pending_batches", "pending_tools", "pending_approvals", "turn_checkpoints")


def interrupt(journal: Journal, message: Event = HELLO) -> None:
    """A turn with a checkpoint and an open batch in which somebody was asked and a call has started."""
    journal.begin(message)
    (first,) = calls(1)
    journal.plan((message, proposal(first)), (first,))
    journal.complete(first, *result(first, status="not_executed"))
    journal.checkpoint()
    asked, started = calls(2, first=2)
    journal.plan((proposal(asked, started),), (asked, started))
    journal.ask(asked, "may it?")
    journal.start(started)


def test_media_of_a_turn_under_way_are_kept(
    store: MemoryStore, journal: Journal, lease: SessionLease, clock: ManualClock
) -> None:
    """108: from the input until the batch that holds it is published, and its links with it."""
    ref = store.store_asset(picture())
    message = Event.user("look", ref)
    journal.begin(message)
    clock.turn(30 * DAY)
    lease.renew()
    assert store.collect_assets().journalled == 1
    (call,) = calls(1)
    journal.plan((message, proposal(call)), (call,))
    clock.turn(30 * DAY)
    lease.renew()
    assert store.collect_assets().rows == 0
    journal.complete(call, *result(call, status="not_executed"))
    journal.checkpoint()
    assert store.read_asset(ref) == picture()


def test_media_of_an_unanswered_input_stay_linked(store: MemoryStore, journal: Journal, session: Session) -> None:
    """K1: what a person showed is kept with their words when the turn fails."""
    ref = store.store_asset(picture())
    journal.begin(Event.user("look", ref))
    journal.fail("the model failed")
    assert [linked.sha256 for linked in store.list_session_assets(session.id)] == [ref.sha256]


def test_retention_waits_for_a_recovery(
    store: MemoryStore, journal: Journal, session: Session, lease: SessionLease, clock: ManualClock
) -> None:
    """179: however old, an unreconciled journal keeps its Session."""
    interrupt(journal)
    lease.release()
    for _ in range(120):
        clock.turn(DAY)
        store.maintain()
    report = store.maintain()
    assert report.sessions is not None
    assert [(kept.id, kept.reason) for kept in report.sessions.kept] == [(session.id, "turn")]
    assert store.interrupted_turn(session.id) is not None


def test_a_deletion_takes_the_journal_along(
    store: MemoryStore, journal: Journal, session: Session, lease: SessionLease
) -> None:
    """156: every table of it."""
    interrupt(journal)
    assert all(rows(store.database.path, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES)
    lease.release()
    store.delete_session(session.id)
    assert not any(rows(store.database.path, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES)


def test_an_interrupted_turn_is_recovered_from_a_backup(
    store: MemoryStore, journal: Journal, session: Session, workspace: Path, tmp_path: Path
) -> None:
    """A backup taken in the middle of a turn holds the journal, without anybody's authority."""
    interrupt(journal)
    backup(store, tmp_path / "backup")
    with MemoryStore.open(Home(tmp_path / "backup")) as copy:
        assert copy.get_session(session.id).held_until is None
        notes = [finding.area for finding in check(copy).findings if finding.weight is Weight.NOTE]
        assert notes == ["journal"]
        closed = copy.recover_session(session.id, workspace, accept_unknown_effects=True)
        assert (closed.uncertain, closed.not_executed) == (1, 1)
        assert check(copy).findings == ()
    assert store.interrupted_turn(session.id) is not None


def test_an_export_holds_what_is_durable_history(
    store: MemoryStore, journal: Journal, session: Session, lease: SessionLease
) -> None:
    """161: checkpointed events are exported; an open batch is no history yet."""
    interrupt(journal)
    pieces: list[bytes] = []
    export_session(store, pieces.append, store.get_session(session.id))
    events = json.loads(b"".join(pieces))["sessions"][0]["events"]
    assert [event["kind"] for event in events] == ["user", "assistant", "tool", "audit"]


def test_a_turn_under_way_is_no_finding(store: MemoryStore, journal: Journal, lease: SessionLease) -> None:
    """A check beside a living agent says nothing; once its owner is gone it says where a recovery waits."""
    interrupt(journal)
    assert check(store).findings == ()
    lease.release()
    assert [(finding.area, finding.weight) for finding in check(store).findings] == [("journal", Weight.NOTE)]


def test_no_job_rests_on_what_a_turn_has_not_published(
    store: MemoryStore, journal: Journal, session: Session, lease: SessionLease
) -> None:
    """A distillation that is published beside an open batch ends with the last checkpoint."""
    interrupt(journal)
    lease.release()
    job = store.queue_distillation(session.id)
    assert job is not None
    assert job.through_sequence == store.get_session(session.id).last_sequence == len(told(store, session.id))


def test_what_was_appended_before_does_not_matter(
    store: MemoryStore, session: Session, lease: SessionLease, journal: Journal
) -> None:
    """A journal goes on behind any history; its checkpoints name the events that they appended."""
    lease.append_prepared([prepare([Event.user("before"), Event.assistant("yes")])])
    interrupt(journal)
    assert rows(store.database.path, "SELECT first_sequence, last_sequence FROM turn_checkpoints") == [(3, 6)]
