"""Claude Code rows, kind by kind, from samples written here (formats.md, section 1)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from emelex_core import limits
from emelex_core.events import EventKind, MediaPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.records import CLAUDE_CODE

SESSION = "11111111-2222-4333-8444-555555555555"
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
Row = dict[str, Any]


class Rows:
    """Makes rows with fresh ids and rising times."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = count(1)

    def row(self, kind: str, **fields: Any) -> Row:
        number = next(self._numbers)
        return {
            "type": kind,
            "uuid": f"u{number}",
            "parentUuid": None,
            "sessionId": SESSION,
            "cwd": "/srv/shop",
            "isSidechain": False,
            "timestamp": f"2026-02-03T04:05:{number % 60:02}.000Z",
            **fields,
        }

    def user(self, content: Any, **fields: Any) -> Row:
        return self.row("user", message={"role": "user", "content": content}, **fields)

    def assistant(self, message: str, *blocks: Row, **fields: Any) -> Row:
        model = fields.pop("model", "claude-test")
        content = list(blocks)
        return self.row("assistant", message={"id": message, "model": model, "content": content}, **fields)

    def result(self, call: str, content: Any, **fields: Any) -> Row:
        error = {"is_error": True} if fields.pop("is_error", False) else {}
        return self.user([{"type": "tool_result", "tool_use_id": call, "content": content, **error}], **fields)


def text(words: str) -> Row:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "Bash", **arguments: Any) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def image(data: bytes = PNG) -> Row:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def load(write: Callable[..., Path], read: Callable[..., Any]) -> Callable[..., Any]:
    def load_rows(*records: Any, name: str = f"{SESSION}.jsonl", **options: Any) -> Any:
        return read(write(*records, name=name), CLAUDE_CODE, **options)

    return load_rows


def test_a_prompt_its_answer_and_the_results_are_one_turn(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("list the files"),
        rows.assistant("m1", {"type": "thinking", "thinking": "ls will do", "signature": "c2ln"}),
        rows.row("file-history-snapshot"),
        rows.assistant("m1", text("I list them."), call("c1", command="ls")),
        rows.result("c1", "a.txt\n"),
        rows.assistant("m2", text("One file.")),
    )
    assert reading.shape() == [["user", "assistant", "tool"], ["assistant"]]
    answer = reading.events[1]
    assert [type(part) for part in answer.parts] == [ReasoningPart, TextPart, ToolCallPart]
    assert answer.source_record == "u2"
    assert answer.occurred_at == 1770091502000
    assert reading.events[2].parts == (ToolResultPart(call_id="c1", text="a.txt\n"),)
    assert reading.skipped == {"signature": 1, "file-history-snapshot": 1}
    assert reading.defects == {}


def test_the_header_names_session_directory_and_title(rows: Rows, load: Callable[..., Any]) -> None:
    header = load(rows.user("  fix\tthe parser,\nplease " + "x" * 100)).header
    assert (header.source.source, header.source.source_id, header.source.cwd) == (CLAUDE_CODE, SESSION, "/srv/shop")
    assert header.title.startswith("fix the parser, please xxx")
    assert len(header.title) == 80


def test_a_title_set_in_the_transcript_wins(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.row("ai-title", aiTitle="Parser work"), rows.user("fix it"), rows.row("custom-title", customTitle="Mine")
    )
    assert reading.header.title == "Mine"


def test_a_summary_names_the_session_only_when_its_leaf_stands_here(rows: Rows, load: Callable[..., Any]) -> None:
    foreign = {"type": "summary", "summary": "Another talk", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "This talk", "leafUuid": "u1"}
    reading = load(foreign, own, rows.user("hello"))
    assert reading.header.title == "This talk"
    assert reading.skipped == {"summary": 2, "summary_of_other_session": 1}


def test_parallel_calls_of_one_message_are_one_turn(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("go"),
        rows.assistant("m1", call("c1")),
        rows.assistant("m1", call("c2")),
        rows.result("c2", "second"),
        rows.result("c1", "first"),
        rows.assistant("m1", call("c3")),
        rows.result("c3", "third"),
        rows.assistant("m2", text("done")),
    )
    assert reading.shape() == [["user", "assistant", "tool", "tool", "assistant", "tool"], ["assistant"]]


def test_context_before_a_prompt_belongs_to_its_turn(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("one"),
        rows.assistant("m1", text("1")),
        rows.user("Caveat: The messages below were generated by the user while running local commands.", isMeta=True),
        rows.user("<command-name>/model</command-name>"),
        rows.user("<local-command-stdout></local-command-stdout>"),
        rows.user("two"),
    )
    assert reading.shape() == [
        ["user", "assistant"],
        ["context:caveat", "context:command", "context:local_command", "user"],
    ]


