"""A Session that nobody holds: one event, its title, and the look at its directory (behaviours 22, 29, 39, 40)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import Invalid, NotFound, ReplayRequired, SessionBusy, StaleReplay, WorkspaceMismatch
from emelex_core.events import EventKind, TextPart
from stores import START, ManualClock

Change = Callable[[MemoryStore, str], object]
CHANGES: dict[str, Change] = {
    "event": lambda store, session_id: store.append_event(session_id, Event.audit("seen", label="note")),
    "title": lambda store, session_id: store.set_title(session_id, "another title"),
}


def test_an_event_is_a_turn_of_its_own(store: MemoryStore, session: Session, workspace: Path) -> None:
    """35: it continues the chain, and counts as activity."""
    appended = store.append_event(session.id, Event.audit("seen", label="note"))
    found = store.get_session(session.id)
    assert (appended.first_sequence, appended.last_sequence) == (5, 5)
    assert (found.last_sequence, found.updated_at > session.updated_at) == (5, True)
    with store.claim_session(session.id, workspace) as lease:
        assert [(event.text, event.turn_size) for event in lease.replay()][-1] == ("seen", 1)


def test_a_title_is_changed(store: MemoryStore, session: Session) -> None:
    """31: which is activity, too."""
    store.set_title(session.id, "another title")
    found = store.get_session(session.id)
    assert (found.title, found.updated_at > session.updated_at) == ("another title", True)


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_changes_behind_a_live_lease(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock, what: str
) -> None:
    """29: the deadline is told; released or expired, it goes through."""
    lease = store.claim_session(session.id, workspace)
    before = store.get_session(session.id)
    with pytest.raises(SessionBusy) as busy:
        CHANGES[what](store, session.id)
    assert busy.value.held_until == START + limits.LEASE_MS
    assert store.get_session(session.id) == before
    clock.turn(limits.LEASE_MS)
    CHANGES[what](store, session.id)
    lease.release()
    CHANGES[what](store, session.id)


def test_a_holder_whose_lease_ran_out_finds_the_event(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """24 and 40: it renews, is told that the tail moved, and replays before it appends."""
    lease = store.claim_session(session.id, workspace)
    lease.replay()
    clock.turn(limits.LEASE_MS)
    store.append_event(session.id, Event.audit("seen", label="note"))
    lease.renew()
    for expected in (StaleReplay, ReplayRequired):
        with pytest.raises(expected):
            lease.append_turn([Event.user("x")])
    lease.replay()
    assert lease.append_turn([Event.user("x")]).first_sequence == 6
    lease.release()


@pytest.mark.parametrize("what", CHANGES)
def test_an_unknown_session_is_not_found(store: MemoryStore, what: str) -> None:
    """29: and nothing is made."""
    with pytest.raises(NotFound):
        CHANGES[what](store, "0" * 36)
    assert store.list_sessions() == []


def test_what_may_not_be_stored_is_refused(store: MemoryStore, session: Session) -> None:
    """18, 37 and 39: nothing was written."""
    summary = Event(kind=EventKind.SUMMARY, parts=(TextPart(text="all of it"),))
    for event in (summary, Event.user("\ud800"), Event.user("x" * (limits.EVENT_BYTES_MAX + 1))):
        with pytest.raises(Invalid):
            store.append_event(session.id, event)
    for title in (" ", "x" * 513, "\ud800"):
        with pytest.raises(Invalid):
            store.set_title(session.id, title)
    assert store.get_session(session.id) == session


def test_a_session_knows_its_directory(session: Session, workspace: Path, tmp_path: Path) -> None:
    """22: the preflight of a claim, without a store; a renamed directory is the same one."""
    assert session.validate_workspace(workspace).identity == session.workspace_identity
    with pytest.raises(WorkspaceMismatch, match="inode"):
        session.validate_workspace(tmp_path)
    with pytest.raises(Invalid, match="does not exist"):
        session.validate_workspace(tmp_path / "missing")
    moved = workspace.rename(tmp_path / "moved")
    assert session.validate_workspace(moved).path == str(moved)
    workspace.mkdir()
    with pytest.raises(WorkspaceMismatch):
        session.validate_workspace(workspace)


def test_a_directory_replaced_between_two_appends(store: MemoryStore, session: Session, workspace: Path) -> None:
    """23: an append looks again even where the one before it has just seen the right directory."""
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        for text in ("x", "y"):
            lease.append_turn([Event.user(text)])
        aside = workspace.rename(workspace.with_name("aside"))
        for replace in (lambda: None, workspace.mkdir, lambda: (workspace.rmdir(), workspace.write_text("a file"))):
            replace()
            with pytest.raises(WorkspaceMismatch):
                lease.append_turn([Event.user("z")])
        workspace.unlink()
        aside.rename(workspace)
        assert lease.append_turn([Event.user("z")]).first_sequence == 7
