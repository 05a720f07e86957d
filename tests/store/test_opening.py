"""Opening and creating (behaviours 1 to 10, 12, 15; reports K7, K9): refused, never repaired, never written first."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import apsw
import pytest

from emelex_core import MemoryStore
from emelex_core.db import filesystem, schema
from emelex_core.errors import Corrupt, EmelexError, Invalid, NewerSchema, NotFound, Refused, Storage
from emelex_core.home import Home, locate
from stores import BECOME_NOBODY, answer, behind, child, edit, rows

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
NOBODY = 65_534


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _closed(home: Path) -> Path:
    """A store that was made and closed; returns its database."""
    MemoryStore.open(home, create=True).close()
    return Home(home).database


def test_a_fresh_store_is_private(home: Path) -> None:
    """1: the database has mode 0600, its directories 0700."""
    database = _closed(home)
    assert _mode(database) == 0o600
    assert _mode(home) == _mode(database.parent) == 0o700


def test_nothing_follows_the_umask(home: Path, workspace: Path) -> None:
    """1 and K9: with umask 000, log, shared memory, lock files and assets are private too, also after a crash."""
    code = """
        import os, sys
        from emelex_core import Event, MemoryStore
        store = MemoryStore.open(sys.argv[1], create=True)
        session = store.start_session(sys.argv[2], title="t")
        lease = store.claim_session(session.id, sys.argv[2])
        lease.append_turn([Event.user("x", store.store_asset(b"%PDF-1.7 x"))])
        print("ready", flush=True)
        os.kill(os.getpid(), 9)
    """
    process = child(code, home, workspace, umask=0)
    process.communicate(timeout=60)
    found = [home, *home.rglob("*")]
    assert any(path.name.endswith("-wal") for path in found)
    assert any("assets" in str(path) and path.is_file() for path in found)
    assert [path for path in found if path.lstat().st_mode & 0o077] == []


def test_open_is_not_create(home: Path) -> None:
    """House habit 7: a plain open of nothing makes nothing."""
    with pytest.raises(NotFound):
        MemoryStore.open(home)
    assert not home.exists()


@pytest.mark.parametrize("mode", [0o400, 0o640, 0o644, 0o660, 0o700])
def test_a_database_of_another_mode_is_refused_and_not_repaired(home: Path, mode: int) -> None:
    """2."""
    database = _closed(home)
    database.chmod(mode)
    with pytest.raises(Refused, match="0600"):
        MemoryStore.open(home)
    assert _mode(database) == mode


def test_a_linked_database_is_refused(home: Path, tmp_path: Path) -> None:
    """3: by symbolic link, dangling or not, by hard link, and below a linked directory."""
    database = _closed(home)
    aside = tmp_path / "aside.sqlite3"
    database.rename(aside)
    database.symlink_to(aside)
    for create in (False, True):
        with pytest.raises(Refused, match="symbolic link"):
            MemoryStore.open(home, create=create)
    aside.unlink()
    with pytest.raises(Refused, match="symbolic link"):
        MemoryStore.open(home, create=True)
    assert not aside.exists()


def test_a_second_name_of_the_database_is_refused(home: Path, tmp_path: Path) -> None:
    """3: what another name can reach is not private."""
    database = _closed(home)
    (tmp_path / "second").hardlink_to(database)
    with pytest.raises(Refused, match="hard link"):
        MemoryStore.open(home)


def test_a_link_below_the_home_is_refused_but_the_home_may_be_one(home: Path, tmp_path: Path) -> None:
    """3 and K9: the Home is resolved once; everything below it is what it seems."""
    _closed(home)
    spelled = tmp_path / "spelled"
    spelled.symlink_to(home)
    MemoryStore.open(spelled).close()
    memory = home / "memory"
    memory.rename(tmp_path / "elsewhere")
    memory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="symbolic link"):
        MemoryStore.open(home)


def test_open_path_makes_no_directory(tmp_path: Path) -> None:
    """4."""
    with pytest.raises(Storage, match="does not exist"):
        MemoryStore.open_path(tmp_path / "missing" / "x.sqlite3", create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_write_is_refused(home: Path, mode: int) -> None:
    """5: the offending entry is named."""
    database = _closed(home)
    for directory in (database.parent, home):
        directory.chmod(mode)
        with pytest.raises(Refused, match=str(directory)):
            MemoryStore.open(home)
        directory.chmod(0o700)
    MemoryStore.open(home).close()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("create", [True, False])
def test_a_directory_above_that_others_write_is_refused(tmp_path: Path, mode: int, create: bool) -> None:
    """5 and K9: whoever may rename what is in it could put another Home there; nothing is made below it."""
    above = tmp_path / "above"
    home = above / "between" / "home"
    home.parent.mkdir(parents=True)
    if not create:
        _closed(home)
    before = sorted(tmp_path.rglob("*"))
    above.chmod(mode)
    with pytest.raises(Refused, match=f"{above}, on the way to {home}, is writable by group or others"):
        MemoryStore.open(home, create=create)
    with pytest.raises(Refused, match=f"{above}, on the way to {home.parent}, is writable"):
        MemoryStore.open_path(home.parent / "x.sqlite3", create=create)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sticky_directory_above_is_fine(tmp_path: Path) -> None:
    """5: as /tmp is, where what is ours is ours to rename."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o1777)
    MemoryStore.open(above / "home", create=True).close()
    MemoryStore.open(above / "home").close()