def test_only_words_of_a_person_are_user_events(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("skill text", isMeta=True),
        rows.user("a notice", origin={"kind": "task-notification"}),
        rows.user("for the screen", isVisibleInTranscriptOnly=True),
        rows.user([text("do it"), text("<system-reminder>todo list is empty</system-reminder>")]),
        rows.user("[Request interrupted by user]"),
    )
    assert reading.shape() == [
        [
            "context:meta",
            "context:notification",
            "context:transcript_only",
            "context:system_reminder",
            "user",
            "audit:interrupted",
        ]
    ]
    assert [event.source_record for event in reading.events[3:5]] == ["u4", "u4#1"]


def test_queued_words_join_the_turn_that_waits_for_results(rows: Rows, load: Callable[..., Any]) -> None:
    queued = {"type": "queued_command", "prompt": "also the tests", "commandMode": "prompt"}
    notice = {"type": "queued_command", "prompt": "task ended", "commandMode": "task-notification"}
    reading = load(
        rows.user("go"),
        rows.assistant("m1", call("c1")),
        rows.row("attachment", attachment=queued),
        rows.row("attachment", attachment=notice),
        rows.result("c1", "ok"),
    )
    assert reading.shape() == [["user", "assistant", "user", "context:queued_command", "tool"]]


def test_a_compaction_is_a_note_and_an_imported_summary(rows: Rows, load: Callable[..., Any]) -> None:
    boundary = {"trigger": "manual", "preTokens": 21558}
    reading = load(
        rows.user("one"),
        rows.assistant("m1", text("1")),
        rows.row("system", subtype="compact_boundary", content="Conversation compacted", compactMetadata=boundary),
        rows.user("All that was said.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        rows.user("two"),
    )
    assert reading.shape() == [
        ["user", "assistant", "audit:compact_boundary"],
        ["context:imported_summary", "user"],
    ]
    assert "manual, 21558 tokens" in reading.events[2].text


def test_errors_and_synthetic_answers_are_not_the_models_words(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("go"),
        rows.row("system", subtype="api_error", error={"status": 529}),
        rows.assistant("m1", text("API Error: overloaded"), isApiErrorMessage=True, model="<synthetic>"),
        rows.assistant("m2", text("No response requested."), model="<synthetic>"),
    )
    assert reading.shape() == [["user", "error:api_error", "error:api_error", "audit:synthetic"]]
    assert reading.events[1].text == "status 529"


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        ("fine", False, ToolResultPart(call_id="c1", text="fine")),
        (
            "Exit code 127\nno such",
            True,
            ToolResultPart(call_id="c1", text="Exit code 127\nno such", is_error=True, exit_code=127),
        ),
        ("Exit code 1 is what it printed", False, ToolResultPart(call_id="c1", text="Exit code 1 is what it printed")),
        (None, False, ToolResultPart(call_id="c1", text="")),
        ([text("a"), text("b")], False, ToolResultPart(call_id="c1", text="a\nb")),
        ([{"type": "tool_reference", "tool_name": "Task"}], False, ToolResultPart(call_id="c1", text="[tool: Task]")),
        (
            "The user doesn't want to proceed with this tool use. The tool use was rejected.",
            True,
            ToolResultPart(
                call_id="c1",
                text="The user doesn't want to proceed with this tool use. The tool use was rejected.",
                is_error=True,
                status="not_executed",
            ),
        ),
    ],
)
def test_results_in_every_shape(
    rows: Rows, load: Callable[..., Any], content: Any, is_error: bool, expected: ToolResultPart
) -> None:
    reading = load(rows.user("go"), rows.assistant("m1", call("c1")), rows.result("c1", content, is_error=is_error))
    assert reading.events[-1].parts == (expected,)
    assert not reading.defects


def test_a_subagents_answer_keeps_the_link_and_drops_the_repetition(rows: Rows, load: Callable[..., Any]) -> None:
    structured = {"agentId": "a4ca75", "content": "x" * 1000}
    reading = load(
        rows.user("go"),
        rows.assistant("m1", call("c1", "Task")),
        rows.result("c1", "report", toolUseResult=structured),
    )
    assert reading.events[-1].label == "agent:a4ca75"
    assert reading.skipped == {"toolUseResult": 1}


def test_images_become_media_in_messages_and_results(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user([image(), text("what is this?")]),
        rows.assistant("m1", call("c1", "Read")),
        rows.result("c1", [image(), text("shown")]),
    )
    prompt, _, result = reading.events
    assert [type(part) for part in prompt.parts] == [MediaPart, TextPart]
    assert [type(part) for part in result.parts] == [ToolResultPart, MediaPart]
    assert list(reading.media.values()) == [PNG]


