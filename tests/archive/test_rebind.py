"""Rebinding (behaviour 180, reports K9): both identities shown, all moves together, nothing is lost or stolen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.errors import Invalid, NotFound, Refused, SessionBusy, WorkspaceMismatch
from emelex_core.sessions.rebind import LABEL
from life import Life, faults_of
from stores import ROOT, child, edit, kill, line, rows


def replaced(workspace: Path, tmp_path: Path) -> Path:
    """Put another directory in the place of the workspace, as a restore or a fresh clone does; the old one is gone."""
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    # Renamed away first, so that the new directory cannot get the old one's inode number.
    workspace.rename(tmp_path / "old")
    copy.rename(workspace)
    shutil.rmtree(tmp_path / "old")
    return workspace


def test_a_replaced_directory_is_never_an_empty_list(store: MemoryStore, workspace: Path, tmp_path: Path) -> None:
    """180 and K9: listing says what changed and how to rebind, with both identities."""
    before = workspace.stat().st_ino
    replaced(workspace, tmp_path)
    for look in (store.list_sessions, store.list_knowledge):
        with pytest.raises(WorkspaceMismatch, match=f"inode {before}") as mismatch:
            look(workspace)
        assert f"inode {workspace.stat().st_ino}" in mismatch.value.message
        assert "rebind" in str(mismatch.value.hint)
    (old,) = store.displaced(workspace)
    assert (old.path, old.sessions, old.knowledge) == (str(workspace), 2, 1)


def test_a_new_directory_is_simply_empty(store: MemoryStore, tmp_path: Path) -> None:
    """Nothing is said where nothing was."""
    (tmp_path / "new").mkdir()
    assert store.list_sessions(tmp_path / "new") == store.list_knowledge(tmp_path / "new") == []
    assert store.displaced(tmp_path / "new") == ()


def test_a_rebinding_moves_everything_and_is_in_every_history(
    store: MemoryStore, life: Life, native: str, workspace: Path, tmp_path: Path
) -> None:
    """180: one act for the directory; each Session's own chain says what happened, and still proves."""
    replaced(workspace, tmp_path)
    done = store.rebind_session(native, workspace)
    assert (done.done, done.sessions, done.knowledge, done.kept_keys) == (True, 2, 1, ())
    assert done.new.inode == workspace.stat().st_ino != done.old.inode
    assert {session.id for session in store.list_sessions(workspace)} == set(life.record.texts)
    assert [entry.key for entry in store.list_knowledge(workspace)] == ["deploys"]
    for session_id in life.record.texts:
        *_, last = store.iterate_events(store.get_session(session_id))
        assert (last.kind, last.label) == ("audit", LABEL)
        assert done.old.describe() in last.text
        assert done.new.describe() in last.text
    with store.claim_session(native, workspace) as lease:
        assert lease.replay().summary is not None
        lease.append_turn([Event.user("goes on")])
    assert faults_of(store) == []


def test_a_dry_run_shows_and_changes_nothing(
    store: MemoryStore, path: Path, native: str, workspace: Path, tmp_path: Path
) -> None:
    """Both identities can be seen first."""
    replaced(workspace, tmp_path)
    before = rows(path, "SELECT * FROM workspaces"), rows(path, "SELECT max(row) FROM events")
    plan = store.rebind_session(native, workspace, dry_run=True)
    assert (plan.done, plan.sessions) == (False, 2)
    assert (rows(path, "SELECT * FROM workspaces"), rows(path, "SELECT max(row) FROM events")) == before


def test_a_directory_that_still_stands_is_not_robbed(
    store: MemoryStore, native: str, workspace: Path, tmp_path: Path
) -> None:
    """A copy beside its original: only `force` takes the Sessions over."""
    clone = tmp_path / "clone"
    shutil.copytree(workspace, clone)
    with pytest.raises(Refused, match="still stands"):
        store.rebind_session(native, clone)
    assert store.rebind_session(native, clone, force=True).new_path == str(clone)
    with pytest.raises(WorkspaceMismatch):
        store.claim_session(native, workspace)


def test_binding_to_the_same_or_for_nobody_is_refused(
    store: MemoryStore, native: str, workspace: Path, tmp_path: Path
) -> None:
    """Nothing to do is an error of the caller, and so is a name for nothing."""
    with pytest.raises(Invalid, match="already"):
        store.rebind_session(native, workspace)
    with pytest.raises(NotFound):
        store.rebind_session("0" * 36, tmp_path)
    with pytest.raises(Invalid):
        store.rebind_session(native, tmp_path / "missing")


def test_nothing_moves_under_a_live_session(
    home: Path, store: MemoryStore, life: Life, native: str, workspace: Path, tmp_path: Path
) -> None:
    """A process that works in any Session of the directory goes first; once it is dead, rebinding goes on at once."""
    other = next(session for session in life.record.texts if session != native)
    code = """
        import sys
        from emelex_core import MemoryStore
        store = MemoryStore.open(sys.argv[1], create=False)
        lease = store.claim_session(sys.argv[3], sys.argv[2])
        print("held", flush=True)
        sys.stdin.readline()
    """
    process = child(code, home, workspace, other)
    assert line(process) == "held"
    replaced(workspace, tmp_path)
    life.clock.now = rows(store.database.path, "SELECT max(lease_until) FROM sessions")[0][0] - 1_000
    with pytest.raises(SessionBusy, match=other):
        store.rebind_session(native, workspace)
    kill(process)
    assert store.rebind_session(native, workspace).done