@ROOT_ONLY
def test_a_directory_above_of_somebody_else_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 and K9: its owner is named; in a container the owner whom nobody there knows is whoever made the container."""
    from emelex_core import home as homes

    above = tmp_path / "above"
    above.mkdir()
    os.chown(above, NOBODY, NOBODY)
    with pytest.raises(Refused, match=f"{above}, on the way to .*, belongs to user {NOBODY}"):
        MemoryStore.open(above / "home", create=True)
    assert list(above.iterdir()) == []
    known = tmp_path / "uid_map"
    known.write_text("         0       1000          1\n")
    monkeypatch.setattr(homes, "_ID_MAP", known)
    homes._unmapped_owner.cache_clear()
    try:
        MemoryStore.open(above / "home", create=True).close()
    finally:
        homes._unmapped_owner.cache_clear()


@ROOT_ONLY
def test_what_belongs_to_somebody_else_is_refused(home: Path) -> None:
    """5: a foreign directory, database or lock file, each named."""
    database = _closed(home)
    for foreign in (home, database.parent, database, database.with_name(database.name + ".open.lock")):
        os.chown(foreign, NOBODY, NOBODY)
        with pytest.raises(Refused, match=f"{foreign} belongs to user {NOBODY}"):
            MemoryStore.open(home)
        os.chown(foreign, 0, 0)


@ROOT_ONLY
def test_what_cannot_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    """189: a Home behind a closed directory is an error, never "no database"."""
    closed = tmp_path / "closed"
    _closed(closed)
    code = """
        import json, sys
        from emelex_core import MemoryStore
        from emelex_core.errors import EmelexError
        exec(sys.argv[2])
        try:
            MemoryStore.open(sys.argv[1])
        except EmelexError as error:
            print(json.dumps([type(error).__name__, error.exit_code]))
    """
    assert answer(child(code, closed, BECOME_NOBODY)) == ["Refused", 6]


@pytest.mark.parametrize("name", [".open.lock", ".owners.lock"])
@pytest.mark.parametrize("fault", ["mode", "link", "directory"])
def test_a_lock_file_that_is_not_private_is_refused_by_name(home: Path, tmp_path: Path, name: str, fault: str) -> None:
    """6: also when the database itself needs no lock any more; the file is never unlinked."""
    database = _closed(home)
    lock = database.with_name(database.name + name)
    lock.unlink(missing_ok=True)
    if fault == "mode":
        lock.touch(mode=0o600)
        lock.chmod(0o644)
    elif fault == "link":
        lock.symlink_to(tmp_path / "target")
    else:
        lock.mkdir(mode=0o700)
    with pytest.raises(Refused, match=name.replace(".", r"\.")):
        MemoryStore.open(home)
    assert os.path.lexists(lock)


def test_the_open_lock_stays(home: Path) -> None:
    """6: unlinking it would let two openers lock two files."""
    database = _closed(home)
    lock = database.with_name(database.name + ".open.lock")
    before = lock.stat().st_ino
    MemoryStore.open(home, create=True).close()
    assert lock.stat().st_ino == before


def test_first_opens_at_once_all_succeed(home: Path) -> None:
    """7: four threads and two processes make one database."""
    code = """
        import sys
        from emelex_core import MemoryStore
        sys.stdin.readline()
        MemoryStore.open(sys.argv[1], create=True).close()
        print("true")
    """
    processes = [child(code, home) for _ in range(2)]
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def first_open() -> None:
        barrier.wait()
        try:
            MemoryStore.open(home, create=True).close()
        except EmelexError as error:
            failures.append(error)

    threads = [threading.Thread(target=first_open) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer(process) for process in processes] == [True, True]
    assert failures == []
    assert rows(Home(home).database, "SELECT number FROM schema_migrations") == [
        (number,) for number, _ in schema.MIGRATIONS
    ]


def test_a_deleted_database_is_not_made_anew(store: MemoryStore, path: Path, workspace: Path) -> None:
    """8: reading and writing both fail, and the file stays absent."""
    path.unlink()
    for call in (store.totals, store.list_sessions, lambda: store.start_session(workspace, title="t")):
        with pytest.raises(Storage, match="deleted, renamed or replaced"):
            call()
    store.close()
    assert not path.exists()
    with pytest.raises(NotFound):
        MemoryStore.open(path.parent.parent)
    assert not path.exists()


def test_a_replaced_database_is_not_written(store: MemoryStore, path: Path, tmp_path: Path) -> None:
    """8 and K7: another file under the same name is somebody else's."""
    other = _closed(tmp_path / "other")
    before = other.read_bytes()
    other.replace(path)
    with pytest.raises(Storage, match="deleted, renamed or replaced"):
        store.list_sessions()
    assert path.read_bytes() == before


