"""A Home that is not as we made it: one clear error, the documented code, and not a byte changed (issue 2)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from program import PROGRAM, Program
from stores import BECOME_NOBODY, behind, edit

Talk = Callable[..., Session]
READING = [
    ("memory", "status"),
    ("memory", "sessions", "list", "--all"),
    ("memory", "knowledge", "list", "--all"),
    ("memory", "jobs", "list"),
    ("memory", "failures"),
]
WRITING = [("memory", "work"), ("memory", "retry", "--all")]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def stored(emelex: Program, workspace: Path) -> Path:
    """A closed database with one Session."""
    with MemoryStore.open(emelex.home, create=True) as store:
        store.start_session(workspace, title="one")
    return emelex.database


def _loosen(path: Path) -> None:
    path.chmod(0o644)


def _link(path: Path) -> None:
    real = path.with_name("real.sqlite3")
    path.rename(real)
    path.symlink_to(real)


def _twice(path: Path) -> None:
    os.link(path, path.with_name("other-name"))


def _open_to_others(path: Path) -> None:
    path.parent.chmod(0o777)


def _folder(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.mkdir()


@pytest.mark.parametrize("spoil", [_loosen, _link, _twice, _open_to_others, _folder])
@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_what_is_not_private_is_refused(
    emelex: Program, stored: Path, spoil: Callable[[Path], None], command: tuple[str, ...]
) -> None:
    """Mode, links, hard links, an open directory: exit 6, named, not repaired."""
    spoil(stored)
    result = emelex(*command, "--json")
    assert (result.code, result.error["kind"], result.out) == (6, "Refused", "")
    assert str(stored.parent) in result.error["message"]
    assert "Traceback" not in result.err


def test_a_foreign_owner_is_refused(emelex: Program, stored: Path) -> None:
    """A database that belongs to another user."""
    if os.geteuid() != 0:
        assert stored.stat().st_uid == os.geteuid()
        return
    os.chown(stored, 65_534, 65_534)
    result = emelex("memory", "status", "--json")
    assert (result.code, result.error["kind"]) == (6, "Refused")


@pytest.mark.parametrize("command", [*READING, *WRITING, ("import", "auto", "TRANSCRIPT")], ids=" ".join)
def test_a_newer_schema_is_left_untouched(
    emelex: Program, stored: Path, transcript: Callable[..., Path], command: tuple[str, ...]
) -> None:
    """Both versions named, exit 6, byte for byte as before (9)."""
    edit(stored, "PRAGMA user_version = 99")
    edit(stored, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = _digest(stored)
    words = [str(transcript()) if word == "TRANSCRIPT" else word for word in command]
    result = emelex(*words, "--json")
    assert (result.code, result.error["kind"]) == (6, "NewerSchema")
    assert "99" in result.error["message"]
    assert _digest(stored) == before


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all, just words\n" * 200, b"SQLite format 3\0" + b"\xff" * 4_080]
)
def test_what_is_no_database_is_an_error(emelex: Program, stored: Path, content: bytes) -> None:
    """Damaged or foreign bytes are never taken for an empty memory, except the empty file that a crash leaves."""
    for extra in ("-wal", "-shm"):
        stored.with_name(stored.name + extra).unlink(missing_ok=True)
    stored.write_bytes(content)
    result = emelex("memory", "status", "--json")
    if not content:
        # What a kill between making the file and its first migration leaves: the next open finishes it (14).
        assert (result.code, result.json["sessions"]) == (0, 0)
        return
    assert (result.code, result.out) == (7, "")
    assert stored.read_bytes() == content


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a Home to another user")
def test_reading_works_where_nothing_can_be_written(
    emelex: Program, talk: Talk, store: MemoryStore, open_place: Path
) -> None:
    """A Home of mode 0500: reading is as before, writing says why not (189)."""
    session = talk(1)
    expected = {name: emelex(*name, "--json").out for name in READING[1:4]}
    store.close()
    closed = Program(home=open_place / "home", workspace=open_place)
    shutil.copytree(emelex.home, closed.home)
    for place in (closed.home, *closed.home.rglob("*")):
        os.chown(place, 65_534, 65_534)
    (closed.home / "memory").chmod(0o500)
    closed.home.chmod(0o500)
    for command, out in expected.items():
        result = _as_nobody(closed, *command, "--json")
        assert (result.returncode, result.stdout) == (0, out), result.stderr
    shown = _as_nobody(closed, "memory", "sessions", "show", session.id, "--all")
    assert "Sort the parcels" in shown.stdout
    refused = _as_nobody(closed, "memory", "distill", session.id, "--all", "--json")
    assert refused.returncode == 75, refused.stderr
    assert str(closed.home) in json.loads(refused.stderr)["error"]["message"]


def _as_nobody(emelex: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program without root's powers; its modules are imported before, since their place may be closed."""
    code = f"""
        import sys, unicodedata, emelex_cli.app, emelex_cli.queue_cmd, emelex_cli.sessions_cmd, msgspec
        import emelex_cli.knowledge_cmd
        import emelex_cli.jobs_cmd, emelex_core.config, emelex_core.jobs.reading, emelex_core.store, emelex_cli.grammar
        emelex_cli.grammar.parse(["memory", "sessions", "show", "0123456789ab", "--all"])
        {BECOME_NOBODY}
        sys.exit(emelex_cli.app.main())
    """
    return subprocess.run(
        [PROGRAM[0], "-P", "-c", textwrap.dedent(code), *arguments],
        cwd="/",
        env=emelex.env(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_file_in_the_homes_place_is_refused(emelex: Program) -> None:
    """It is not an empty Home."""
    emelex.home.write_text("a file", "utf-8")
    for command in READING:
        result = emelex(*command, "--json")
        assert (result.code, result.error["kind"]) == (6, "Refused")


def test_a_held_lock_is_busy(emelex: Program, talk: Talk) -> None:
    """Another process keeps the write lock for longer than the wait: exit 75, the file named, nothing lost."""
    session = talk(1)
    with behind(emelex.database) as other:
        other.execute("BEGIN IMMEDIATE")
        result = emelex("memory", "distill", session.id, "--json")
        assert emelex("memory", "status").code == 0
    assert (result.code, result.error["kind"]) == (75, "StorageBusy")
    assert str(emelex.database) in result.error["message"]


@pytest.mark.parametrize("words", [("memory", "status"), ("memory", "work"), ("memory", "jobs", "list")])
def test_a_home_that_others_can_write_is_no_empty_one(emelex: Program, words: tuple[str, ...]) -> None:
    """K7, K9: also while nothing is stored in it; so is one that belongs to somebody else."""
    emelex.home.mkdir()
    emelex.home.chmod(0o777)
    done = emelex(*words)
    assert (done.code, "writable by group or others" in done.err) == (6, True)
    if os.geteuid() == 0:
        emelex.home.chmod(0o700)
        os.chown(emelex.home, 12_345, 12_345)
        done = emelex(*words)
        assert (done.code, "belongs to user 12345" in done.err) == (6, True)