def test_what_both_directories_know_stays_apart_and_is_named(
    store: MemoryStore, path: Path, native: str, workspace: Path, tmp_path: Path
) -> None:
    """The new directory has lived already: Sessions move to it, nothing of either is overwritten."""
    replaced(workspace, tmp_path)
    fresh = store.start_session(workspace, title="begun in the new one")
    edit(
        path,
        "INSERT INTO knowledge (workspace_id, key, active_version, pinned, created_at, updated_at) "
        "SELECT workspace_id, 'deploys', 1, 0, 1, 1 FROM sessions WHERE id = ?",
        (fresh.id,),
    )
    edit(
        path,
        "INSERT INTO knowledge_versions (knowledge_row, version, content, confidence, origin, created_at) "
        "SELECT max(row), 1, 'On Fridays.', 1, 'user', 1 FROM knowledge",
    )
    done = store.rebind_session(native, workspace)
    assert (done.sessions, done.knowledge, done.kept_keys) == (2, 0, ("deploys",))
    assert len(store.list_sessions(workspace)) == 3
    assert [entry.content for entry in store.list_knowledge(workspace)] == ["On Fridays."]
    assert len(store.list_knowledge(None)) == 2
    assert faults_of(store) == []


def test_a_kill_before_the_commit_changes_nothing(
    home: Path, store: MemoryStore, path: Path, native: str, workspace: Path, tmp_path: Path
) -> None:
    """One transaction: whole or not at all."""
    replaced(workspace, tmp_path)
    before = rows(path, "SELECT * FROM workspaces"), rows(path, "SELECT max(row) FROM events")
    code = """
        import sys
        from emelex_core import MemoryStore
        MemoryStore.open(sys.argv[1]).rebind_session(sys.argv[2], sys.argv[3])
    """
    process = child(code, home, native, workspace, env={"EMELEX_FAULT": "rebind.before_commit"})
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert (rows(path, "SELECT * FROM workspaces"), rows(path, "SELECT max(row) FROM events")) == before
    assert store.rebind_session(native, workspace).done


def test_a_moved_directory_needs_no_rebinding(store: MemoryStore, native: str, workspace: Path, tmp_path: Path) -> None:
    """21 and K9: moved, with a link left behind; both spellings are the directory."""
    moved = tmp_path / "moved"
    workspace.rename(moved)
    workspace.symlink_to(moved)
    for spelling in (moved, workspace):
        assert len(store.list_sessions(spelling)) == 2
        store.claim_session(native, spelling).release()


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts need root")
def test_another_device_number_is_said_and_rebound(tmp_path: Path) -> None:
    """K9: a workspace on an ext4 image, mounted again through another loop device: same inode, other st_dev."""
    script = f"""
        set -e
        truncate -s 16M {tmp_path}/image
        mkfs.ext4 -q {tmp_path}/image
        mkdir {tmp_path}/mounted
        first=$(losetup --find --show {tmp_path}/image)
        mount $first {tmp_path}/mounted
        mkdir {tmp_path}/mounted/ws
        {sys.executable} -P {tmp_path}/step.py start
        umount {tmp_path}/mounted
        second=$(losetup --find --show {tmp_path}/image)
        losetup -d $first
        mount $second {tmp_path}/mounted
        {sys.executable} -P {tmp_path}/step.py again || code=$?
        umount {tmp_path}/mounted
        losetup -d $second
        exit ${{code:-0}}
    """
    (tmp_path / "step.py").write_text(textwrap.dedent(STEP))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "PLACE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    if "losetup" in done.stderr or "mount:" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no loop device to be had: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["started", "listed", "claimed", "rebound"]


STEP = """
    import os, sys
    from pathlib import Path
    from emelex_core import Event, MemoryStore
    from emelex_core.errors import WorkspaceMismatch
    place = Path(os.environ["PLACE"])
    ws = place / "mounted" / "ws"
    note = place / "note"
    with MemoryStore.open(place / "home", create=True) as store:
        if sys.argv[1] == "start":
            session = store.start_session(ws, title="on an image")
            with store.claim_session(session.id, ws) as lease:
                lease.append_turn([Event.user("hello")])
            note.write_text(f"{session.id} {ws.stat().st_dev} {ws.stat().st_ino}")
            print("started")
        else:
            session, device, inode = note.read_text().split()
            assert str(ws.stat().st_ino) == inode
            assert str(ws.stat().st_dev) != device, "the device number did not change"
            looks = {"listed": store.list_sessions, "claimed": lambda at: store.claim_session(session, at)}
            for verb, look in looks.items():
                try:
                    look(ws)
                except WorkspaceMismatch as error:
                    assert device in error.message and str(ws.stat().st_dev) in error.message, error.message
                    print(verb)
            assert store.rebind_session(session, ws).done
            with store.claim_session(session, ws) as lease:
                assert [event.text for event in lease.replay()][0] == "hello"
            assert len(store.list_sessions(ws)) == 1
            print("rebound")
"""