def _foreign(path: Path, *, application: int, version: int, tables: bool = True) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    path.parent.parent.chmod(0o700)
    path.touch(mode=0o600)
    with behind(path) as raw:
        raw.pragma("journal_mode", "wal")
        raw.pragma("application_id", application)
        raw.pragma("user_version", version)
        if tables:
            raw.execute("CREATE TABLE jobs (id); INSERT INTO jobs VALUES (1)")


@pytest.mark.parametrize(
    ("application", "version", "expected", "words"),
    [
        (schema.APPLICATION_ID, schema.CURRENT + 1, NewerSchema, f"schema {schema.CURRENT + 1}.*{schema.CURRENT}"),
        (0, 1, NewerSchema, "1.x"),
        (0, 6, NewerSchema, "1.x"),
        (0, 0, Refused, "not a database of Emelex memory"),
        (0x1234, 7, Refused, "not a database of Emelex memory"),
        (schema.APPLICATION_ID, 3, Corrupt, "schema 3"),
    ],
)
@pytest.mark.parametrize("create", [False, True])
def test_a_foreign_or_newer_database_is_refused_before_the_first_write(
    home: Path, application: int, version: int, expected: type[EmelexError], words: str, create: bool
) -> None:
    """9 and 15: by name, byte for byte as before, and nothing is left beside it but its lock file."""
    path = Home(home).database
    _foreign(path, application=application, version=version)
    before = path.read_bytes()
    with pytest.raises(expected, match=words):
        MemoryStore.open(home, create=create)
    assert path.read_bytes() == before
    assert {found.name for found in path.parent.iterdir()} <= {path.name, path.name + ".open.lock"}
    with pytest.raises(expected, match=words):
        MemoryStore.open(home, read_only=True)
    assert path.read_bytes() == before


def test_a_newer_database_with_a_log_is_refused_without_moving_the_log(home: Path, tmp_path: Path) -> None:
    """9: a program that was killed leaves changes in its -wal; refusing must not bring them into the file."""
    path = Home(home).database
    _foreign(path, application=schema.APPLICATION_ID, version=schema.CURRENT + 1)
    with behind(path) as raw:
        raw.execute("INSERT INTO jobs VALUES (2)")
        shutil.copytree(home, tmp_path / "killed")
    killed = Home(tmp_path / "killed").database
    before = killed.read_bytes(), killed.with_name(killed.name + "-wal").read_bytes()
    with pytest.raises(NewerSchema):
        MemoryStore.open(tmp_path / "killed")
    assert (killed.read_bytes(), killed.with_name(killed.name + "-wal").read_bytes()) == before


def test_a_file_that_is_no_database_is_corrupt(home: Path) -> None:
    """Bad input: binary rubbish is told as such and stays."""
    path = Home(home).database
    path.parent.mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    path.write_bytes(b"\x00\x01not a database" * 1_000)
    path.chmod(0o600)
    with pytest.raises(Corrupt, match="damaged or no database"):
        MemoryStore.open(home, create=True)
    assert path.read_bytes().startswith(b"\x00\x01not")


def test_every_connection_keeps_the_recipe(store: MemoryStore, path: Path) -> None:
    """10: temp_store memory, foreign keys on, untrusted schema off; WAL with synchronous EXTRA."""
    expected = {"temp_store": 2, "foreign_keys": 1, "trusted_schema": 0, "synchronous": 3, "journal_mode": "wal"}
    sibling = store.database.sibling()
    reader = MemoryStore.open(path.parent.parent, read_only=True)
    try:
        for database in (store.database, sibling):
            assert {name: database.pragma(name) for name in expected} == expected
        safe = {"temp_store": 2, "foreign_keys": 1, "trusted_schema": 0}
        assert {name: reader.database.pragma(name) for name in safe} == safe
        assert store.database.pragma("auto_vacuum") == 2
    finally:
        sibling.close()
        reader.close()


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o500])
def test_an_asset_directory_of_another_mode_is_refused(store: MemoryStore, home: Path, mode: int) -> None:
    """12."""
    store.store_asset(b"GIF89a")
    store.assets_directory.chmod(mode)
    for read_only in (False, True):
        with pytest.raises(Refused, match=r"asset directory|writable"):
            MemoryStore.open(home, read_only=read_only)
    with pytest.raises(Refused):
        store.store_asset(b"GIF89a")
    store.assets_directory.chmod(0o700)


