"""`backup` and `restore`: online, consistent with assets, verified, never over anything; identities stay."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.archive import backup as backups
from emelex_core.archive.backup import MANIFEST, backup
from emelex_core.archive.restore import restore
from emelex_core.db import schema
from emelex_core.errors import Corrupt, EmelexError, Invalid, NewerSchema, NotFound, Refused, Storage, StorageBusy
from emelex_core.home import Home
from life import Life, difference, faults_of
from stores import child, edit, line, rows


@pytest.fixture
def made(store: MemoryStore, tmp_path: Path) -> Path:
    """A finished backup."""
    backup(store, tmp_path / "backup")
    return tmp_path / "backup"


def test_a_backup_is_a_private_home_that_says_what_it_is(store: MemoryStore, made: Path, life: Life) -> None:
    """It can be read in place, holds the same, and its description fits."""
    assert [path for path in [made, *made.rglob("*")] if path.lstat().st_mode & 0o077] == []
    described = json.loads((made / MANIFEST).read_bytes())
    assert (described["type"], described["sessions"], described["assets"]) == ("emelex_backup", 2, 1)
    assert described["database_sha256"] == backups.file_sha256(Home(made).database)
    before = sorted(path.name for path in made.rglob("*"))
    with MemoryStore.open(made, read_only=True, clock=life.clock) as copy:
        assert difference(copy, life.record) is None
        assert faults_of(copy) == []
    assert sorted(path.name for path in made.rglob("*")) == before, "reading a backup leaves nothing beside it"


def test_a_restore_gives_everything_back(made: Path, tmp_path: Path, life: Life, workspace: Path) -> None:
    """Identities are what they were, every history proves, and work goes on."""
    report = restore(made, Home(tmp_path / "new"))
    assert (report.sessions, report.assets, report.check.sound) == (2, 1, True)
    (bound,) = report.workspaces
    assert (bound.path, bound.needs_rebind, bound.sessions, bound.knowledge) == (str(workspace), False, 2, 1)
    with MemoryStore.open(tmp_path / "new", clock=life.clock) as store:
        assert difference(store, life.record) is None
        assert store.database.pragma("journal_mode") == "wal"
        (session, *_) = life.record.covered
        with store.claim_session(session, workspace) as lease:
            lease.replay()
            lease.append_turn([Event.user("goes on")])


def test_a_restore_says_what_must_be_bound_anew(made: Path, tmp_path: Path, workspace: Path) -> None:
    """180: a directory that is gone, or another one, is named with both identities."""
    workspace.rename(tmp_path / "moved")
    (gone,) = restore(made, Home(tmp_path / "one")).workspaces
    assert (gone.needs_rebind, gone.found) == (True, None)
    workspace.mkdir()
    (other,) = restore(made, Home(tmp_path / "two")).workspaces
    assert other.needs_rebind
    assert other.found is not None
    assert other.found != other.stored


def test_a_backup_carries_nobodys_authority(store: MemoryStore, life: Life, tmp_path: Path, workspace: Path) -> None:
    """Leases are living processes': in the copy Sessions are free, and a running job is pending, uncounted."""
    session = store.start_session(workspace, title="held")
    held = store.claim_session(session.id, workspace)
    held.append_turn([Event.user("words")])
    published = store.queue_distillation(session.id)
    assert published is not None
    edit(
        store.database.path,
        "UPDATE jobs SET state = 'running', lease_token = zeroblob(16), lease_until = 9e12, lease_owner = 1 "
        "WHERE id = ?",
        (published.id,),
    )
    backup(store, tmp_path / "backup")
    restored = restore(tmp_path / "backup", Home(tmp_path / "new"))
    assert rows(restored.database, "SELECT count(*) FROM sessions WHERE lease_token IS NOT NULL") == [(0,)]
    assert rows(restored.database, "SELECT state, failure_count FROM jobs WHERE id = ?", (published.id,)) == [
        ("pending", 0)
    ]
    # The living keep theirs.
    held.append_turn([Event.user("more")])
    held.release()


def test_nothing_is_written_over(store: MemoryStore, made: Path, tmp_path: Path) -> None:
    """Neither a file nor a directory, and a Home that has a database stays as it is."""
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with pytest.raises(Invalid, match="exists already"):
        backup(store, made)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Invalid, match="exists already"):
        backup(store, tmp_path / "file")
    with pytest.raises(NotFound):
        backup(store, tmp_path / "missing" / "backup")
    with pytest.raises(Refused, match="never replaces"):
        restore(made, Home(store.database.path.parent.parent))
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert not [path for path in tmp_path.iterdir() if ".part-" in path.name]


