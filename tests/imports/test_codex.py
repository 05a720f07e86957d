"""Codex rollouts, kind by kind, from samples written here (formats.md, section 2)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core.events import MediaPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.records import CODEX

THREAD = "019b0000-0000-7000-8000-000000000001"
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
Row = dict[str, Any]


def line(kind: str, payload: Row, second: int = 1) -> Row:
    return {"timestamp": f"2026-02-03T04:05:{second:02}.000Z", "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> Row:
    return line("response_item", {"type": kind, **fields})


def event(kind: str, **fields: Any) -> Row:
    return line("event_msg", {"type": kind, **fields})


def said(role: str, *texts: str, **fields: Any) -> Row:
    form = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": form, "text": text} for text in texts], **fields)


def meta(**fields: Any) -> Row:
    return line("session_meta", {"id": THREAD, "timestamp": "2026-02-03T04:05:00Z", "cwd": "/srv/shop", **fields})


def call(call_id: str, arguments: str = "{}", name: str = "shell") -> Row:
    return item("function_call", name=name, arguments=arguments, call_id=call_id)


def output(call_id: str, value: Any) -> Row:
    return item("function_call_output", call_id=call_id, output=value)


@pytest.fixture
def load(write: Callable[..., Path], read: Callable[..., Any]) -> Callable[..., Any]:
    def load_rows(*records: Any, name: str = f"rollout-2026-02-03T04-05-00-{THREAD}.jsonl", **options: Any) -> Any:
        return read(write(*records, name=name), CODEX, **options)

    return load_rows


def test_a_prompt_its_answer_and_the_outputs_are_one_turn(load: Callable[..., Any]) -> None:
    reading = load(
        meta(),
        said("user", "<environment_context>\n<cwd>/srv/shop</cwd>\n</environment_context>"),
        said("user", "list the files"),
        event("user_message", message="list the files"),
        line("turn_context", {"cwd": "/srv/shop"}),
        event("agent_reasoning", text="**Listing**"),
        item("reasoning", summary=[{"type": "summary_text", "text": "**Listing**"}], encrypted_content="xxxx"),
        call("c1", '{"command":["ls"]}'),
        output("c1", json.dumps({"output": "a.txt\n", "metadata": {"exit_code": 0}})),
        line("turn_context", {"cwd": "/srv/shop"}),
        event("agent_message", message="One file."),
        event("token_count", info=None),
        said("assistant", "One file."),
    )
    assert reading.shape() == [["context:environment_context", "user", "assistant", "tool"], ["assistant"]]
    answer = reading.events[2]
    assert answer.parts == (
        ReasoningPart(text="**Listing**"),
        ToolCallPart(call_id="c1", name="shell", arguments={"command": ["ls"]}),
    )
    assert reading.events[3].parts == (ToolResultPart(call_id="c1", text="a.txt\n", exit_code=0),)
    assert reading.events[3].source_record == "c1=output"
    assert reading.defects == {}
    assert reading.skipped["encrypted_content"] == 1
    assert sum(reading.skipped[f"event_msg/{role}_repeated"] for role in ("user", "assistant", "reasoning")) == 3
    assert (reading.header.source.source_id, reading.header.source.cwd) == (THREAD, "/srv/shop")
    assert reading.header.title == "list the files"


def test_an_echo_before_its_item_is_dropped(load: Callable[..., Any]) -> None:
    reading = load(meta(), event("user_message", message="go"), event("task_started"), said("user", "go"))
    assert [e.text for e in reading.events] == ["go"]
    assert reading.defects == {}


def test_words_that_only_events_hold_survive(load: Callable[..., Any]) -> None:
    reading = load(
        meta(),
        event("user_message", message="first question", images=[DATA_URL]),
        event("agent_reasoning", text="thinking about it"),
        event("agent_message", message="first answer"),
        event("item_completed", item={"type": "UserMessage", "content": [{"type": "text", "text": "second question"}]}),
        event("item_completed", item={"type": "AgentMessage", "content": [{"type": "Text", "text": "second answer"}]}),
    )
    assert reading.shape() == [["user", "assistant"], ["user", "assistant"]]
    assert [type(part) for part in reading.events[0].parts] == [TextPart, MediaPart]
    assert [e.text for e in reading.events] == ["first question", "first answer", "second question", "second answer"]
    assert reading.defects == {"echo_without_item": 5}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain words", {"text": "plain words"}),
        ('{"output":"no","metadata":{"exit_code":2}}', {"text": "no", "exit_code": 2, "is_error": True}),
        ('{"rows":[1]}', {"text": '{"rows":[1]}'}),
        ("Exit code: 3\nWall time: 0.1 seconds\nOutput:\nboom", {"exit_code": 3, "is_error": True}),
        ("Chunk ID: 7\nWall time: 1\nProcess exited with code 0\nOutput:\nExit code: 9", {"exit_code": 0}),
        ("aborted by user after 2.3s", {"text": "aborted by user after 2.3s", "is_error": True}),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], {"text": "a\nb"}),
        ({"type": "input_text", "text": "a"}, {"text": "a"}),
        ({"content": "denied", "success": False}, {"text": "denied", "is_error": True}),
        ('{"content":[{"type":"text","text":"m"}],"isError":true}', {"text": "m", "is_error": True}),
        ('[{"type":"text","text":"m"}]', {"text": "m"}),
        ("[1, 2]", {"text": "[1, 2]"}),
        (None, {"text": ""}),
        (7, {"text": "7"}),
    ],
)
def test_outputs_in_every_shape(load: Callable[..., Any], value: Any, expected: Row) -> None:
    reading = load(meta(), said("user", "go"), call("c1"), output("c1", value))
    result = reading.events[-1].parts[0]
    found = {"text": result.text, "exit_code": result.exit_code, "is_error": result.is_error}
    assert found == {"text": result.text, "exit_code": None, "is_error": False} | expected
    assert reading.defects == {}


def test_calls_of_every_kind(load: Callable[..., Any]) -> None:
    reading = load(
        meta(),
        said("user", "go"),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c1"),
        item("local_shell_call", call_id="c2", action={"type": "exec", "command": ["ls"]}),
        call("c3", "not json"),
        item("tool_search_call", call_id="c4", arguments={"query": "x"}),
        item("web_search_call", id="w1", action={"type": "search", "query": "wal"}),
        item("custom_tool_call_output", call_id="c1", output="ok"),
        output("c2", "ok"),
        output("c3", "ok"),
        item("tool_search_output", call_id="c4", tools=[{"name": "t"}]),
        item("image_generation_call", id="g1", status="completed", revised_prompt="a cat", result=DATA_URL[22:]),
    )
    calls = [part for e in reading.events for part in e.parts if isinstance(part, ToolCallPart)]
    assert [(part.call_id, part.name, part.arguments) for part in calls] == [
        ("c1", "apply_patch", {"input": "*** Begin Patch"}),
        ("c2", "local_shell", {"type": "exec", "command": ["ls"]}),
        ("c3", "shell", {"input": "not json"}),
        ("c4", "tool_search", {"query": "x"}),
        ("w1", "web_search", {"type": "search", "query": "wal"}),
        ("g1", "image_generation", {"prompt": "a cat"}),
    ]
    assert reading.shape() == [["user", "assistant", "tool", "tool", "tool", "tool"], ["assistant", "tool"]]
    assert list(reading.media.values()) == [PNG]
    assert reading.defects == {"unparsed_arguments": 1}


def test_images_in_messages_and_outputs(load: Callable[..., Any]) -> None:
    content = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "what is it?"},
        {"type": "input_image", "image_url": None},
    ]
    reading = load(
        meta(),
        item("message", role="user", content=content),
        call("c1", name="view_image"),
        output("c1", [{"type": "input_image", "image_url": DATA_URL}]),
    )
    assert [type(part) for part in reading.events[0].parts] == [MediaPart, TextPart]
    assert [type(part) for part in reading.events[2].parts] == [ToolResultPart, MediaPart]
    assert reading.skipped["image_tag"] == 2
    assert reading.skipped["empty_image"] == 1


def test_instructions_and_subagent_talk_are_context(load: Callable[..., Any]) -> None:
    reading = load(
        meta(),
        said("developer", "be brief"),
        said("user", "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>tabs</INSTRUCTIONS>", "go"),
        item(
            "agent_message", author="a", content=[{"type": "input_text", "text": "hi"}, {"type": "encrypted_content"}]
        ),
    )
    assert reading.shape() == [["context:instructions", "context:user_instructions", "user", "context:agent_message"]]


def test_words_to_a_subagent_are_no_persons(load: Callable[..., Any]) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "parent-1", "depth": 1}}}
    reading = load(meta(source=spawn), said("user", "search the tree"), said("assistant", "found"))
    assert reading.shape() == [["context:agent_prompt", "assistant"]]
    assert reading.header.source.parent_source_id == "parent-1"
    assert reading.header.title == "search the tree"


def test_what_follows_an_abort_is_kept_and_counted(load: Callable[..., Any]) -> None:
    """The order trap: call and output of the aborted turn can follow `turn_aborted`."""
    reading = load(
        meta(),
        said("user", "go"),
        event("turn_aborted", reason="interrupted"),
        call("c1"),
        output("c1", "aborted by user after 1.0s"),
        said("user", "again"),
    )
    assert reading.shape() == [["user", "audit:turn_aborted", "assistant", "tool"], ["user"]]
    assert reading.defects == {"after_abort": 2}


def test_an_output_behind_the_next_prompt_is_a_turn_of_its_own(load: Callable[..., Any]) -> None:
    reading = load(
        meta(), said("user", "go"), call("c1"), event("turn_aborted"), said("user", "again"), output("c1", "late")
    )
    assert reading.shape() == [["user", "assistant", "audit:turn_aborted"], ["tool"], ["user"]]
    assert reading.defects == {"late_result": 1}


def test_a_compaction_is_an_imported_summary_and_not_speech(load: Callable[..., Any]) -> None:
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old words"}]}]
    reading = load(
        meta(),
        said("user", "go"),
        said("assistant", "done"),
        line("compacted", {"message": "So far: done.", "replacement_history": history}),
        line("compacted", {"message": "", "replacement_history": history}),
    )
    assert reading.shape() == [["user", "assistant"], ["context:imported_summary", "audit:compact_boundary"]]
    assert reading.skipped["replacement_history"] == 2


def _turn(number: int) -> str:
    return f"019b0000-{number:04x}-7000-8000-000000000000"


def test_a_fork_begins_with_its_own_turns(load: Callable[..., Any]) -> None:
    fork = "019b0000-0005-7000-8000-000000000009"
    reading = load(
        line("session_meta", {"id": fork, "forked_from_id": THREAD, "cwd": "/fork"}),
        meta(),
        line("turn_context", {"turn_id": _turn(1)}),
        said("user", "the parent's question"),
        said("assistant", "the parent's answer"),
        event("task_started", turn_id=_turn(5)),
        line("turn_context", {"turn_id": _turn(5)}),
        said("user", "the fork's question"),
    )
    assert [e.text for e in reading.events] == ["the fork's question"]
    assert (reading.header.source.source_id, reading.header.source.cwd) == (fork, "/fork")
    assert reading.header.source.parent_source_id == THREAD
    assert reading.skipped["forked_history"] == 5
    assert reading.header.title == "the fork's question"


def test_a_fork_without_turn_ids_is_read_whole(load: Callable[..., Any]) -> None:
    reading = load(meta(forked_from_id="older"), line("turn_context", {}), said("user", "whose question?"))
    assert reading.shape() == [["user"]]
    assert reading.defects == {"fork_without_turn_ids": 1}


def test_the_bare_lines_of_2025_are_read(load: Callable[..., Any]) -> None:
    reading = load(
        {"id": THREAD, "timestamp": "2025-06-01T00:00:00Z", "instructions": None, "git": {}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    )
    assert reading.shape() == [["user", "assistant", "tool"]]
    assert reading.header.source.source_id == THREAD
    assert reading.defects == {}


def test_errors_names_and_unknown_kinds(load: Callable[..., Any]) -> None:
    reading = load(
        meta(),
        said("user", "go"),
        event("error", message="stream disconnected"),
        event("thread_name_updated", thread_name="Shop work"),
        event("sings"),
        item("dances"),
        line("flies", {}),
        item("message", role="user", content=[{"type": "smell"}, {"type": "input_text", "text": "more"}]),
    )
    assert reading.shape() == [["user", "error:api_error"], ["user"]]
    assert reading.header.title == "Shop work"
    assert reading.defects == {
        "unknown:event_msg/sings": 1,
        "unknown:response_item/dances": 1,
        "unknown:flies": 1,
        "unknown:content/smell": 1,
    }


def test_a_record_written_twice_is_read_once(load: Callable[..., Any]) -> None:
    twice = said("assistant", "done", id="msg-1")
    reading = load(meta(), said("user", "go"), twice, twice, said("assistant", "other", id="msg-1"))
    assert [part.text for part in reading.events[1].parts] == ["done", "other"]
    assert reading.defects == {"duplicate_record": 1, "reused_record_id": 1}