@pytest.mark.parametrize(
    ("source", "defect"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "%%%"}, "undecodable_media"),
        ({"type": "base64", "media_type": "image/png"}, "undecodable_media"),
        ({"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}, "refused_media"),
        (None, "undecodable_media"),
    ],
)
def test_an_image_that_cannot_be_stored_leaves_a_label(
    rows: Rows, load: Callable[..., Any], source: Any, defect: str
) -> None:
    reading = load(rows.user([{"type": "image", "source": source}, text("look")]))
    placeholder, words = reading.events[0].parts
    assert placeholder.text.startswith("[media not imported: ")
    assert words.text == "look"
    assert reading.defects == {defect: 1}


def test_a_remote_image_stays_an_address(rows: Rows, load: Callable[..., Any]) -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    assert load(rows.user([block])).events[0].text == "[media: https://example.org/a.png]"


def test_hook_output_before_the_model_is_context_and_the_rest_noise(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.row(
            "attachment", attachment={"type": "hook_success", "hookEvent": "SessionStart", "content": "registered"}
        ),
        rows.row("attachment", attachment={"type": "hook_additional_context", "content": ["use tabs"]}),
        rows.user("go"),
        rows.row("attachment", attachment={"type": "hook_success", "hookEvent": "PostToolUse", "content": "busy"}),
        rows.row("attachment", attachment={"type": "skill_listing", "content": "many"}),
    )
    assert reading.shape() == [["context:hook", "context:hook", "user"]]
    assert reading.skipped == {"attachment/hook_success": 1, "attachment/skill_listing": 1}


def test_unknown_kinds_are_counted_by_name_and_never_stop(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.row("hologram"),
        rows.row("system", subtype="teleport"),
        rows.row("attachment", attachment={"type": "scent"}),
        rows.assistant("m1", {"type": "dance"}, text("kept")),
        rows.user([{"type": "wave"}, text("kept too")]),
        {"type": 7},
        {},
        rows.row("user", message="not an object"),
    )
    assert [event.text for event in reading.events] == ["kept", "kept too"]
    assert reading.defects == {
        "unknown:hologram": 1,
        "unknown:system/teleport": 1,
        "unknown:attachment/scent": 1,
        "unknown:block/dance": 1,
        "unknown:block/wave": 1,
        "unknown:?": 2,
        "malformed:user": 1,
    }


def test_repeated_records_are_skipped_and_reused_ids_kept(rows: Rows, load: Callable[..., Any]) -> None:
    first = rows.user("one")
    again = {**first, "timestamp": "2026-02-03T05:00:00.000Z", "parentUuid": "u9"}
    other = rows.user("two", uuid=first["uuid"])
    reading = load(first, again, other)
    assert [event.text for event in reading.events] == ["one", "two"]
    assert reading.defects == {"duplicate_record": 1, "reused_record_id": 1}


def test_inline_sidechains_become_child_sessions(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("go"),
        rows.assistant("m1", call("t1", "Task")),
        rows.user("search the tree", isSidechain=True),
        rows.assistant("s1", call("c1"), isSidechain=True, parentUuid="u3"),
        rows.result("c1", "found", isSidechain=True, parentUuid="u4"),
        rows.assistant("s2", text("it is there"), isSidechain=True, parentUuid="u5"),
        rows.result("t1", "it is there"),
        rows.user("next"),
    )
    branch = f"{SESSION}/sidechain-u3"
    child = [turn for turn in reading.turns if turn.branch == branch]
    assert [[event.kind.value for event in turn.events] for turn in child] == [
        ["context", "assistant", "tool"],
        ["assistant"],
    ]
    assert child[0].events[0].label == "agent_prompt"
    main = [turn for turn in reading.turns if turn.branch is None]
    assert [[event.kind.value for event in turn.events] for turn in main] == [["user", "assistant", "tool"], ["user"]]
    header = reading.child_headers[branch]
    assert (header.source.source_id, header.source.parent_source_id, header.title) == (
        branch,
        SESSION,
        "search the tree",
    )