@pytest.mark.parametrize("harm", ["database", "asset", "missing asset", "description", "no description", "newer"])
def test_a_harmed_backup_restores_nothing(made: Path, tmp_path: Path, life: Life, harm: str) -> None:
    """Every byte is proven; afterwards the Home has no database."""
    (sha256,) = life.record.assets
    asset = made / "memory" / "assets" / sha256
    expected: type[Exception] = Corrupt
    if harm == "database":
        data = bytearray(Home(made).database.read_bytes())
        data[len(data) // 2] ^= 1
        Home(made).database.write_bytes(data)
    elif harm == "asset":
        asset.write_bytes(b"x" * asset.stat().st_size)
    elif harm == "missing asset":
        asset.unlink()
    elif harm == "description":
        (made / MANIFEST).write_bytes(b'{"type":"other"}')
    elif harm == "no description":
        (made / MANIFEST).unlink()
        expected = NotFound
    else:
        described = json.loads((made / MANIFEST).read_bytes())
        (made / MANIFEST).write_text(json.dumps({**described, "schema_version": 10_000}))
        expected = NewerSchema
    with pytest.raises(expected):
        restore(made, Home(tmp_path / "new"))
    with pytest.raises(NotFound):
        MemoryStore.open(tmp_path / "new")


def test_a_damaged_store_makes_no_backup_unless_that_is_accepted(
    store: MemoryStore, path: Path, native: str, tmp_path: Path
) -> None:
    """A backup that is not sound would be trusted one day; who wants it as it is must say so."""
    edit(path, "UPDATE events SET created_at = 1 WHERE session_id = ? AND sequence = 2", (native,))
    with pytest.raises(Corrupt, match="no backup was made"):
        backup(store, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert not [found for found in tmp_path.iterdir() if ".part-" in found.name]
    report = backup(store, tmp_path / "backup", accept_damage=True)
    assert report.check.damage == 1
    assert restore(tmp_path / "backup", Home(tmp_path / "new")).check.damage == 1


def test_an_asset_that_goes_meanwhile_leads_to_a_newer_state(
    store: MemoryStore, life: Life, native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copied state names an asset whose Session was deleted since: the next state does not."""
    real = backups.inspection.copy_database
    copies = 0

    def copy_then_delete(*arguments: object, **named: object) -> None:
        nonlocal copies
        copies += 1
        real(*arguments, **named)
        if copies == 1:
            store.delete_session(native)

    monkeypatch.setattr(backups.inspection, "copy_database", copy_then_delete)
    report = backup(store, tmp_path / "backup")
    assert (copies, report.sessions, report.assets, report.check.sound) == (2, 1, 0, True)


def test_a_store_that_never_stands_still_is_told(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    """The wait is bounded: after three states the caller hears why, and nothing is left."""
    monkeypatch.setattr(backups, "_copy_asset", lambda *arguments: False)
    with pytest.raises(StorageBusy, match="faster"):
        backup(store, tmp_path / "backup")
    assert not [found for found in tmp_path.iterdir() if "backup" in found.name]


def test_a_backup_beside_writers_is_one_state(home: Path, store: MemoryStore, workspace: Path, tmp_path: Path) -> None:
    """Online: two writers append while copies are made; each copy is whole and sound, and no writer fails."""
    stop = threading.Event()
    failures: list[EmelexError] = []

    def write() -> None:
        try:
            with MemoryStore.open(home) as mine:
                session = mine.start_session(workspace, title="beside")
                with mine.claim_session(session.id, workspace) as lease:
                    while not stop.is_set():
                        asset = mine.store_asset(b"%PDF-1.7 " + os.urandom(300))
                        lease.append_turn([Event.user("x" * 5_000, asset)])
        except EmelexError as error:
            failures.append(error)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        reports = [backup(store, tmp_path / f"backup-{number}") for number in range(3)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert failures == []
    assert all(report.check.sound for report in reports)
    assert reports[0].events <= reports[1].events <= reports[2].events
    assert restore(tmp_path / "backup-2", Home(tmp_path / "new")).events == reports[2].events


@pytest.mark.parametrize(
    ("point", "verb"),
    [("backup.copied", "backup"), ("restore.assets_copied", "restore"), ("restore.database_copied", "restore")],
)
def test_a_kill_leaves_all_or_nothing_and_the_next_run_finishes(
    home: Path, store: MemoryStore, made: Path, tmp_path: Path, point: str, verb: str
) -> None:
    """A backup has its name only when it is whole; a restore that was cut off is finished by running it again."""
    code = """
        import sys
        from pathlib import Path
        from emelex_core import MemoryStore
        from emelex_core.archive.backup import backup
        from emelex_core.archive.restore import restore
        from emelex_core.home import Home
        if sys.argv[1] == "backup":
            with MemoryStore.open(sys.argv[2]) as store:
                backup(store, Path(sys.argv[3]))
        else:
            restore(Path(sys.argv[2]), Home(Path(sys.argv[3])))
    """
    source, target = (home, tmp_path / "again") if verb == "backup" else (made, tmp_path / "new")
    process = child(code, verb, source, target, env={"EMELEX_FAULT": point})
    process.communicate(timeout=60)
    assert process.returncode == -9
    if verb == "backup":
        assert not target.exists()
        backup(store, target)
    else:
        if point == "restore.assets_copied":
            with pytest.raises(NotFound):
                MemoryStore.open(target)
            restore(made, Home(target))
        with MemoryStore.open(target) as restored:
            assert faults_of(restored) == []


def test_a_backup_is_synced_private_and_watched(store: MemoryStore, tmp_path: Path) -> None:
    """Under umask 000 nothing is wider than its owner; progress counts pages up to all."""
    told: list[tuple[int, int]] = []
    old = os.umask(0)
    try:
        report = backup(store, tmp_path / "backup", progress=lambda done, of: told.append((done, of)))
    finally:
        os.umask(old)
    assert stat.S_IMODE(report.path.lstat().st_mode) == 0o700
    assert [found for found in report.path.rglob("*") if found.lstat().st_mode & 0o077] == []
    assert told[-1][0] == told[-1][1] > 0


def test_a_full_disk_leaves_nothing(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K7: whatever stops it, no part stays behind."""

    def full(*arguments: object) -> None:
        raise Storage("no space left")

    monkeypatch.setattr(backups, "_describe", full)
    with pytest.raises(Storage):
        backup(store, tmp_path / "backup")
    assert not [found for found in tmp_path.iterdir() if "backup" in found.name]


def test_an_older_schema_is_restored_and_brought_forward(tmp_path: Path, workspace: Path) -> None:
    """13: a backup outlives the release that made it."""
    with pytest.MonkeyPatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        older.setattr(schema, "CURRENT", 7)
        # That release had no search indexes to check.
        older.setattr("emelex_core.archive.check.index_faults", lambda transaction: iter(()))
        with MemoryStore.open(tmp_path / "old", create=True) as store:
            session = store.start_session(workspace, title="old")
            with store.claim_session(session.id, workspace) as lease:
                lease.append_turn([Event.user("from long ago")])
            assert backup(store, tmp_path / "backup").schema_version == 7
    report = restore(tmp_path / "backup", Home(tmp_path / "new"))
    assert rows(report.database, "SELECT max(number) FROM schema_migrations") == [(schema.CURRENT,)]
    assert report.check.sound
    with MemoryStore.open(tmp_path / "new") as restored:
        assert [event.text for event in restored.read_events(session.id)] == ["from long ago"]


def test_a_store_is_copied_while_another_process_holds_its_session(
    home: Path, store: MemoryStore, workspace: Path, tmp_path: Path
) -> None:
    """Online means that nobody must let go first."""
    code = """
        import sys
        from emelex_core import Event, MemoryStore
        with MemoryStore.open(sys.argv[1]) as store:
            session = store.start_session(sys.argv[2], title="theirs")
            with store.claim_session(session.id, sys.argv[2]) as lease:
                lease.append_turn([Event.user("held")])
                print("held", flush=True)
                sys.stdin.readline()
                lease.append_turn([Event.user("still held")])
        print("done", flush=True)
    """
    process = child(code, home, workspace)
    assert line(process) == "held"
    assert backup(store, tmp_path / "backup").check.sound
    out, err = process.communicate("go\n", timeout=60)
    assert "done" in out, err
