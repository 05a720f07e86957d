"""Storage that fails (behaviours 181, 189; reports K2, K7, K8): one error with path and cause, the state as before."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import Corrupt, NotFound, SessionBusy, Storage, StorageBusy, StorageFull, StorageReadOnly
from emelex_core.home import Home
from emelex_core.owners import Owners
from stores import BECOME_NOBODY, answer, behind, child, edit, kill, line, sound


@contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    """A mount while the block lasts; where mounting is not allowed, the test is skipped."""
    place = str(arguments[-1])
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        gc.collect()
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """The same directory, mounted over itself for reading only."""
    with mounted("--bind", place, place):
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield


def _fill(home: Path, workspace: Path) -> str:
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(workspace, title="t")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("one")])
            lease.release(distill=True)
    return session.id


def test_a_read_only_home_is_read(home: Path, workspace: Path) -> None:
    """189 and K7: closed cleanly, so that no -shm is there; everything is seen, and writing says read-only."""
    session_id = _fill(home, workspace)
    with read_only(home):
        with MemoryStore.open(home, read_only=True) as store:
            assert [event.text for event in store.read_events(session_id)] == ["one"]
            assert len(store.list_sessions()) == store.totals().sessions == 1
            with pytest.raises(StorageReadOnly):
                store.start_session(workspace, title="t")
        with pytest.raises(StorageReadOnly, match="read-only"):
            MemoryStore.open(home)
        assert not any("-wal" in path.name or "-shm" in path.name for path in home.rglob("*"))
    MemoryStore.open(home).close()


def test_leases_are_told_on_a_read_only_home(home: Path, workspace: Path) -> None:
    """189 and 181: a lease in the row is looked at without making a lock file; the owner is gone."""
    _fill(home, workspace)
    store = MemoryStore.open(home)
    session = store.list_sessions()[0]
    token = store.claim_session(session.id, workspace)
    store.database.close()
    del token
    with read_only(home):
        with MemoryStore.open(home, read_only=True) as reader:
            assert reader.get_session(session.id).held_until is not None
        store.close()
        with MemoryStore.open(home, read_only=True) as reader:
            assert reader.get_session(session.id).held_until is None


def test_a_log_on_a_read_only_home_is_read_or_refused(home: Path, workspace: Path, tmp_path: Path) -> None:
    """189: after a crash with changes in the log; without its -shm reading says so, instead of showing old data."""
    _fill(home, workspace)
    with MemoryStore.open(home) as store:
        store.start_session(workspace, title="in the log")
        crashed = tmp_path / "crashed"
        shutil.copytree(home, crashed)
    with read_only(crashed), MemoryStore.open(crashed, read_only=True) as store:
        assert len(store.list_sessions()) == 2
    database = Home(crashed).database
    database.with_name(database.name + "-shm").unlink()
    with read_only(crashed), pytest.raises(Storage, match="-wal"):
        MemoryStore.open(crashed, read_only=True)


def test_a_directory_of_somebody_else_is_not_an_empty_one(home: Path, workspace: Path) -> None:
    """189: another user cannot read it and is told so."""
    _fill(home, workspace)
    code = """
        import json, sys
        from emelex_core import MemoryStore
        from emelex_core.errors import EmelexError
        exec(sys.argv[2])
        try:
            MemoryStore.open(sys.argv[1], read_only=True).list_sessions()
        except EmelexError as error:
            print(json.dumps(error.exit_code))
    """
    if os.geteuid() != 0:
        pytest.skip("becomes another user")
    assert answer(child(code, home, BECOME_NOBODY)) in (6, 75)


def test_a_full_disk(tmp_path: Path, workspace: Path) -> None:
    """K7: the failed turn is absent and told as disk-full, a failed asset leaves nothing; later all works again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=3m,mode=0700", "none", disk):
        home = disk / "home"
        with MemoryStore.open(home, create=True) as store:
            session = store.start_session(workspace, title="t")
            lease = store.claim_session(session.id, workspace)
            acknowledged = 0
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 400_000)
            with pytest.raises(StorageFull, match=str(home)):  # noqa: PT012 - it is the last of many that fails
                for _ in range(200):
                    lease.append_turn([Event.user("x" * 50_000)])
                    acknowledged += 1
            with pytest.raises(StorageFull):
                store.store_asset(b"%PDF-" + b"x" * limits.MIB)
            assert [path.name for path in store.assets_directory.iterdir()] == []
            assert acknowledged > 3
            assert store.get_session(session.id).last_sequence == acknowledged
            ballast.unlink()
            lease.append_turn([Event.user("again")])
            lease.release()
            with store.claim_session(session.id, workspace) as again:
                assert len(again.replay()) == acknowledged + 1
        assert sound(Home(home).database)


def test_a_full_disk_is_read(tmp_path: Path, workspace: Path) -> None:
    """189: not a byte is left, not even for the memory that readers share."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=2m,mode=0700", "none", disk):
        home = disk / "home"
        session_id = _fill(home, workspace)
        with pytest.raises(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:  # noqa: PT012 - until it fails
            for size in (4096, 1):
                while True:
                    ballast.write(b"x" * size)
        with MemoryStore.open(home, read_only=True) as store:
            assert [event.text for event in store.read_events(session_id)] == ["one"]
        with pytest.raises((StorageFull, Storage), match=str(home)):
            MemoryStore.open(home).start_session(workspace, title="t")


def test_a_lock_is_waited_for_and_not_for_ever(
    store: MemoryStore, workspace: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K2: a writer that lets go in time costs nothing but time; one that does not is told, naming the file."""
    with behind(path) as raw:
        raw.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.2, lambda: raw.execute("COMMIT"))
        timer.start()
        store.start_session(workspace, title="waited")
        timer.join()
        raw.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(limits, "BUSY_WAIT_MS", 50)
        started = time.monotonic()
        with pytest.raises(StorageBusy, match=str(path)), store.database.write(wait_ms=50):
            pass
        assert time.monotonic() - started < 2
        assert len(store.list_sessions()) == 1
    store.start_session(workspace, title="after")


