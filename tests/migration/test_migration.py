"""Migrations (behaviours 11, 13, 14, 16; house habit 17): contiguous, recorded, atomic, and nothing of the old lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from emelex_core import Event, MemoryStore
from emelex_core.db import schema
from emelex_core.db.connection import connect
from emelex_core.errors import Corrupt, Refused
from emelex_core.home import Home
from stores import child, rows, sound

OLDER = [number for number, _ in schema.MIGRATIONS[:-1]]


def _bare(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    path.parent.parent.chmod(0o700)
    path.touch(mode=0o600)


def _migrated(
    path: Path, through: int, monkeypatch: pytest.MonkeyPatch, fill: Callable[[apsw.Connection], None]
) -> None:
    """Make a database of an older schema, exactly as that release's migrations made it, and fill it."""
    _bare(path)
    with monkeypatch.context() as older:
        steps = tuple(step for step in schema.MIGRATIONS if step[0] <= through)
        older.setattr(schema, "MIGRATIONS", steps)
        older.setattr(schema, "CURRENT", through)

        def guard(raw: apsw.Connection) -> None:
            raw.pragma("auto_vacuum", "INCREMENTAL")
            raw.pragma("journal_mode", "wal")
            raw.pragma("foreign_keys", "OFF")
            schema.migrate(raw, now=1)

        connection = connect(path, read_only=False, guard=guard)
        try:
            fill(connection.raw)
        finally:
            connection.close()


def _ddl(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2")


def _contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    tables = [name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
    return {name: rows(path, f"SELECT * FROM {name} ORDER BY 1") for name in tables if name != "schema_migrations"}


def test_numbers_are_contiguous_and_each_has_its_file() -> None:
    """13 and 15: ours begin at 7; a file belongs to a number, and no file stands alone."""
    numbers = [number for number, _ in schema.MIGRATIONS]
    assert numbers == list(range(7, 7 + len(numbers)))
    assert all(name.startswith(f"{number:04}_") for number, name in schema.MIGRATIONS)
    folder = resources.files("emelex_core") / "schema"
    assert {found.name for found in folder.iterdir() if found.name.endswith(".sql")} == {
        f"{name}.sql" for _, name in schema.MIGRATIONS
    }


def test_a_fresh_database_records_every_step(tmp_path: Path) -> None:
    """13: the record, user_version and the application id agree."""
    with MemoryStore.open(tmp_path / "home", create=True) as store:
        path = store.database.path
        assert store.totals().schema_version == schema.CURRENT
    assert [
        (number, name) for number, name in rows(path, "SELECT number, name FROM schema_migrations ORDER BY 1")
    ] == list(schema.MIGRATIONS)
    assert rows(path, "PRAGMA application_id") == [(schema.APPLICATION_ID,)]


@pytest.mark.parametrize("through", OLDER)
def test_an_older_database_becomes_equal_to_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: int
) -> None:
    """13 and 16: same tables and indexes, and every row of before preserved."""
    MemoryStore.open(tmp_path / "fresh", create=True).close()
    old = Home(tmp_path / "old")

    def fill(raw: apsw.Connection) -> None:
        raw.execute(
            "INSERT INTO workspaces VALUES (1, 2, 3, NULL, '/w');"
            "INSERT INTO sessions (id, workspace_id, title, source, last_sequence, event_bytes, chain, "
            "summary_sequence, covered_sequence, planned_sequence, created_at, updated_at) "
            "VALUES ('00000000-0000-4000-8000-000000000000', 1, 't', 'emelex', 0, 0, zeroblob(32), 0, 0, 0, 1, 1);"
            "INSERT INTO active_turns VALUES ('00000000-0000-4000-8000-000000000000', "
            "'00000000-0000-4000-8000-000000000001', x'7b7d', 0, 1);"
            "INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, published_at, through_sequence, "
            "source_event_count, source_first_event_id, source_last_event_id, source_sha256, retry_after, last_error) "
            "VALUES ('00000000-0000-4000-8000-000000000002', 'distillation', '00000000-0000-4000-8000-000000000000', "
            "'pending', 1, 9, 1, 1, 1, '00000000-0000-4000-8000-000000000003', '00000000-0000-4000-8000-000000000003', "
            "printf('%064d', 0), 9, 'no')"
        )

    _migrated(old.database, through, monkeypatch, fill)
    before = _contents(old.database)
    with pytest.raises(Refused, match=f"schema {through}"):
        MemoryStore.open(old.root, read_only=True)
    assert _contents(old.database) == before
    MemoryStore.open(old.root).close()
    assert _ddl(old.database) == _ddl(Home(tmp_path / "fresh").database)
    after = _contents(old.database)
    assert {name: after[name] for name in before} == before
    assert sound(old.database)


KILLED = """
    import sys
    from emelex_core import MemoryStore
    MemoryStore.open(sys.argv[1], create=len(sys.argv) > 2)
"""


@pytest.mark.parametrize(
    "point", ["create.file_made", *[f"migrate.before_commit:{nth + 1}" for nth in range(len(schema.MIGRATIONS))]]
)
def test_a_kill_while_a_database_is_made_loses_nothing(tmp_path: Path, workspace: Path, point: str) -> None:
    """14: whatever step it dies in, the next open finishes it."""
    home = tmp_path / "home"
    killed = child(KILLED, home, "create", env={"EMELEX_FAULT": point})
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(workspace, title="t")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("x")])
    assert sound(Home(home).database)
    assert len(rows(Home(home).database, "SELECT * FROM schema_migrations")) == len(schema.MIGRATIONS)


