"""Sessions, their workspaces and their leases (behaviours 17 to 32, 149; reports K2, K4)."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session, SessionLease, limits
from emelex_core.clock import touched_at
from emelex_core.errors import (
    AmbiguousId,
    Invalid,
    NotFound,
    SessionBusy,
    StaleSessionLease,
    WorkspaceMismatch,
)
from emelex_core.sessions.records import ImportSource
from stores import DAY, MINUTE, SECOND, START, ManualClock, behind, child, edit, kill, line, rows


def _imported(source_id: str = "s-1", **other: str) -> ImportSource:
    return ImportSource(source=other.get("source", "codex"), source_id=source_id, cwd="/somewhere")


def test_a_workspace_is_a_directory(store: MemoryStore, tmp_path: Path) -> None:
    """17: a file, nothing, a path with NUL or not UTF-8, and one that is too long are Invalid."""
    file = tmp_path / "file"
    file.touch()
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    for place in (file, tmp_path / "none", "a\0b", odd, "/" + "x" * 5_000):
        with pytest.raises(Invalid):
            store.start_session(place, title="t")
    assert store.list_sessions() == []


@pytest.mark.parametrize("title", ["", " \n\t", "x" * 513, "é" * 257, "\ud800"])
def test_a_title_is_some_text(store: MemoryStore, workspace: Path, title: str) -> None:
    """18 and 183."""
    with pytest.raises(Invalid, match="title"):
        store.start_session(workspace, title=title)
    assert store.list_sessions() == []


def test_a_title_of_512_bytes_stays_as_it_is(store: MemoryStore, workspace: Path) -> None:
    """18 and K10: the bound is in bytes; NUL and line ends are kept."""
    for title in ("é" * 256, "a\0b\r\n"):
        assert store.get_session(store.start_session(workspace, title=title).id).title == title


def test_a_live_claim_keeps_others_out(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """19: the second learns until when."""
    with store.claim_session(session.id, workspace), pytest.raises(SessionBusy) as busy:
        store.claim_session(session.id, workspace)
    assert busy.value.held_until == clock.now + limits.LEASE_MS
    store.claim_session(session.id, workspace).release()


def test_an_expired_claim_is_taken_over(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """20: the first holder learns it at its next append, renewal, replay, title or release."""
    first = store.claim_session(session.id, workspace)
    first.replay()
    clock.turn(limits.LEASE_MS)
    with store.claim_session(session.id, workspace) as second:
        second.replay()
        for call in (
            lambda: first.append_turn([Event.user("late")]),
            first.renew,
            first.replay,
            lambda: first.set_title("late"),
            first.release,
        ):
            with pytest.raises(StaleSessionLease):
                call()
        second.append_turn([Event.user("mine")])
    assert [event.text for event in store.read_events(session.id)][-1] == "mine"


def test_a_renamed_workspace_is_the_same(store: MemoryStore, session: Session, workspace: Path) -> None:
    """21 and K9: the new path is stored; a link left behind leads to it too."""
    moved = workspace.rename(workspace.with_name("moved"))
    store.claim_session(session.id, moved).release()
    assert store.get_session(session.id).workspace_path == str(moved)
    workspace.symlink_to(moved)
    store.claim_session(session.id, workspace).release()
    assert [found.id for found in store.list_sessions(workspace)] == [session.id]


def test_a_replaced_workspace_is_another(store: MemoryStore, session: Session, workspace: Path) -> None:
    """22: both identities are told, and nothing is claimed."""
    workspace.rename(workspace.with_name("old"))
    workspace.mkdir()
    with pytest.raises(WorkspaceMismatch, match="inode"):
        store.claim_session(session.id, workspace)
    assert store.get_session(session.id).held_until is None


def test_a_second_witness_sees_a_reused_inode(
    store: MemoryStore, session: Session, workspace: Path, path: Path
) -> None:
    """22: same device and inode, another birth."""
    assert edit(path, "UPDATE workspaces SET birth_ns = birth_ns - 1") == 1
    with pytest.raises(WorkspaceMismatch, match="birth"):
        store.claim_session(session.id, workspace)


def test_a_workspace_replaced_under_a_lease(store: MemoryStore, session: Session, workspace: Path) -> None:
    """23: append, renew and replay all look; going back makes it good."""
    lease = store.claim_session(session.id, workspace)
    lease.replay()
    aside = workspace.rename(workspace.with_name("aside"))
    for replaced in (False, True):
        if replaced:
            workspace.mkdir()
        for call in (lambda: lease.append_turn([Event.user("x")]), lease.renew, lease.replay):
            with pytest.raises(WorkspaceMismatch):
                call()
    workspace.rmdir()
    aside.rename(workspace)
    lease.append_turn([Event.user("x")])
    assert store.get_session(session.id).last_sequence == 5


def test_a_claim_of_another_workspace_is_refused(store: MemoryStore, session: Session, tmp_path: Path) -> None:
    """Seed, "Sessions bind a canonical workspace directory"."""
    for call in (store.claim_session, lambda found, place: store.validate_workspace(session, place)):
        with pytest.raises(WorkspaceMismatch):
            call(session.id, tmp_path)


def test_an_expired_lease_is_renewed_by_its_holder(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """24: an append is refused meanwhile, and accepted again afterwards."""
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        clock.turn(limits.LEASE_MS)
        with pytest.raises(StaleSessionLease, match="expired"):
            lease.append_turn([Event.user("x")])
        lease.renew()
        lease.append_turn([Event.user("x")])


def test_a_second_release_does_nothing(store: MemoryStore, session: Session, workspace: Path) -> None:
    """25."""
    lease = store.claim_session(session.id, workspace)
    lease.release()
    with store.claim_session(session.id, workspace):
        assert lease.release() is None
        assert store.get_session(session.id).held_until is not None


def test_leaving_the_block_of_a_lost_lease_tells_it(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """25: but an error of the block itself comes first."""
    with pytest.raises(StaleSessionLease), store.claim_session(session.id, workspace):  # noqa: PT012 - leaving raises
        clock.turn(limits.LEASE_MS)
        kept = store.claim_session(session.id, workspace)
    kept.release()
    with pytest.raises(ZeroDivisionError), store.claim_session(session.id, workspace):  # noqa: PT012 - the block itself raises
        clock.turn(limits.LEASE_MS)
        kept = store.claim_session(session.id, workspace)
        raise ZeroDivisionError
    kept.release()


def test_a_dropped_lease_frees_its_session(store: MemoryStore, session: Session, workspace: Path) -> None:
    """26."""
    lease = store.claim_session(session.id, workspace)
    del lease
    gc.collect()
    store.claim_session(session.id, workspace).release()


def test_dropping_never_waits(
    store: MemoryStore, session: Session, workspace: Path, path: Path, clock: ManualClock
) -> None:
    """27: neither for a writer in another connection nor for this store's own open transaction; expiry recovers."""
    lease = store.claim_session(session.id, workspace)
    with behind(path) as raw:
        raw.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        del lease
        gc.collect()
        assert time.monotonic() - started < 1
    with pytest.raises(SessionBusy):
        store.claim_session(session.id, workspace)
    clock.turn(limits.LEASE_MS)
    lease = store.claim_session(session.id, workspace)
    with store.database.read():
        del lease
        gc.collect()
    clock.turn(limits.LEASE_MS)
    store.claim_session(session.id, workspace).release()


