"""Foreign databases: nothing is written beside them, whatever state their owner left them in (formats.md, 5)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from emelex_core.db.statements import Statements
from emelex_core.errors import EmelexError, Invalid, StorageBusy
from emelex_core.imports.files import foreign_store
from emelex_core.imports.files.foreign_store import opened, tables_of
from emelex_core.imports.langgraph import reader as langgraph
from emelex_core.imports.openai import agents as openai_agents

ROWS = Statements("test", {"notes": "SELECT words FROM notes ORDER BY rowid"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "foreign"
    folder.mkdir()
    return folder / "store.db"


def _words(path: Path) -> list[str]:
    with opened(path) as store:
        return [words for (words,) in store.rows(ROWS["notes"])]


def _state(folder: Path) -> dict[str, tuple[str, int]]:
    """Names, contents and times of everything in a folder."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(folder.iterdir()):
        found[path.name] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
    return found


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Nothing in the folder changes meanwhile: no file more or less, no byte, no time."""
    before = _state(folder)
    yield
    assert _state(folder) == before


def _write(path: Path, *statements: str, mode: str = "delete") -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute(
        f"PRAGMA journal_mode={mode}; CREATE TABLE notes (words); INSERT INTO notes VALUES ('first')"
    ).fetchall()
    for statement in statements:
        connection.execute(statement)
    return connection


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_that_nobody_has_open(place: Path, mode: str) -> None:
    _write(place, mode=mode).close()
    with untouched(place.parent):
        assert _words(place) == ["first"]
        assert tables_of(place) == {"notes": {"words"}}


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_that_its_agent_has_open(place: Path, mode: str) -> None:
    """What is in the WAL only is read, and a writer in the midst of a transaction is not waited for."""
    connection = _write(place, mode=mode)
    connection.execute("INSERT INTO notes VALUES ('second'); BEGIN IMMEDIATE; INSERT INTO notes VALUES ('third')")
    with untouched(place.parent):
        assert _words(place) == ["first", "second"]
        assert tables_of(place) == {"notes": {"words"}}
    connection.execute("ROLLBACK")
    connection.close()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_whose_writer_was_killed(place: Path, mode: str) -> None:
    """A WAL or hot journal that was left behind is minded in the copy: committed rows are there, half ones are not."""
    script = """
        import apsw, os, sys
        connection = apsw.Connection(sys.argv[1])
        connection.execute(f"PRAGMA journal_mode={sys.argv[2]}; PRAGMA cache_size=2").fetchall()
        connection.execute("CREATE TABLE notes (words)")
        connection.execute("INSERT INTO notes VALUES ('first')")
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(200):
            connection.execute("INSERT INTO notes VALUES (zeroblob(4000))")
        connection.cache_flush()
        os._exit(0)
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(script), str(place), mode], check=True)
    left = {path.name for path in place.parent.iterdir()}
    assert len(left) > 1
    with untouched(place.parent):
        assert _words(place) == ["first"]


def test_a_wal_without_shared_memory(place: Path) -> None:
    """As a copied or synchronised folder has it."""
    other = place.with_name("other.db")
    connection = _write(other, mode="wal")
    connection.execute("INSERT INTO notes VALUES ('second')")
    for suffix in ("", "-wal"):
        shutil.copy(f"{other}{suffix}", f"{place}{suffix}")
    connection.close()
    other.unlink()
    with untouched(place.parent):
        assert _words(place) == ["first", "second"]


def test_a_folder_that_cannot_be_written(place: Path) -> None:
    """Names with every odd character, too."""
    odd = place.with_name("50% #1?.db")
    _write(odd, mode="wal").close()
    odd.parent.chmod(0o500)
    try:
        assert _words(odd) == ["first"]
        assert tables_of(odd) == {"notes": {"words"}}
    finally:
        odd.parent.chmod(0o700)


def test_nothing_of_the_copy_stays(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies where only this user reads, and goes, also when reading fails."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    _write(place).close()

    def look() -> None:
        with opened(place):
            (folder,) = scratch.iterdir()
            assert folder.stat().st_mode & 0o077 == 0
            raise Invalid("reading failed")

    with pytest.raises(Invalid, match="reading failed"):
        look()
    assert list(scratch.iterdir()) == []


def test_a_store_that_is_written_all_the_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of files is proven: where they keep changing, the import gives up and says so."""
    _write(place, mode="wal").close()
    copy = shutil.copyfile

    def changing(source: Path, target: Path, **options: bool) -> Path:
        copied = copy(source, target, **options)
        os.utime(place, ns=(0, place.stat().st_mtime_ns + 1))
        return copied

    monkeypatch.setattr(shutil, "copyfile", changing)
    with pytest.raises(StorageBusy, match="changed while it was copied") as caught:
        _words(place)
    assert str(place) in caught.value.message


@pytest.mark.parametrize("damage", ["cut", "zeros", "header"])
def test_a_damaged_store(place: Path, damage: str) -> None:
    """One error that names the file."""
    _write(place, "INSERT INTO notes SELECT hex(randomblob(2000)) FROM json_each('[1,2,3,4,5,6,7,8,9]')").close()
    data = place.read_bytes()
    match damage:
        case "cut":
            data = data[:5_000]
        case "zeros":
            data = data[:4_096] + bytes(len(data) - 4_096)
        case _:
            data = data[:16] + b"\xff" * 84 + data[100:]
    place.write_bytes(data)
    with pytest.raises(EmelexError, match=r"store\.db"):
        _words(place)


def test_views_triggers_and_virtual_tables_are_not_tables(place: Path) -> None:
    """A hostile schema runs nothing."""
    connection = _write(
        place,
        "CREATE VIEW seen AS SELECT words FROM notes",
        "CREATE VIRTUAL TABLE found USING fts5(words)",
        "CREATE TRIGGER t AFTER INSERT ON notes BEGIN SELECT 1; END",
    )
    connection.close()
    assert set(tables_of(place)) == {"notes"}
    with opened(place) as store, pytest.raises(Invalid):
        list(store.rows(Statements("test", {"view": "SELECT * FROM seen"})["view"]))


def _used(module: object, statements: Statements) -> bool:
    text = Path(str(getattr(module, "__file__", ""))).read_text("utf-8")
    return all(f'["{name}"]' in text for name in statements.names())


def test_foreign_statements_fit_the_foreign_schemas_and_are_used(tmp_path: Path) -> None:
    """As the house asks of our own (SQL home); these stand apart, since our schema knows nothing of their tables."""
    connection = apsw.Connection(str(tmp_path / "both.db"))
    connection.execute(
        """
        CREATE TABLE agent_sessions (session_id, created_at, updated_at);
        CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at);
        CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
                                  metadata, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
        CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value,
                             PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
        """
    )
    pairs = ((foreign_store, foreign_store.SCHEMA), (openai_agents, openai_agents.SQL), (langgraph, langgraph.SQL))
    for module, statements in pairs:
        assert statements.names()
        assert _used(module, statements)
        for name in statements.names():
            text = statements[name]
            bound = dict.fromkeys(re.findall(r":(\w+)", text))
            connection.execute(f"EXPLAIN {text}", bound)