def test_an_asset_directory_with_an_access_list_is_refused(store: MemoryStore, home: Path) -> None:
    """12: an access list, even one that only new files inherit."""
    store.store_asset(b"GIF89a")
    entries = [(1, 7, 0xFFFFFFFF), (2, 5, NOBODY), (4, 0, 0xFFFFFFFF), (16, 5, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    data = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + permission.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, permission, who in entries
    )
    try:
        os.setxattr(store.assets_directory, "system.posix_acl_default", data)
    except OSError:
        pytest.skip("the file system keeps no access lists")
    with pytest.raises(Refused, match="access list"):
        MemoryStore.open(home)


def test_a_network_file_system_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K7: path, cause and a way out. The type number is the one of NFS."""
    monkeypatch.setattr(filesystem, "_file_system_type", lambda directory: 0x6969)
    with pytest.raises(Refused, match=f"{tmp_path}.*NFS") as refused:
        MemoryStore.open_path(tmp_path / "x.sqlite3", create=True)
    assert "local" in str(refused.value.hint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("magic", "mount", "name"),
    [
        (0x00C36400, "ceph", "Ceph"),
        (0x0BD00BD0, "lustre", "Lustre"),
        (0x65735546, "fuse.glusterfs", "GlusterFS"),
        (0x65735546, "fuse.sshfs", "SSHFS"),
        (0x65735546, "fuse.gocryptfs", None),
    ],
)
def test_network_file_systems_that_doctor_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: int, mount: str, name: str | None
) -> None:
    """K7: one table for both. What runs over FUSE has one number, and the mount table tells which it is."""
    device = tmp_path.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        "21 1 0:999 / /proc rw shared:2 - proc proc rw\n"
        f"36 25 {os.major(device)}:{os.minor(device)} / /srv/a\\040b rw,noatime shared:1 - {mount} box:/srv rw\n",
        "utf-8",
    )
    monkeypatch.setattr(filesystem, "_MOUNTS", table)
    monkeypatch.setattr(filesystem, "_file_system_type", lambda directory: magic)
    if name is None:
        filesystem.require_local(tmp_path)
        return
    with pytest.raises(Refused, match=name):
        filesystem.require_local(tmp_path)


def test_this_file_system_has_a_type(tmp_path: Path) -> None:
    """The real call behind the test above answers with a number that is no network's."""
    kind = filesystem._file_system_type(tmp_path)
    assert kind is not None
    assert kind > 0
    filesystem.require_local(tmp_path)


@pytest.mark.parametrize("home_variable", [None, ""])
def test_without_a_home_variable_the_password_database_decides(
    monkeypatch: pytest.MonkeyPatch, home_variable: str | None
) -> None:
    """K9: HOME unset or empty, EMELEX_HOME empty."""
    monkeypatch.setenv("EMELEX_HOME", "")
    if home_variable is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home_variable)
    assert locate().root.name == ".emelex"
    assert locate().root.is_absolute()


def test_a_home_that_is_no_directory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """K9: HOME=/dev/null."""
    monkeypatch.delenv("EMELEX_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    for create in (False, True):
        with pytest.raises(Refused, match=r"/dev/null.*not a directory"):
            MemoryStore.open(create=create)


@pytest.mark.parametrize("spelled", ["", "a\0b"])
def test_a_home_without_a_place_is_invalid(spelled: str) -> None:
    """K10."""
    with pytest.raises(Invalid):
        locate(spelled)


def test_a_migration_record_that_disagrees_is_corrupt(home: Path) -> None:
    """13: user_version and the record of migrations are one truth."""
    path = _closed(home)
    assert edit(path, "DELETE FROM schema_migrations WHERE number = ?", (schema.CURRENT,)) == 1
    with pytest.raises(Corrupt, match="record of migrations"):
        MemoryStore.open(home)


def test_the_runtime_is_one_that_keeps_its_log_whole() -> None:
    """K2: SQLite before 3.51.3 can corrupt a database when writes race checkpoints."""
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)