def test_a_claimed_title_changes_row_and_lease(store: MemoryStore, session: Session, workspace: Path) -> None:
    """30."""
    with store.claim_session(session.id, workspace) as lease:
        lease.set_title("another")
        assert lease.title == store.get_session(session.id).title == "another"
        with pytest.raises(Invalid):
            lease.set_title(" ")
        assert lease.title == "another"


def test_a_claim_moves_a_session_to_the_front(store: MemoryStore, workspace: Path, clock: ManualClock) -> None:
    """31 and K2: also while the clock stands, or runs back."""
    older, newer = (store.start_session(workspace, title=title) for title in ("older", "newer"))
    clock.turn(-DAY)
    before = store.get_session(older.id).updated_at
    store.claim_session(older.id, workspace).release()
    assert store.get_session(older.id).updated_at > before
    assert [found.id for found in store.list_sessions()] == [older.id, newer.id]


def test_a_lease_tells_nothing_and_cannot_be_forged(store: MemoryStore, session: Session, workspace: Path) -> None:
    """32 and house habit 8."""
    with store.claim_session(session.id, workspace) as lease:
        token = rows(store.database.path, "SELECT hex(lease_token) FROM sessions")[0][0]
        for text in (repr(lease), str(lease), f"{lease}"):
            assert token.lower() not in text.lower()
            assert "hidden" in text
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                call(lease)
        with pytest.raises(TypeError):
            SessionLease(
                object(), database=store.database, session=session, workspace=lease._workspace, clock=store.clock
            )