def test_an_upgrade_keeps_one_running_job_of_a_kind_and_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schema 16 makes it a rule of the database; what broke it before is given back uncounted, the older one stays."""
    old = Home(tmp_path / "old")

    def fill(raw: apsw.Connection) -> None:
        raw.execute(
            "INSERT INTO workspaces VALUES (1, 2, 3, NULL, 'w');"
            "INSERT INTO sessions (id, workspace_id, title, source, last_sequence, event_bytes, chain, "
            "summary_sequence, covered_sequence, planned_sequence, created_at, updated_at) "
            "VALUES (printf('%036d', 0), 1, 't', 'emelex', 0, 0, zeroblob(32), 0, 0, 0, 1, 1)"
        )
        for number in (1, 2):
            raw.execute(
                "INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, lease_token, lease_until, "
                "lease_owner, published_at, through_sequence, source_event_count, source_first_event_id, "
                "source_last_event_id, source_sha256) VALUES (printf('%036d', ?1), 'distillation', printf('%036d', 0), "
                "'running', 0, 1, zeroblob(16), 2, 3, 1, 1, 1, printf('%036d', 0), printf('%036d', 0), "
                "printf('%064d', ?1))",
                (number,),
            )

    _migrated(old.database, 15, monkeypatch, fill)
    MemoryStore.open(old.root).close()
    assert rows(old.database, "SELECT state, failure_count, lease_until FROM jobs ORDER BY row") == [
        ("running", 0, 2),
        ("pending", 0, None),
    ]


@pytest.mark.parametrize("through", OLDER)
def test_a_kill_in_an_upgrade_leaves_the_old_schema_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: int
) -> None:
    """14 and 16."""
    old = Home(tmp_path / "old")
    _migrated(
        old.database,
        through,
        monkeypatch,
        lambda raw: raw.execute("INSERT INTO workspaces VALUES (1, 2, 3, NULL, 'w')"),
    )
    before = _ddl(old.database)
    killed = child(KILLED, old.root, env={"EMELEX_FAULT": "migrate.before_commit"})
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    assert _ddl(old.database) == before
    assert rows(old.database, "PRAGMA user_version") == [(through,)]
    MemoryStore.open(old.root).close()
    assert rows(old.database, "SELECT path FROM workspaces") == [("w",)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO event_assets VALUES ('s', 1, 0, 'nowhere', 'image')", Corrupt),
        ("CREATE TABLE broken (", apsw.SQLError),
    ],
)
def test_a_bad_migration_is_rolled_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, expected: type[Exception]
) -> None:
    """11: a dangling reference is Corrupt; whatever fails, the old schema stands."""
    home = Home(tmp_path / "home")
    MemoryStore.open(home.root, create=True).close()
    shutil.copytree(Path(str(resources.files("emelex_core"))) / "schema", tmp_path / "package" / "schema")
    (tmp_path / "package" / "schema" / "9999_bad.sql").write_text(f"CREATE TABLE extra (x);\n{sql};\n", "utf-8")
    before = _ddl(home.database)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, (schema.CURRENT + 1, "9999_bad")))
    monkeypatch.setattr(schema, "CURRENT", schema.CURRENT + 1)
    monkeypatch.setattr(schema, "package_directory", lambda package: tmp_path / "package")
    with pytest.raises((expected, Corrupt)):
        MemoryStore.open(home.root)
    assert _ddl(home.database) == before


def test_a_sidecar_serialises_first_opens_across_processes(tmp_path: Path) -> None:
    """7 and 13: somebody else holds the lock; opening waits and then says who is in the way."""
    import fcntl

    from emelex_core import limits
    from emelex_core.errors import StorageBusy

    home = Home(tmp_path / "home")
    _bare(home.database)
    sidecar = home.database.with_name(home.database.name + ".open.lock")
    sidecar.touch(mode=0o600)
    with sidecar.open("r+b") as held, pytest.MonkeyPatch.context() as short:
        fcntl.flock(held, fcntl.LOCK_EX)
        short.setattr(limits, "BUSY_WAIT_MS", 100)
        with pytest.raises(StorageBusy, match=r"open\.lock"):
            MemoryStore.open(home.root)
    MemoryStore.open(home.root).close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path