@pytest.mark.parametrize("verb", ["list", "write", "lease"])
def test_a_forked_child_is_refused(store: MemoryStore, session: Session, workspace: Path, verb: str) -> None:
    """K8: SQLite forbids a connection across a fork; the parent's stays whole, and its lease stays its own."""
    lease = store.claim_session(session.id, workspace)
    calls: dict[str, Callable[[], object]] = {
        "list": store.list_sessions,
        "write": lambda: store.start_session(workspace, title="t"),
        "lease": lease.release,
    }
    if (process := os.fork()) == 0:
        code = 1
        try:
            calls[verb]()
        except Storage as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    lease.replay()
    lease.append_turn([Event.user("still mine")])
    lease.release()


def test_a_forked_child_is_refused_even_while_a_thread_of_the_parent_writes(
    store: MemoryStore, workspace: Path
) -> None:
    """K8: the child must not wait for a thread that does not exist in it."""
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with store.database.write():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(30)
    if (process := os.fork()) == 0:
        code = 1
        try:
            store.list_sessions()
        except Storage:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    leave.set()
    thread.join()


def test_a_forked_child_does_not_keep_a_dead_parent_alive(home: Path, workspace: Path) -> None:
    """181 and K8: the child lives on, the owner is gone all the same."""
    session_id = _fill(home, workspace)
    code = """
        import os, sys
        from emelex_core import MemoryStore
        store = MemoryStore.open(sys.argv[1])
        lease = store.claim_session(sys.argv[2], sys.argv[3])
        reader, writer = os.pipe()
        if (grandchild := os.fork()) == 0:
            os.write(writer, b"forked")
            sys.stdin.read()
            os._exit(0)
        os.read(reader, 6)
        print("held", flush=True)
        sys.stdin.read()
    """
    holder = child(code, home, session_id, workspace)
    assert line(holder) == "held"
    with MemoryStore.open(home) as store:
        with pytest.raises(SessionBusy):
            store.claim_session(session_id, workspace)
        os.kill(holder.pid, 9)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        store.claim_session(session_id, workspace).release()
    # Closing its input ends the grandchild; its output closes with it.
    kill(holder)


def test_an_owner_is_alive_while_its_byte_is_held(store: MemoryStore, path: Path) -> None:
    """181: by whoever looks; a byte is never reused, and closing gives it back."""
    first, second = Owners(path), Owners(path)
    slots = {first.slot(), second.slot(), store.database.owners.slot()}
    assert len(slots) == 3
    assert first.slot() == first.slot()
    for looker in (first, second, store.database.owners):
        assert looker.alive(first.slot())
        assert not looker.alive(12345)
    slot = first.slot()
    first.close()
    assert not second.alive(slot)
    second.close()


def test_where_nobody_can_look_an_owner_counts_as_alive(store: MemoryStore, session: Session, workspace: Path) -> None:
    """181: expiry stays the last resort; a lock file that is gone frees nothing by itself."""
    lease = store.claim_session(session.id, workspace)
    path = store.database.path
    path.with_name(path.name + ".owners.lock").unlink()
    reader = Owners(path, read_only=True)
    assert reader.alive(1)
    reader.close()
    lease.release()


def test_an_input_output_error_ends_the_connection_not_the_store(
    store: MemoryStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K7: after a failed sync the connection is not used again; the next call has a new one, the state as before."""
    before = store.database._access.connection
    real = type(before).has_moved
    failures = iter([apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)])

    def fails_once(connection: object) -> bool:
        for failure in failures:
            raise failure
        return real(connection)  # type: ignore[arg-type]  # the method that stood there

    monkeypatch.setattr(type(before), "has_moved", fails_once)
    with pytest.raises(Storage, match="input/output"):
        store.start_session(workspace, title="lost")
    assert store.list_sessions() == []
    store.start_session(workspace, title="kept")
    assert store.database._access.connection is not before
    assert [found.title for found in store.list_sessions()] == ["kept"]


def test_a_damaged_file_is_told_as_such(home: Path, workspace: Path) -> None:
    """K7: rubbish in the middle of the file is Corrupt or Storage with the path, never an empty list."""
    _fill(home, workspace)
    database = Home(home).database
    with database.open("r+b") as file:
        file.seek(4_096)
        file.write(os.urandom(8_192))
    with pytest.raises((Corrupt, Storage), match=str(database)):
        MemoryStore.open(home).list_sessions()


def test_a_schema_that_lost_a_table_is_corrupt(store: MemoryStore, path: Path) -> None:
    """189: not "no Sessions"."""
    edit(path, "DROP TABLE workspaces")
    with pytest.raises(Corrupt, match="schema"):
        store.list_sessions()


def test_a_closed_store_says_so(store: MemoryStore) -> None:
    """A second close does nothing; any other call is an error of the tree."""
    store.close()
    store.close()
    with pytest.raises(Storage, match="closed"):
        store.list_sessions()
    with pytest.raises(NotFound):
        MemoryStore.open_path(store.database.path.with_name("none.sqlite3"))