HOLDER = """
    import sys
    from emelex_core import MemoryStore
    store = MemoryStore.open(sys.argv[1])
    lease = store.claim_session(sys.argv[2], sys.argv[3])
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_holder_is_seen_at_the_next_look(home: Path, tmp_path: Path) -> None:
    """181: while it lives it keeps others out; once it is dead nobody waits for the lease."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(workspace, title="t")
        holder = child(HOLDER, home, session.id, workspace)
        assert line(holder) == "held"
        with pytest.raises(SessionBusy):
            store.claim_session(session.id, workspace)
        assert store.get_session(session.id).held_until is not None
        kill(holder)
        assert store.get_session(session.id).held_until is None
        store.claim_session(session.id, workspace).release()


@pytest.mark.parametrize("jump", [-400 * DAY, -DAY, -MINUTE])
def test_a_clock_that_was_set_back_does_not_hold_a_session_for_days(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock, jump: int
) -> None:
    """182 and K4: a living but silent holder keeps it for one lease from now at most, however often others ask."""
    lease = store.claim_session(session.id, workspace)
    clock.turn(jump)
    for _ in range(3):
        with pytest.raises(SessionBusy) as busy:
            store.claim_session(session.id, workspace)
        assert busy.value.held_until <= clock.now + limits.LEASE_MS
        clock.turn(limits.LEASE_MS // 4)
    clock.turn(limits.LEASE_MS)
    store.claim_session(session.id, workspace).release()
    del lease


@pytest.mark.parametrize("act", ["claim", "append", "rename"])
def test_activity_that_a_wrong_clock_dated_ahead_comes_down(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock, path: Path, act: str
) -> None:
    """182: once the clock is right, the next use dates the Session by it."""
    lease = store.claim_session(session.id, workspace)
    ahead = clock.now + 400 * DAY
    edit(path, "UPDATE sessions SET updated_at = ?", (ahead,))
    clock.turn(SECOND)
    if act == "claim":
        lease.release()
        edit(path, "UPDATE sessions SET updated_at = ?", (ahead,))
        store.claim_session(session.id, workspace).release()
    elif act == "append":
        lease.replay()
        lease.append_turn([Event.user("Hello")])
    else:
        lease.set_title("New")
    assert rows(path, "SELECT updated_at FROM sessions") == [(clock.now,)]


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (START, START - SECOND, START + 1),
        (START, START - limits.CLOCK_AHEAD_MS_MAX, START + 1),
        (START, START - limits.CLOCK_AHEAD_MS_MAX - 1, START - limits.CLOCK_AHEAD_MS_MAX - 1),
        (START, START, START + 1),
        (START, START + SECOND, START + SECOND),
        (START, 1_000, START + 1),
    ],
)
def test_activity_rises_unless_it_ran_ahead_by_far(before: int, now: int, after: int) -> None:
    """182: a clock at its epoch is the wrong one, and ages nothing."""
    assert touched_at(before, now) == after


