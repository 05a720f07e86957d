"""Formats told by content, and folders that hold all of them (formats.md, section 6)."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from emelex_core.errors import EmelexError, Invalid
from emelex_core.imports.discover import discover
from emelex_core.imports.records import CHATGPT, FORMATS, GEMINI, LANGGRAPH, OPENAI_AGENTS, OPENAI_CHAT
from emelex_core.imports.sniff import sniff_format
from foreign import library, put, put_lines

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
NODE = {
    "u": {
        "parent": None,
        "children": [],
        "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}},
    }
}
RECORDING = {"sessionId": "g", "projectHash": "h", "messages": [{"id": "1", "type": "user", "content": "hi"}]}


def _database(path: Path, *statements: str) -> Path:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def agents(path: Path) -> Path:
    return _database(
        path,
        "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)",
        """INSERT INTO agent_messages VALUES (1, 's', '{"role":"user","content":"hi"}', '2026-01-02 03:04:05')""",
    )


def graph(path: Path) -> Path:
    state = json.dumps({"channel_values": {"messages": [{"role": "user", "content": "hi"}]}})
    return _database(
        path,
        "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint)",
        f"INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'json', '{state}')",
    )


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as export:
        export.writestr("conversations.json", json.dumps([{"id": "c", "mapping": NODE, "current_node": "u"}]))
    return path


MAKERS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "agents.db": (OPENAI_AGENTS, agents),
    "graph.sqlite": (LANGGRAPH, graph),
    "export.zip": (CHATGPT, archive),
    "talk.json": (OPENAI_CHAT, lambda path: put(path.parent, path.name, TALK)),
    "log.jsonl": (OPENAI_CHAT, lambda path: put_lines(path.parent, path.name, [{"messages": TALK}])),
    "conversations.json": (CHATGPT, lambda path: put(path.parent, path.name, [{"id": "d", "mapping": NODE}])),
    "session.json": (GEMINI, lambda path: put(path.parent, path.name, RECORDING)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_content_tells_and_not_the_name(tmp_path: Path, name: str) -> None:
    """Under a name that says nothing, and under one that says something else."""
    form, make = MAKERS[name]
    path = make(tmp_path / name)
    for other in ("nothing", "rollout-2026.jsonl", "other.db"):
        renamed = path.rename(tmp_path / other)
        assert sniff_format(renamed) == form
        (found,) = discover([renamed], format=form)
        assert found.format == form
        wrong = next(known for known in FORMATS if known != form)
        with pytest.raises(Invalid, match=f"it is a {form} transcript, not {wrong}"):
            discover([renamed], format=wrong)
        path = renamed


def test_a_folder_of_everything(tmp_path: Path) -> None:
    """`auto` takes all, each format takes its own, and what is nobody's is passed over (formats.md, section 6)."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name, (_, make) in MAKERS.items():
        make(folder / name)
    put(folder, "package.json", {"name": "x", "messages": "none"})
    put(folder, "settings.json", b"{broken")
    put(folder, "numbers.json", [1, 2])
    put(folder, "checkpoint.json", [{"role": "user", "parts": [{"text": "another agent's"}]}])
    put(folder, "empty.json", b"")
    _database(folder / "cache.db", "CREATE TABLE x (y)")
    (folder / "link.json").symlink_to(folder / "talk.json")
    os.mkfifo(folder / "pipe.json")
    found = discover([folder])
    assert {file.path.name: file.format for file in found} == {name: form for name, (form, _) in MAKERS.items()}
    assert found.problems == ()
    assert found.skipped == {"other_file": 5, "empty_file": 1, "symlink": 1, "special_file": 1}
    assert [file.path.name for file in discover([folder], format=GEMINI)] == ["session.json"]
    with library(tmp_path) as books:
        run = books.run(folder)
        assert (run.totals.failed_files, run.problems) == (0, [])
        assert {session.source for session in run.sessions} == {form for form, _ in MAKERS.values()}
        assert books.run(folder).totals.events == 0


def test_a_damaged_file_in_a_folder_is_a_problem_and_not_nothing(tmp_path: Path) -> None:
    """'Cannot read' must not look like 'nothing there' (K7)."""
    put(tmp_path, "cut.zip", archive(tmp_path / "whole.zip").read_bytes()[:-30])
    put(tmp_path, "cut.db", agents(tmp_path / "whole.db").read_bytes()[:60])
    found = discover([tmp_path])
    assert sorted(path.name for path, _ in found.problems) == ["cut.db", "cut.zip"]
    assert all(str(path) in error.message for path, error in found.problems)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty"),
        (bytes(range(256)), "not a transcript"),
        (b'{"colour":"blue"}', "no record in it is one of"),
        (b"[]", "no record in it is one of"),
        (b"Dear diary,\n", "no record in it is one of"),
        (b'{"messages":[{"role":"user","content":"cut', "its JSON is cut: what begins at byte 0 does not end"),
        (b'[{"role":"user","content":"cut', "its JSON is cut: what begins at byte 1 does not end"),
        (b"[" * 50_000, "its JSON is cut"),
        (b"SQLite format 3\0" + b"\xff" * 84, "the database cannot be read"),
        (b"PK\x03\x04torn", "a ZIP that cannot be read"),
    ],
)
@pytest.mark.parametrize("name", ["auto", "chatgpt", "openai-chat"])
def test_a_named_file_is_read_or_refused_by_name(tmp_path: Path, data: bytes, why: str, name: str) -> None:
    """One clear error that names the file and the reason."""
    path = put(tmp_path, "f", data)
    with pytest.raises(EmelexError, match=why) as caught:
        discover([path], format=name)
    assert str(path) in caught.value.message


def test_a_sniff_reads_no_more_than_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge file that is nobody's costs a bounded look."""
    read: list[int] = []
    actual: Any = __import__("emelex_core.imports.shapes", fromlist=["_Head"])
    original = actual._Head.read

    def counting(self: Any, size: int, /) -> bytes:
        data: bytes = original(self, size)
        read.append(len(data))
        return data

    monkeypatch.setattr("emelex_core.limits.IMPORT_LINE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(actual._Head, "read", counting)
    path = put(tmp_path, "huge.json", b'{"x":["' + b"y" * (8 << 20) + b'"]}')
    assert sniff_format(path) is None
    assert sum(read) <= (1 << 20) + 1_024
