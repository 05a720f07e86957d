"""OpenAI chat JSON in all its spellings, from samples written here (formats.md, section 3)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from emelex_core.events import MediaPart, TextPart
from emelex_core.imports.records import OPENAI_CHAT
from emelex_core.imports.sniff import sniff_format
from foreign import PNG, Talk, library, put, put_lines, read

Row = dict[str, Any]
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def user(content: Any) -> Row:
    return {"role": "user", "content": content}


def says(content: Any, *calls: Row, **fields: Any) -> Row:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **fields}


def call(call_id: str | None, name: str = "ls", arguments: Any = "{}") -> Row:
    value = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return value if call_id is None else {"id": call_id, **value}


def answer(call_id: str | None, content: Any) -> Row:
    return {"role": "tool", "content": content, **({} if call_id is None else {"tool_call_id": call_id})}


TALK = [
    {"role": "system", "content": "Be brief."},
    user("list"),
    says(None, call("c1", "ls", '{"path":"."}')),
    answer("c1", "a.txt"),
    says("One file."),
]
LINES = [
    "context:instructions Be brief.",
    "user list",
    'assistant ls[c1]{"path": "."}',
    "tool [c1] a.txt",
    "assistant One file.",
]


def only(path: Path) -> Talk:
    reading = read(path, OPENAI_CHAT)
    assert reading.defects == {}
    (talk,) = reading.talks
    return talk


@pytest.mark.parametrize(
    "value",
    [
        TALK,
        {"messages": TALK},
        {"model": "m", "messages": TALK, "temperature": 0},
        [{"messages": TALK}],
        {"request": {"messages": TALK[:-1]}, "response": {"choices": [{"message": TALK[-1]}]}},
        {"request": {"body": {"messages": TALK[:-1]}}, "response": {"body": {"choices": [{"message": TALK[-1]}]}}},
        {"request": json.dumps({"messages": TALK[:-1]}), "response": json.dumps(TALK[-1])},
    ],
    ids=["list", "object", "more keys", "list of objects", "log", "batch log", "log of texts"],
)
@pytest.mark.parametrize("form", ["whole", "indented", "line", "packed line"])
def test_every_spelling_gives_the_same_conversation(tmp_path: Path, value: Any, form: str) -> None:
    """Also as one line, packed, and told apart from other formats by content."""
    match form:
        case "whole":
            path = put(tmp_path, "any.name", value)
        case "indented":
            path = put(tmp_path, "any.name", json.dumps(value, indent=2).encode())
        case "line":
            path = put_lines(tmp_path, "any.name", [value])
        case _:
            path = put(tmp_path, "any.name", zstandard.compress(json.dumps(value).encode() + b"\n"))
    assert sniff_format(path) == OPENAI_CHAT
    talk = only(path)
    assert talk.lines() == LINES
    assert [len(turn) for turn in talk.turns[0]] == [4, 1]
    assert talk.defects == {}


def test_lines_of_messages_are_one_conversation(tmp_path: Path) -> None:
    path = put_lines(tmp_path, "log.jsonl", TALK)
    assert sniff_format(path) == OPENAI_CHAT
    assert only(path).lines() == LINES


def test_a_log_that_repeats_the_conversation_is_one_session(tmp_path: Path) -> None:
    """Each line holds all that came before: it grows one Session, and publishes one job (formats.md, section 6)."""
    rows = [
        {"request": {"messages": TALK[:2]}, "response": {"choices": [{"message": TALK[2]}]}},
        {"request": {"messages": [user("other")]}, "response": {"choices": [{"message": says("yes")}]}},
        {"request": {"messages": TALK[:4]}, "response": {"choices": [{"message": TALK[4]}]}},
    ]
    with library(tmp_path) as books:
        run = books.run(put_lines(tmp_path, "log.jsonl", rows), distill=True)
        assert [session.turns for session in run.sessions] == [2, 1]
        assert books.lines(run.sessions[0].id) == LINES
        assert len({session.distillation for session in run.sessions}) == 2
        assert run.totals.already == 0


def test_choices_and_another_try_are_branches(tmp_path: Path) -> None:
    choices = [{"message": says("one")}, {"message": says("two")}]
    rows = [
        {"request": {"messages": [user("pick")]}, "response": {"choices": choices}},
        {"request": {"messages": [user("pick")]}, "response": {"choices": [{"message": says("three")}]}},
    ]
    with library(tmp_path) as books:
        run = books.run(put_lines(tmp_path, "log.jsonl", rows))
        assert [books.lines(session.id)[-1] for session in run.sessions] == [
            "assistant one",
            "assistant two",
            "assistant three",
        ]
        main, *branches = run.sessions
        assert all(branch.parent == main.id for branch in branches)
        assert all("pick" in books.lines(branch.id)[0] for branch in branches)


def test_a_grown_file_appends_and_an_unchanged_one_changes_nothing(tmp_path: Path) -> None:
    with library(tmp_path) as books:
        for size in range(2, len(TALK) + 1):
            path = put(tmp_path, "talk.json", TALK[:size])
            run = books.run(path)
            assert [session.events for session in run.sessions] == [1 if size > 2 else 2]
            again = books.run(path)
            assert (again.totals.already, again.totals.events) == (1, 0)
        assert list(books.all().values()) == [LINES]


def test_instructions_alone_are_no_conversation(tmp_path: Path) -> None:
    reading = read(put(tmp_path, "t.json", TALK[:1]), OPENAI_CHAT)
    assert (reading.talks, reading.skipped) == ([], {"empty_conversation": 1})


def test_an_edited_history_branches_and_a_shortened_one_is_counted(tmp_path: Path) -> None:
    """Never silently wrong: nothing that is stored changes."""
    edited = [*TALK[:4], says("One text file."), user("thanks")]
    with library(tmp_path) as books:
        main = books.run(put(tmp_path, "talk.json", TALK)).sessions[0]
        first, branch = books.run(put(tmp_path, "talk.json", edited)).sessions
        assert (first.id, first.already, first.defects) == (main.id, True, {"no_longer_in_source": 1})
        assert branch.parent == main.id
        assert books.lines(branch.id)[1:] == ["assistant One text file.", "user thanks"]
        assert books.lines(main.id) == LINES
        short = books.run(put(tmp_path, "talk.json", TALK[:3])).sessions[0]
        assert (short.already, short.defects["no_longer_in_source"]) == (True, 2)
        again = books.run(put(tmp_path, "talk.json", edited))
        assert again.totals.already == 2
        assert again.totals.sessions == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a":1}', {"a": 1}),
        ("", {}),
        ({"a": 1}, {"a": 1}),
        ("{broken", {"input": "{broken"}),
        ("[1]", {"input": "[1]"}),
        (None, {}),
        (7, {"input": 7}),
        ('{"n":1e999}', {"n": "1e999"}),
        ('{"s":"\\ud83d"}', {"s": "\ufffd"}),
        ('{"n":123456789012345678901234567890}', {"n": "123456789012345678901234567890"}),
    ],
)
def test_arguments_of_every_shape(tmp_path: Path, arguments: Any, expected: Row) -> None:
    """What does not parse stands under `input`; what no store could hold is a text (K10)."""
    path = put(tmp_path, "t.json", [user("go"), says(None, call("c", "f", arguments)), answer("c", "ok")])
    part: Any = only(path).events[1].parts[0]
    assert part.arguments == expected


def test_missing_surplus_repeated_and_unnamed_answers(tmp_path: Path) -> None:
    """A call nobody answered has an unknown effect; what answers nothing stays, and all is counted."""
    rows = [
        user("go"),
        says("first", call("c1"), call("c2")),
        answer("c1", "one"),
        answer("c1", "one again"),
        answer("c9", "whose?"),
        says("second", call(None)),
        answer(None, "unnamed"),
        says("third", call("c3")),
        user("stop"),
        says(None, call("c4")),
    ]
    talk = only(put(tmp_path, "t.json", rows))
    assert talk.lines() == [
        "user go",
        "assistant first + ls[c1]{} + ls[c2]{}",
        "tool [c1] one",
        "tool [c1] one again",
        "tool [c9] whose?",
        "tool:missing_result [c2 unknown_effect failed] [no result of this call was recorded]",
        "assistant second + ls[call@5.0]{}",
        "tool [call@5.0] unnamed",
        "assistant third + ls[c3]{}",
        "tool:missing_result [c3 unknown_effect failed] [no result of this call was recorded]",
        "user stop",
        "assistant ls[c4]{}",
    ]
    assert talk.defects == {
        "repeated_result": 1,
        "orphan_result": 1,
        "missing_call_id": 2,
        "unanswered_call": 3,
    }


def test_few_shot_demonstrations_repeat_ids(tmp_path: Path) -> None:
    """The same id in the prompt and in the talk is two calls."""
    demo = [user("demo"), says(None, call("c1", "f")), answer("c1", "shown"), says("done")]
    talk = only(put(tmp_path, "t.json", [*demo, user("real"), says(None, call("c1", "f")), answer("c1", "real")]))
    assert [text for text in talk.lines() if text.startswith("tool")] == ["tool [c1] shown", "tool [c1] real"]
    assert talk.defects == {}


def test_function_calls_of_old(tmp_path: Path) -> None:
    """They have no ids: the name tells, and then the order."""
    rows = [
        user("weather?"),
        says(None, function_call={"name": "weather", "arguments": '{"city":"Bern"}'}),
        {"role": "function", "name": "weather", "content": "rain"},
        says("It rains."),
    ]
    talk = only(put(tmp_path, "t.json", rows))
    assert talk.lines()[1:3] == ['assistant weather[call@1]{"city": "Bern"}', "tool [call@1] rain"]
    assert talk.defects == {}


def test_parts_of_every_kind(tmp_path: Path) -> None:
    """Data URLs become media, addresses and files stay names, what is unknown is counted by its name."""
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image_url", "image_url": "https://example.net/a.png"},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"noise").decode(), "format": "wav"}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_id": "file-1"}},
        {"type": "file", "file": {"file_data": DATA_URL}},
        {"type": "hologram", "data": 1},
        None,
    ]
    reply = says([{"type": "refusal", "refusal": "no"}], reasoning_content="hm", audio={"transcript": "spoken"})
    reading = read(put(tmp_path, "t.json", [user(content), reply]), OPENAI_CHAT)
    (talk,) = reading.talks
    asked, replied = talk.events
    assert [type(part) for part in asked.parts] == [TextPart, MediaPart, TextPart, TextPart, TextPart, MediaPart]
    assert "[media: https://example.net/a.png]" in talk.lines()[0]
    assert "[file: plan.pdf]" in talk.lines()[0]
    assert list(reading.media.values()) == [PNG]
    assert [getattr(part, "text", None) for part in replied.parts] == ["hm", "no", "spoken"]
    assert talk.defects == {"refused_media": 1, "unknown:content/hologram": 1}
    assert talk.skipped == {"file_by_name": 1}


def test_a_tool_answers_with_parts(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": {"url": DATA_URL}}, {"rows": [1]}]
    talk = only(put(tmp_path, "t.json", [user("go"), says(None, call("c")), answer("c", content)]))
    assert talk.lines()[2] == 'tool [c] seen\n{"rows":[1]} + <MediaPart>'


def test_items_of_responses_logs(tmp_path: Path) -> None:
    """Input and output items, with calls that the server ran itself."""
    row = {
        "request": {"input": "find it"},
        "response": {
            "output": [
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "search"}],
                    "encrypted_content": "x",
                },
                {"type": "web_search_call", "id": "ws", "action": {"query": "it"}, "status": "completed"},
                {"type": "mcp_call", "id": "m", "name": "get", "arguments": "{}", "output": "got"},
                {"type": "mcp_call", "id": "e", "name": "get", "arguments": "{}", "error": "refused"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found."}]},
                {"type": "item_reference", "id": "r"},
                {"type": "quantum_call", "id": "q"},
            ]
        },
    }
    talk = only(put_lines(tmp_path, "log.jsonl", [row]))
    assert talk.lines() == [
        "user find it",
        "assistant (search)",
        'assistant web_search[ws]{"query": "it"}',
        "tool:hosted_call [ws] [the server ran it; its result was not recorded]",
        "assistant get[m]{}",
        "tool:hosted_call [m] got",
        "assistant get[e]{}",
        "tool:hosted_call [e failed] refused",
        "assistant Found.",
    ]
    assert talk.defects == {"unknown:item/quantum_call": 1}
    assert talk.skipped == {"encrypted_content": 1, "hosted_call_result": 1, "item/item_reference": 1}


def test_what_is_odd_is_counted_by_name(tmp_path: Path) -> None:
    rows = [user("go"), {"role": "oracle", "content": "?"}, 7, says(None), says("done"), user("   ")]
    talk = only(put(tmp_path, "t.json", rows))
    assert talk.lines() == ["user go", "assistant done"]
    assert talk.defects == {"unknown:role/oracle": 1, "malformed:message": 1}
    assert talk.skipped == {"empty_message": 2}


def test_lines_that_cannot_be_used(tmp_path: Path) -> None:
    """They are counted; an unfinished last line waits until it is whole."""
    rows = [{"messages": TALK}, b"{torn", b'"text"', {"colour": "blue"}, {"messages": []}, {"messages": [user("more")]}]
    path = put_lines(tmp_path, "log.jsonl", [*rows, b'{"messages":[{"role":"us'], end=b"")
    reading = read(path, OPENAI_CHAT)
    assert [talk.lines()[-1] for talk in reading.talks] == ["assistant One file.", "user more"]
    assert reading.defects == {"not_json": 1, "not_object": 1, "not_a_conversation": 1, "unfinished_line": 1}
    assert reading.skipped == {"empty_conversation": 1}


def test_a_conversation_that_names_itself(tmp_path: Path) -> None:
    """Its own id wins over its beginning."""
    rows = [{"session_id": name, "messages": [user("hi"), says(name)]} for name in ("a", "b")]
    assert [talk.source_id for talk in read(put_lines(tmp_path, "l.jsonl", rows), OPENAI_CHAT).talks] == ["a", "b"]