def test_processes_that_claim_at_once_agree(home: Path, tmp_path: Path) -> None:
    """19 and K2: eight claim one Session, one gets it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(workspace, title="t")
    code = """
        import sys
        from emelex_core import MemoryStore
        from emelex_core.errors import SessionBusy
        store = MemoryStore.open(sys.argv[1])
        sys.stdin.readline()
        try:
            lease = store.claim_session(sys.argv[2], sys.argv[3])
        except SessionBusy:
            print("busy", flush=True)
        else:
            print("mine", flush=True)
        sys.stdin.readline()
    """
    processes = [child(code, home, session.id, workspace) for _ in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [line(process) for process in processes]
    for process in processes:
        kill(process)
    assert sorted(answers) == ["busy"] * 7 + ["mine"]


def test_a_short_id_names_one_session(store: MemoryStore, workspace: Path, path: Path) -> None:
    """Contract, "Commands": 8 or more characters; several candidates are listed; user strings are literals."""
    first, second = (store.start_session(workspace, title="t") for _ in range(2))
    assert store.get_session(first.id[:8]).id == first.id
    edit(path, "UPDATE sessions SET id = ? WHERE id = ?", (first.id[:-1] + "x", second.id))
    with pytest.raises(AmbiguousId) as ambiguous:
        store.get_session(first.id[:8])
    assert set(ambiguous.value.candidates) == {first.id, first.id[:-1] + "x"}
    for text in (first.id[:7], "%", "________", "0000000g", "\ud800" * 8, "", first.id + "0"):
        with pytest.raises(Invalid):
            store.get_session(text)
    with pytest.raises(NotFound):
        store.get_session("00000000")
    for text in ("\ud800", "nobody"):
        with pytest.raises((NotFound, Invalid)):
            store.claim_session(text, workspace)


def test_pages_of_sessions(store: MemoryStore, workspace: Path, tmp_path: Path) -> None:
    """149, 43, 157: a cursor goes on without repeats; limits are bounds; another workspace has its own list."""
    made = {store.start_session(workspace, title=str(number)).id for number in range(3)}
    page = store.list_sessions(workspace, limit=2)
    rest = store.list_sessions(workspace, limit=2, before=(page[-1].updated_at, page[-1].id))
    assert len(page) == 2
    assert {found.id for found in page + rest} == made
    assert len(rest) == 1
    assert store.list_sessions(tmp_path) == []
    for limit in (0, -1, limits.PAGE_SESSIONS_MAX + 1):
        with pytest.raises(Invalid):
            store.list_sessions(limit=limit)
        with pytest.raises(Invalid):
            store.read_events(next(iter(made)), limit=limit)
    with pytest.raises(Invalid):
        store.read_events(next(iter(made)), after=2**70)


def test_an_import_source_is_checked_and_unique(store: MemoryStore, workspace: Path) -> None:
    """183: a race of two importers, a missing parent and odd names are the caller's to hear of, never corruption."""
    made = store.start_session(workspace, title="t", source=_imported())
    with pytest.raises(Invalid, match="already"):
        store.start_session(workspace, title="t", source=_imported())
    for source in ("emelex", "", "\0x", "\ud800", "UPPER", "a b"):
        with pytest.raises(Invalid):
            store.start_session(workspace, title="t", source=_imported("s-2", source=source))
    for source_id in ("", " ", "\ud800", "x" * 5_000):
        with pytest.raises(Invalid):
            store.start_session(workspace, title="t", source=_imported(source_id))
    odd = ImportSource(source="codex", source_id="s-3", cwd="\udcff")
    with pytest.raises(Invalid):
        store.start_session(workspace, title="t", source=odd)
    with pytest.raises(NotFound):
        store.start_session(workspace, title="t", parent_session_id="nobody")
    assert [found.id for found in store.list_sessions()] == [made.id]
    assert store.find_imported("codex", "s-1") == store.get_session(made.id)
    assert store.find_imported("codex", "s-9") is None


def test_threads_share_a_store(store: MemoryStore, workspace: Path) -> None:
    """One transaction at a time, each whole; a thread waits for another's."""
    failures: list[BaseException] = []

    def start(number: int) -> None:
        try:
            for turn in range(5):
                store.start_session(workspace, title=f"{number}/{turn}")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.list_sessions()) == 20


def test_transactions_do_not_nest(store: MemoryStore) -> None:
    """House habit 5: a mistake of the program, told at once instead of a deadlock."""
    with store.database.read(), pytest.raises(RuntimeError, match="nest"), store.database.write():
        pass
    store.list_sessions()