@pytest.mark.parametrize(
    ("name", "parent", "source_id"),
    [
        (f"{SESSION}/subagents/agent-a1.jsonl", SESSION, f"{SESSION}/agent-a1"),
        ("agent-a1.jsonl", None, f"{SESSION}/agent-a1"),
    ],
)
def test_a_subagents_file_is_a_child_session(
    rows: Rows, load: Callable[..., Any], name: str, parent: str | None, source_id: str
) -> None:
    reading = load(
        rows.user("You are alice. Never push.", isSidechain=True, agentId="a1"),
        rows.assistant("m1", text("Understood."), isSidechain=True, agentId="a1"),
        name=name,
        parent=parent,
    )
    assert reading.shape() == [["context:agent_prompt", "assistant"]]
    assert reading.turns[0].branch is None
    assert (reading.header.source.source_id, reading.header.source.parent_source_id) == (source_id, SESSION)
    assert reading.header.title == "You are alice. Never push."


def test_calls_without_a_result_are_counted_and_none_is_invented(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(rows.user("go"), rows.assistant("m1", call("c1"), call("c2")), rows.result("c1", "ok"))
    assert reading.shape() == [["user", "assistant", "tool"]]
    assert reading.defects == {"unanswered_call": 1}


def test_a_late_result_is_a_turn_of_its_own(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(
        rows.user("go"),
        rows.assistant("m1", call("c1")),
        rows.user("stop"),
        rows.result("c1", "late"),
        rows.user("so?"),
    )
    assert reading.shape() == [["user", "assistant"], ["tool"], ["user"], ["user"]]
    assert reading.defects == {"late_result": 1}


def test_ids_that_are_missing_or_endless_are_bounded(rows: Rows, load: Callable[..., Any]) -> None:
    long = "i" * 10_000
    unnamed = {"type": "tool_use", "name": "Bash", "input": "ls"}
    reading = load(
        rows.user("go", uuid=None),
        rows.assistant("m1", call(long, long), uuid=long),
        rows.result(long, "ok", uuid=None),
        rows.assistant("m2", unnamed),
        rows.user([{"type": "tool_result", "content": "listed"}]),
    )
    assert reading.shape() == [["user", "assistant", "tool"], ["assistant", "tool"]]
    parts = [part for event in reading.events for part in event.parts]
    assert all(len(part.call_id.encode()) <= 256 for part in parts if isinstance(part, (ToolCallPart, ToolResultPart)))
    assert reading.events[3].parts[0].arguments == {"input": "ls"}
    assert all(len(event.source_record) <= 160 for event in reading.events)
    assert reading.defects == {"missing_call_id": 2}


def test_an_output_above_the_event_cap_is_cut_and_said(rows: Rows, load: Callable[..., Any]) -> None:
    """Behaviour 37."""
    reading = load(rows.user("go"), rows.assistant("m1", call("c1")), rows.result("c1", "\né" * (2 * limits.MIB)))
    result = reading.events[-1].parts[0]
    assert isinstance(result, ToolResultPart)
    assert result.text.endswith(f"of {6 * limits.MIB} bytes left out]")
    assert reading.defects == {"cut_result": 1}


def test_a_turn_above_its_caps_is_split_and_counted(rows: Rows, load: Callable[..., Any]) -> None:
    """Behaviour 37: at most 16 MiB and 4,096 events a turn."""
    calls = [call(f"c{number}") for number in range(6)]
    results = [rows.result(f"c{number}", "x" * (3 * limits.MIB)) for number in range(6)]
    reading = load(rows.user("go"), rows.assistant("m1", *calls), *results)
    assert reading.defects == {"split_turn": 1}
    assert [len(turn.events) for turn in reading.turns] == [7, 1]
    many = [rows.user("<local-command-stdout>x</local-command-stdout>") for _ in range(limits.TURN_EVENTS_MAX + 5)]
    assert [len(turn.events) for turn in load(*many).turns] == [limits.TURN_EVENTS_MAX, 5]


def test_big_integers_in_arguments_are_exact(rows: Rows, load: Callable[..., Any]) -> None:
    reading = load(rows.user("go"), rows.assistant("m1", call("c1", small=2**63, big=2**70)))
    part = reading.events[1].parts[0]
    assert isinstance(part, ToolCallPart)
    assert part.arguments == {"small": 2**63, "big": str(2**70)}


def test_hosted_tools_answer_inside_the_message(rows: Rows, load: Callable[..., Any]) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "sqlite wal"}}
    found = [{"type": "web_search_result", "title": "WAL", "url": "https://example.org/wal"}]
    answer = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": found}
    reading = load(rows.user("go"), rows.assistant("m1", search, answer, text("It is a log.")))
    assert [event.kind for event in reading.events] == [
        EventKind.USER,
        EventKind.ASSISTANT,
        EventKind.TOOL,
        EventKind.ASSISTANT,
    ]
    assert len(reading.turns) == 1
    assert [event.source_record for event in reading.events[1:]] == ["u2", "u2#1", "u2#2"]
