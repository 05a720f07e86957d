"""Real conversations of the other formats: what comes out against what an independent count finds in the files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from emelex_core.events import Event, EventKind, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.discover import discover
from emelex_core.imports.records import CHATGPT, GEMINI, LANGGRAPH, OPENAI_AGENTS, OPENAI_CHAT
from foreign import Talk, library, read

CORPUS = (Path(__file__).resolve().parents[3] / "shared" / "corpus").resolve()
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")]
FILES = {
    GEMINI: "gemini/session-python-agent.json",
    OPENAI_CHAT: "openai-chat/marshmallow-1867-messages.json",
    CHATGPT: "chatgpt/conversations.json",
    OPENAI_AGENTS: "openai-agents-sqlite/sessions.db",
    LANGGRAPH: "langgraph-sqlite/checkpoints.db",
}


def _talks(form: str) -> list[Talk]:
    reading = read(CORPUS / FILES[form], form)
    assert reading.defects == {}
    assert all(talk.defects == {} for talk in reading.talks)
    return reading.talks


def _json(form: str) -> Any:
    return json.loads((CORPUS / FILES[form]).read_text())


def _count(events: list[Event]) -> Counter[type]:
    return Counter(type(part) for event in events for part in event.parts)


@pytest.mark.parametrize("form", FILES)
def test_each_is_found_and_imported_once(form: str, tmp_path: Path) -> None:
    """By content, and a second import changes nothing."""
    path = CORPUS / FILES[form]
    before = path.stat()
    (found,) = discover([path.parent])
    assert found.format == form
    with library(tmp_path) as books:
        run = books.run(path.parent)
        assert (run.problems, run.totals.defects) == ([], {})
        again = books.run(path.parent)
        assert (again.totals.events, again.totals.already) == (0, run.totals.sessions)
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("form", FILES)
def test_calls_and_results_share_a_turn(form: str) -> None:
    for turn in (turn for talk in _talks(form) for path in talk.turns for turn in path):
        calls = [p.call_id for e in turn for p in e.parts if isinstance(p, ToolCallPart)]
        results = [p.call_id for e in turn for p in e.parts if isinstance(p, ToolResultPart)]
        assert sorted(calls) == sorted(results)


def test_gemini() -> None:
    messages = _json(GEMINI)["messages"]
    (talk,) = _talks(GEMINI)
    calls = [call for message in messages for call in message.get("toolCalls", [])]
    parts = _count(talk.events)
    assert parts[ToolCallPart] == parts[ToolResultPart] == len(calls)
    assert parts[ReasoningPart] == sum(len(message.get("thoughts", [])) for message in messages)
    words = [m["content"] for m in messages if m["content"].strip()]
    assert [p.text for e in talk.events for p in e.parts if isinstance(p, TextPart)] == words
    results = [p for e in talk.events for p in e.parts if isinstance(p, ToolResultPart)]
    assert [r.is_error for r in results if r.exit_code is None] == [
        c["status"] != "success" for c in calls if c["name"] != "run_shell_command" or c["status"] != "success"
    ]
    assert next(r.exit_code for r in results if r.exit_code is not None) == 127
    assert sum(r.status == "unknown_effect" for r in results) == sum(c["status"] == "cancelled" for c in calls)


def test_openai_chat() -> None:
    messages = _json(OPENAI_CHAT)["messages"]
    (talk,) = _talks(OPENAI_CHAT)
    roles = Counter(message["role"] for message in messages)
    kinds = Counter(event.kind for event in talk.events)
    assert kinds == {
        EventKind.CONTEXT: roles["system"],
        EventKind.USER: roles["user"],
        EventKind.ASSISTANT: roles["assistant"],
        EventKind.TOOL: roles["tool"],
    }
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    found = [p for e in talk.events for p in e.parts if isinstance(p, ToolCallPart)]
    assert [(p.call_id, p.arguments) for p in found] == [
        (call["id"], json.loads(call["function"]["arguments"])) for call in calls
    ]


def test_chatgpt() -> None:
    conversations = _json(CHATGPT)
    talks = _talks(CHATGPT)
    assert [talk.title for talk in talks] == [value["title"] for value in conversations]
    for value, talk in zip(conversations, talks, strict=True):
        mapping = value["mapping"]
        assert len(talk.paths) == sum(not node["children"] for node in mapping.values())
        path: list[str] = []
        own = value["current_node"]
        while own is not None:
            message = mapping[own]["message"]
            if message and any(part for part in message["content"]["parts"]):
                path.append(own)
            own = mapping[own]["parent"]
        assert [message.id.partition("~")[0] for message in talk.paths[0]] == path[::-1]


def test_openai_agents() -> None:
    connection = apsw.Connection(f"file:{CORPUS / FILES[OPENAI_AGENTS]}?immutable=1", flags=apsw.SQLITE_OPEN_URI | 1)
    rows = connection.execute("SELECT session_id, message_data FROM agent_messages ORDER BY id").fetchall()
    talks = _talks(OPENAI_AGENTS)
    assert [talk.source_id for talk in talks] == list(dict.fromkeys(row[0] for row in rows))
    kinds = Counter(json.loads(str(row[1])).get("type", "plain") for row in rows)
    parts = sum((_count(talk.events) for talk in talks), Counter[type]())
    assert parts[ToolCallPart] == kinds["function_call"]
    assert parts[ToolResultPart] == kinds["function_call_output"]
    assert parts[TextPart] == kinds["message"] + kinds["plain"]


def test_langgraph() -> None:
    """Twelve checkpoints hold eleven messages."""
    (talk,) = _talks(LANGGRAPH)
    assert [event.kind for event in talk.events] == [
        EventKind.USER,
        *[EventKind.ASSISTANT, EventKind.TOOL] * 5,
    ]
    assert len(talk.paths[0]) == 11
