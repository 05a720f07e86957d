"""The OpenAI Agents SDK's session store, from databases made here (formats.md, section 5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from emelex_core.imports.records import OPENAI_AGENTS
from emelex_core.imports.sniff import sniff_format
from foreign import library, read

SCHEMA = """
CREATE TABLE {sessions} (session_id TEXT PRIMARY KEY, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                         updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE {messages} (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, message_data TEXT NOT NULL,
                         created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
"""
ITEMS = [
    {"role": "user", "content": "list"},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Look."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Listing."}], "status": "x"},
    {"type": "function_call", "id": "f", "call_id": "c1", "name": "ls", "arguments": "{}"},
    {"type": "function_call", "id": "g", "call_id": "c2", "name": "pwd", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "output_text", "text": "/w"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
]
LINES = [
    "user list",
    "assistant (Look.)",
    "assistant Listing.",
    "assistant ls[c1]{}",
    "assistant pwd[c2]{}",
    "tool [c1] a.txt",
    "tool [c2] /w",
    "assistant Done.",
]


class Store:
    """A session store, written as the SDK writes it."""

    def __init__(self, path: Path, *, sessions: str = "agent_sessions", messages: str = "agent_messages") -> None:
        self.path = path
        self._messages = _quoted(messages)
        self.connection = apsw.Connection(str(path))
        self.connection.execute(SCHEMA.format(sessions=_quoted(sessions), messages=_quoted(messages)))

    def add(self, session_id: Any, items: Sequence[Any]) -> None:
        """Append items; text stands as it is."""
        for item in items:
            data = item if isinstance(item, str | bytes) else json.dumps(item)
            self.connection.execute(
                f"INSERT INTO {self._messages} (session_id, message_data, created_at) VALUES (?, ?, ?)",
                (session_id, data, "2026-01-02 03:04:05"),
            )

    def pop(self) -> None:
        """Take back the last item."""
        self.connection.execute(f"DELETE FROM {self._messages} WHERE id = (SELECT max(id) FROM {self._messages})")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions.db")


def test_items_become_turns(store: Store) -> None:
    """Items of one response share a turn, and its calls' answers stand in it; times are whole seconds of UTC."""
    store.add("s1", ITEMS)
    assert sniff_format(store.path) == OPENAI_AGENTS
    (talk,) = read(store.path, OPENAI_AGENTS).talks
    assert talk.lines() == LINES
    assert [len(turn) for turn in talk.turns[0]] == [7, 1]
    assert (talk.source_id, talk.defects, talk.skipped) == ("s1", {}, {})
    assert talk.events[0].occurred_at == 1_767_323_045_000


def test_growth_pops_and_what_is_said_instead(store: Store, tmp_path: Path) -> None:
    """A store that grows appends; popped items stay and are counted; what is said instead is a branch."""
    with library(tmp_path) as books:
        for at in range(len(ITEMS)):
            store.add("s1", ITEMS[at : at + 1])
            assert books.run(store.path).sessions[0].events == 1
            assert books.run(store.path).totals.already == 1
        assert books.all() == {"s1": LINES}
        store.pop()
        popped = books.run(store.path)
        assert (popped.totals.already, popped.totals.defects) == (1, {"no_longer_in_source": 1})
        store.add("s1", [{"role": "user", "content": "and hidden ones?"}])
        main, branch = books.run(store.path).sessions
        assert (main.already, branch.parent, branch.events) == (True, main.id, 2)
        assert books.lines(branch.id)[1:] == ["user and hidden ones?"]
        assert books.run(store.path).totals.already == 2
        assert books.all()["s1"] == LINES


def test_a_popped_gap_is_not_missed(store: Store) -> None:
    store.add("s1", ITEMS[:1])
    store.add("s1", [{"role": "user", "content": "gone"}])
    store.pop()
    store.add("s1", [{"role": "assistant", "content": "plain"}])
    (talk,) = read(store.path, OPENAI_AGENTS).talks
    assert talk.lines() == ["user list", "assistant plain"]


@pytest.mark.parametrize("name", ["chats", 'odd "name"; DROP TABLE x', "sélection"])
def test_tables_with_other_names(tmp_path: Path, name: str) -> None:
    """They are known by their columns; a name is never SQL."""
    store = Store(tmp_path / "other.db", sessions="people", messages=name)
    store.add("s1", ITEMS)
    assert sniff_format(store.path) == OPENAI_AGENTS
    assert read(store.path, OPENAI_AGENTS).talks[0].lines() == LINES


def test_two_pairs_of_tables_in_one_store(tmp_path: Path) -> None:
    """Sessions of the same name in each are two."""
    store = Store(tmp_path / "both.db")
    store.add("s1", ITEMS[:1])
    other = Store(store.path, sessions="s2", messages="m2")
    other.add("s1", [{"role": "user", "content": "other"}])
    talks = read(store.path, OPENAI_AGENTS).talks
    assert {talk.source_id: talk.lines() for talk in talks} == {
        "agent_messages/s1": ["user list"],
        "m2/s1": ["user other"],
    }


def test_sessions_without_messages_are_counted(store: Store, tmp_path: Path) -> None:
    store.connection.execute("INSERT INTO agent_sessions (session_id) VALUES ('empty'), ('s1')")
    store.add("s1", ITEMS[:1])
    with library(tmp_path) as books:
        run = books.run(store.path)
        assert (run.totals.sessions, run.totals.skipped) == (1, {"empty_conversation": 1})


def test_rows_that_are_odd(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken JSON, blobs, other values, sizes: counted by name, and the rest is read."""
    monkeypatch.setattr("emelex_core.imports.openai.agents.CELL_BYTES_MAX", 1_000)
    odd = ["{torn", "[1]", b'{"role":"user","content":"blob"}', b"\xff\xfe", '{"role":"user","content":"\\ud83d"}']
    store.add("s1", [*odd, {"role": "user", "content": "x" * 2_000}, *ITEMS[:1]])
    (talk,) = read(store.path, OPENAI_AGENTS).talks
    assert talk.lines() == ["user blob", "user \ufffd", "user list"]
    assert talk.defects == {
        "not_json": 1,
        "not_object": 1,
        "not_utf8": 1,
        "lone_surrogate": 1,
        "oversized_record": 1,
    }


def test_session_ids_of_every_kind(store: Store) -> None:
    """Long ones are cut with a digest; ones that are no text are named all the same."""
    store.add("x" * 5_000, ITEMS[:1])
    store.add(b"\x00\xff", ITEMS[:1])
    first, second = (talk.source_id for talk in read(store.path, OPENAI_AGENTS).talks)
    assert len(first.encode()) < 200
    assert second
    assert first != second
