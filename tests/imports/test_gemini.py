"""Gemini CLI's recordings, whole and as lines that are replayed, from samples written here (formats.md, section 5)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from emelex_core.events import MediaPart
from emelex_core.imports.records import GEMINI
from emelex_core.imports.sniff import sniff_format
from foreign import PNG, Talk, library, put, put_lines, read

Row = dict[str, Any]
SESSION = "11111111-2222-4333-8444-555555555555"
HEAD = {"sessionId": SESSION, "projectHash": "0" * 64, "startTime": "2026-01-02T03:04:05.000Z"}


def user(own: str, content: Any, **fields: Any) -> Row:
    return {"id": own, "timestamp": "2026-01-02T03:04:06.000Z", "type": "user", "content": content, **fields}


def says(own: str, content: Any, *calls: Row, **fields: Any) -> Row:
    row = {"id": own, "timestamp": "2026-01-02T03:04:07.000Z", "type": "gemini", "content": content, **fields}
    return {**row, "toolCalls": list(calls)} if calls else row


def call(own: str, status: str = "success", output: Any = "done", name: str = "read_file", **fields: Any) -> Row:
    row: Row = {"id": own, "name": name, "args": {"path": own}, "status": status}
    if output is not None:
        key = "output" if status == "success" else "error"
        row["result"] = [{"functionResponse": {"id": own, "name": name, "response": {key: output}}}]
    return {**row, **fields}


def only(path: Path) -> Talk:
    assert sniff_format(path) == GEMINI
    reading = read(path, GEMINI)
    assert reading.defects == {}
    (talk,) = reading.talks
    return talk


THOUGHT = {"subject": "Plan", "description": "Read it."}
MESSAGES = [
    user("u1", "read it"),
    says("g1", "Reading.", call("c1"), call("c2"), thoughts=[THOUGHT], tokens={"total": 9}, model="m"),
    says("g2", "It says done."),
]
LINES = [
    "user read it",
    "assistant (Plan\nRead it.) + Reading.",
    'assistant read_file[c1]{"path": "c1"}',
    "tool [c1] done",
    'assistant read_file[c2]{"path": "c2"}',
    "tool [c2] done",
    "assistant It says done.",
]


@pytest.mark.parametrize("form", ["whole", "lines", "set", "upserts"])
def test_every_form_gives_the_same_conversation(tmp_path: Path, form: str) -> None:
    """Whole, as lines, set at once, and as lines that are written again while a message grows."""
    growing = [says("g1", "Reading.", thoughts=[THOUGHT]), says("g1", "Reading.", call("c1"), thoughts=[THOUGHT])]
    match form:
        case "whole":
            path = put(tmp_path, "s.json", {**HEAD, "messages": MESSAGES})
        case "lines":
            path = put_lines(tmp_path, "s.jsonl", [HEAD, *MESSAGES])
        case "set":
            path = put_lines(tmp_path, "s.jsonl", [HEAD, {"$set": {"messages": MESSAGES, "summary": "A title"}}])
        case _:
            path = put_lines(tmp_path, "s.jsonl", [HEAD, MESSAGES[0], *growing, *MESSAGES[1:], {"$set": {"x": 1}}])
    talk = only(path)
    assert talk.lines() == LINES
    assert (talk.source_id, talk.title) == (SESSION, "A title" if form == "set" else None)
    assert (talk.defects, talk.skipped) == ({}, {})
    assert talk.events[0].occurred_at == 1_767_323_046_000


def test_importing_at_every_cut_leads_to_the_same_session(tmp_path: Path) -> None:
    """A recording that grows line by line, its messages rewritten on the way, appends only (formats.md, section 6)."""
    rows = [
        HEAD,
        MESSAGES[0],
        says("g1", "Reading.", thoughts=[THOUGHT]),
        says("g1", "Reading.", call("c1", "executing", None), thoughts=[THOUGHT]),
        says("g1", "Reading.", call("c1"), thoughts=[THOUGHT]),
        MESSAGES[1],
        {"$set": {"lastUpdated": "2026-01-02T03:04:09.000Z"}},
        MESSAGES[2],
    ]
    with library(tmp_path) as books:
        for size in range(2, len(rows) + 1):
            path = put_lines(tmp_path, "s.jsonl", rows[:size])
            assert not books.run(path).problems
            assert books.run(path).totals.already == 1
        assert books.all() == {SESSION: LINES}


def test_a_rewind_is_a_branch_whenever_it_is_seen(tmp_path: Path) -> None:
    """What was taken back stays; what was said instead parts from it, as its own Session."""
    rows = [HEAD, *MESSAGES, {"$rewindTo": "g1"}, says("g9", "Not reading."), user("u9", "good")]
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    found: list[dict[str, list[str]]] = []
    for folder, sizes in ((whole, [len(rows)]), (grown, range(2, len(rows) + 1))):
        folder.mkdir()
        with library(folder) as books:
            for size in sizes:
                run = books.run(put_lines(folder, "s.jsonl", rows[:size]))
            found.append(books.all())
            main, branch = run.sessions
            assert branch.parent == main.id
            assert run.totals.skipped["rewound_message"] == 2
    assert found[0] == found[1]
    main_lines, branch_lines = sorted(found[0].values(), key=len, reverse=True)
    assert main_lines == LINES
    assert branch_lines[0].startswith("context:branch_point")
    assert branch_lines[0].endswith("read it")
    assert branch_lines[1:] == ["assistant Not reading.", "user good"]


def test_a_rewind_to_nobody_takes_all_back(tmp_path: Path) -> None:
    """As the recorder itself replays it; it is counted."""
    reading = read(put_lines(tmp_path, "s.jsonl", [HEAD, *MESSAGES, {"$rewindTo": "?"}, user("u7", "new")]), GEMINI)
    (talk,) = reading.talks
    assert [talk.lines(0), talk.lines(1)] == [LINES, ["user new"]]
    assert reading.defects == {"unknown_rewind": 1}


def test_a_compression_removes_nothing_and_a_rollback_is_a_rewind(tmp_path: Path) -> None:
    """A new list that shortens the old one is a rewind; any other adds what is new."""
    compressed = [user("s1", "Summary so far"), MESSAGES[2]]
    talk = only(
        put_lines(tmp_path, "a.jsonl", [HEAD, *MESSAGES, {"$set": {"messages": compressed}}, says("g3", "On.")])
    )
    assert talk.lines() == [*LINES, "user Summary so far", "assistant On."]
    reading = read(put_lines(tmp_path, "b.jsonl", [HEAD, *MESSAGES, {"$set": {"messages": MESSAGES[:1]}}]), GEMINI)
    assert [len(path) for path in reading.talks[0].paths] == [7, 1]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (call("c", "error", "no such file"), "tool [c failed] no such file"),
        (call("c", "cancelled", "User did not allow it"), "tool [c not_executed failed] User did not allow it"),
        (call("c", "cancelled", "User cancelled"), "tool [c unknown_effect failed] User cancelled"),
        (call("c", "success", "Output: x\nExit Code: 127", "run_shell_command"), "exit 127] Output: x\nExit Code: 127"),
        (call("c", "success", "Exit Code: 0", "run_shell_command"), "tool [c exit 0] Exit Code: 0"),
        (call("c", "success", "Exit Code: 1", "read_file"), "tool [c] Exit Code: 1"),
        (call("c", "success", None, resultDisplay="shown"), "tool [c] shown"),
        (call("c", "success", None, result="plain"), "tool [c] plain"),
        (call("c", "success", None, result=[{"text": "part"}]), "tool [c] part"),
        (call("c", "success", None, result=[{"rows": 1}]), 'tool [c] {"rows":1}'),
        (call("c", "success", None, resultDisplay={"fileDiff": "+a"}), 'tool [c] {"fileDiff":"+a"}'),
        (call("c", agentId="a-1"), "tool:agent:a-1 [c] done"),
    ],
)
def test_answers_of_every_kind(tmp_path: Path, row: Row, expected: str) -> None:
    talk = only(put(tmp_path, "s.json", {**HEAD, "messages": [user("u", "go"), says("g", "", row)]}))
    assert talk.lines()[2].endswith(expected)


def test_a_call_under_way_waits_at_the_end_and_is_closed_before_it(tmp_path: Path) -> None:
    running = says("g1", "On it.", call("c1", "executing", None), call("c2"))
    talk = only(put(tmp_path, "s.json", {**HEAD, "messages": [user("u", "go"), running]}))
    assert talk.lines() == ["user go", "assistant On it.", 'assistant read_file[c1]{"path": "c1"}']
    talk = only(put(tmp_path, "s.json", {**HEAD, "messages": [user("u", "go"), running, user("u2", "well?")]}))
    assert "tool:missing_result [c1 unknown_effect failed] [no result of this call was recorded]" in talk.lines()
    assert talk.lines()[-1] == "user well?"
    assert talk.defects == {"unfinished_call": 1, "unanswered_call": 1}


def test_parts_notes_and_odd_records(tmp_path: Path) -> None:
    """Media, expanded prompts, thoughts inside content, notes of the program, and what nobody knows."""
    image = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
    messages = [
        user("u", [{"text": "see @a.png\n--- content ---"}, image], displayContent=[{"text": "see @a.png"}]),
        says("g", [{"text": "hm", "thought": True}, "plain", {"functionCall": {"name": "f"}}, {"hologram": 1}]),
        {"id": "i", "type": "info", "content": "Updated."},
        {"id": "e", "type": "error", "content": "Quota."},
        {"id": "x", "type": "user", "content": [{"fileData": {"fileUri": "https://example.net/a"}}]},
        says("empty", ""),
        7,
    ]
    reading = read(put(tmp_path, "s.json", {**HEAD, "messages": messages}), GEMINI)
    (talk,) = reading.talks
    assert talk.lines() == [
        "context:expanded_prompt see @a.png\n--- content --- + <MediaPart>",
        "user see @a.png",
        "assistant (hm) + plain",
        "audit:info Updated.",
        "error:error Quota.",
        "user [media: https://example.net/a]",
    ]
    assert isinstance(talk.events[0].parts[1], MediaPart)
    assert talk.defects == {"unknown:content/hologram": 1}
    assert talk.skipped == {"content/functionCall": 1, "empty_message": 1}
    assert reading.defects == {"malformed:message": 1}


def test_an_edit_in_place_is_a_branch(tmp_path: Path) -> None:
    """The same id with other words is another message."""
    with library(tmp_path) as books:
        main = books.run(put(tmp_path, "s.json", {**HEAD, "messages": MESSAGES})).sessions[0]
        edited = [*MESSAGES[:2], says("g2", "It says something else.")]
        first, branch = books.run(put(tmp_path, "s.json", {**HEAD, "messages": edited})).sessions
        assert (first.already, first.defects) == (True, {"no_longer_in_source": 1})
        assert branch.parent == main.id
        assert books.lines(branch.id)[-1] == "assistant It says something else."


def test_a_subagent_hangs_on_its_session(tmp_path: Path) -> None:
    """Its recording lies in a folder that is named after the session (formats.md, section 6: sidechains)."""
    parent = put(tmp_path, "chats/session-a.json", {**HEAD, "messages": MESSAGES})
    child = put_lines(
        tmp_path, f"chats/{SESSION}/sub.jsonl", [{**HEAD, "sessionId": "sub-1", "kind": "subagent"}, *MESSAGES]
    )
    with library(tmp_path) as books:
        main = books.run(parent).sessions[0]
        assert books.run(child).sessions[0].parent == main.id


def test_the_same_call_twice_is_one(tmp_path: Path) -> None:
    with library(tmp_path) as books:
        messages = [user("u", "go"), says("g", "", call("c"), call("c"))]
        session = books.run(put(tmp_path, "s.json", {**HEAD, "messages": messages})).sessions[0]
        assert (session.events, session.defects) == (3, {"duplicate_record": 2})


def test_nobody_says_anything(tmp_path: Path) -> None:
    """A recording that was only begun is no failure beside others."""
    put(tmp_path, "a.json", {**HEAD, "sessionId": "a", "messages": []})
    put(tmp_path, "b.json", {**HEAD, "messages": MESSAGES})
    with library(tmp_path) as books:
        run = books.run(tmp_path)
        assert (run.totals.files, run.totals.sessions, run.totals.failed_files) == (2, 1, 0)
        assert run.totals.skipped["file_without_conversation"] == 1
