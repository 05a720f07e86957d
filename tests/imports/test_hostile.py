"""Conversations in which anything may stand anywhere (K10, K12): read or refused, and the same at every import."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emelex_core.errors import EmelexError
from emelex_core.imports.records import CHATGPT, GEMINI, LANGGRAPH, OPENAI_AGENTS, OPENAI_CHAT
from foreign import Library, library, put, put_lines, read

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TALK: list[Any] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "o"}, {"n": 1}]},
    {"role": "assistant", "content": "done", "function_call": {"name": "g", "arguments": "{"}},
    {"role": "function", "name": "g", "content": "old"},
]
ITEMS: list[Any] = [
    {"role": "user", "content": "q"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}], "encrypted_content": "y"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}]},
    {"type": "mcp_call", "id": "m", "arguments": "{}", "output": "o", "error": None},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
RECORDS: list[Any] = [
    {"sessionId": "s", "projectHash": "h", "directories": ["/w"]},
    {"id": "u", "type": "user", "content": [{"text": "q"}], "displayContent": "q"},
    {
        "id": "g",
        "type": "gemini",
        "content": "a",
        "thoughts": [{"subject": "s", "description": "d"}],
        "toolCalls": [{"id": "c", "name": "f", "args": {}, "status": "success", "result": [{"text": "o"}]}],
    },
    {"$rewindTo": "g"},
    {"id": "v", "type": "user", "content": "r"},
    {"$set": {"messages": [{"id": "u", "type": "user", "content": "q"}]}},
]
EXPORT: list[Any] = [
    {
        "id": "c",
        "title": "t",
        "current_node": "a",
        "mapping": {
            "r": {"message": None, "parent": None, "children": ["u"]},
            "u": {
                "parent": "r",
                "children": ["a", "b"],
                "message": {
                    "author": {"role": "user"},
                    "create_time": 1.5,
                    "content": {
                        "content_type": "multimodal_text",
                        "parts": ["q", {"content_type": "audio_transcription"}],
                    },
                    "metadata": {"attachments": [{"id": "file-abcdef1", "name": "n"}]},
                },
            },
            "a": {
                "parent": "u",
                "children": [],
                "message": {
                    "author": {"role": "assistant"},
                    "recipient": "f",
                    "content": {"content_type": "code", "text": "1"},
                },
            },
            "b": {
                "parent": "u",
                "children": [],
                "message": {
                    "author": {"role": "tool", "name": "f"},
                    "content": {"content_type": "text", "parts": ["o"]},
                },
            },
        },
    }
]
GRAPH: list[Any] = [
    {"type": "human", "content": "q", "id": "1"},
    {"type": "ai", "content": "", "id": "2", "tool_calls": [{"name": "f", "args": {}, "id": "c"}],
     "invalid_tool_calls": [{"name": "g", "args": "{", "id": None, "error": None}], "additional_kwargs": {}},
    {"type": "tool", "content": "o", "tool_call_id": "c", "status": "error", "id": "3"},
]  # fmt: skip
SAMPLES: dict[str, Any] = {
    OPENAI_CHAT: TALK,
    "log": [{"request": {"messages": TALK[:2]}, "response": {"choices": [{"message": TALK[2]}]}}, {"messages": TALK}],
    OPENAI_AGENTS: ITEMS,
    GEMINI: RECORDS,
    CHATGPT: EXPORT,
    LANGGRAPH: GRAPH,
}
SCALARS: list[Any] = [None, True, 0, -1, 1.5, 1e308, 2**63, "", "x", "\0", "user", "all", "c", "u", "file-abcdef1"]
SHAPES: list[Any] = [[], {}, [None], [[]], {"text": 5}, {"id": []}, {"type": "text"}, {"type": "image_url"}]
VALUES = st.sampled_from([*SCALARS, *SHAPES, {"content_type": []}, "data:image/png;base64,AAAA"])
CHANGES = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["set", "drop", "add"]), VALUES), max_size=5)
KEYS = ("id", "type", "role", "content", "parent", "message")


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from _places(item, (*path, key))


def _changed(sample: Any, changes: list[tuple[int, str, Any]]) -> Any:
    value = copy.deepcopy(sample)
    for number, change, new in changes:
        places = list(_places(value))
        if not places:
            break
        *above, key = places[number % len(places)]
        holder = value
        for step in above:
            holder = holder[step]
        match change:
            case "set":
                holder[key] = copy.deepcopy(new)
            case "drop":
                del holder[key]
            case _ if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(new))
            case _:
                holder[KEYS[number % len(KEYS)]] = copy.deepcopy(new)
    return value


def _extension(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return msgspec.msgpack.Ext(5, msgspec.msgpack.encode(["m", f"{value.get('type')!s:.9}Message", value, "x"]))


def _write(folder: Path, form: str, value: Any) -> Path:
    """Write a sample as its format keeps it."""
    if form in (GEMINI, "log"):
        return put_lines(folder, "f.jsonl", value)
    if form not in (OPENAI_AGENTS, LANGGRAPH):
        return put(folder, "f.json", value)
    path = folder / f"{form}.db"
    path.unlink(missing_ok=True)
    connection = apsw.Connection(str(path))
    if form == OPENAI_AGENTS:
        connection.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        for item in value:
            connection.execute("INSERT INTO agent_messages VALUES (NULL, 's', ?, 'then')", (json.dumps(item),))
    else:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint)"
        )
        state = msgspec.msgpack.encode({"channel_values": {"messages": [_extension(item) for item in value]}})
        connection.execute("INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'msgpack', ?)", (state,))
    connection.close()
    return path


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Library, Path]]:
    """One store for all examples: what one left behind is what the next one finds."""
    folder = tmp_path_factory.mktemp("hostile")
    with library(folder) as books:
        yield books, folder


@pytest.mark.parametrize("form", SAMPLES)
@given(changes=CHANGES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_where(form: str, shelf: tuple[Library, Path], changes: list[tuple[int, str, Any]]) -> None:
    """It is read or refused as a member of the tree; importing it again adds nothing and makes no Session."""
    books, folder = shelf
    path = _write(folder, form, _changed(SAMPLES[form], changes))
    try:
        first = books.run(path)
    except EmelexError:
        return
    again = books.run(path)
    assert (again.totals.events, again.totals.new_sessions) == (0, 0)
    assert again.totals.sessions == first.totals.sessions == again.totals.already
    assert again.totals.skipped == first.totals.skipped


@pytest.mark.parametrize("form", SAMPLES)
def test_the_samples_themselves_are_read(form: str, tmp_path: Path) -> None:
    """The test above would prove little about samples that are refused."""
    known = OPENAI_CHAT if form == "log" else form
    assert sum(len(talk.events) for talk in read(_write(tmp_path, form, SAMPLES[form]), known).talks) >= 2
