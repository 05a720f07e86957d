"""Going on from an offset gives what an uninterrupted reading gives, under the same ids (formats.md, section 6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emelex_core.events import Event
from emelex_core.imports.jsonl import prefix_sha256
from emelex_core.imports.records import CLAUDE_CODE, CODEX

Keyed = dict[tuple[str | None, str | None], Event]
_SETTINGS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=120
)


def _keyed(reading: Any, turns: Any = None) -> Keyed:
    kept = reading.turns if turns is None else turns
    return {(turn.branch, event.source_record): event for turn in kept for event in turn.events}


def _check_every_offset(path: Path, form: str, read: Callable[..., Any]) -> None:
    """Whatever was stored up to a turn, reading on from its offset brings exactly what is missing."""
    whole = read(path, form)
    events = _keyed(whole)
    places = [turn.end_offset for turn in whole.turns]
    assert places == sorted(places)
    for number, turn in enumerate(whole.turns, start=1):
        assert prefix_sha256(path, turn.end_offset) == turn.prefix_sha256
        rest = _keyed(read(path, form, start_offset=turn.end_offset))
        stored = _keyed(whole, whole.turns[:number])
        assert stored | rest == events
        assert all(stored.get(key, event) == event for key, event in rest.items())
    assert prefix_sha256(path, whole.position.offset) == whole.position.sha256
    again = read(path, form, start_offset=whole.position.offset)
    assert again.turns == []
    assert again.skipped == {}
    assert again.header == whole.header


_CLAUDE = st.lists(
    st.tuples(
        st.sampled_from(
            ["prompt", "answer", "call", "result", "noise", "command", "torn", "queued", "again", "boundary"]
        ),
        st.sampled_from(["main", "side1", "side2"]),
        st.integers(0, 3),
    ),
    max_size=24,
)


def _claude_lines(steps: list[tuple[str, str, int]]) -> list[bytes]:
    lines: list[bytes] = []
    last: dict[str, str] = {}
    for number, (kind, branch, pick) in enumerate(steps):
        uuid = f"u{number}"
        row: dict[str, Any] = {"type": "user", "uuid": uuid, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
        row |= {"isSidechain": branch != "main", "parentUuid": last.get(branch)}
        match kind:
            case "prompt" | "command":
                words = f"<command-name>/{number}</command-name>" if kind == "command" else f"words {number}"
                row["message"] = {"content": words}
            case "answer" | "call":
                block = {"type": "tool_use", "id": f"{branch}-c{pick}", "name": "Bash", "input": {"n": number}}
                blocks = [{"type": "text", "text": f"answer {number}"}] + ([block] if kind == "call" else [])
                row |= {"type": "assistant", "message": {"id": f"m{pick}", "content": blocks}}
            case "result":
                result = {"type": "tool_result", "tool_use_id": f"{branch}-c{pick}", "content": f"out {number}"}
                row["message"] = {"content": [result]}
            case "queued":
                row |= {"type": "attachment", "attachment": {"type": "queued_command", "prompt": f"queued {number}"}}
            case "boundary":
                row |= {"type": "system", "subtype": "compact_boundary"}
            case "again" if lines:
                lines.append(lines[pick % len(lines)])
                continue
            case "torn":
                lines.append(b'{"type":"user","uuid":"torn')
                continue
            case _:
                row = {"type": "file-history-snapshot", "messageId": uuid}
        if "uuid" in row:
            last[branch] = uuid
        lines.append(json.dumps(row).encode())
    return lines


@given(steps=_CLAUDE)
@_SETTINGS
def test_claude_code_can_be_gone_on_with_anywhere(
    steps: list[tuple[str, str, int]], write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    _check_every_offset(write(*_claude_lines(steps)), CLAUDE_CODE, read)


_CODEX = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "prompt",
                "echo",
                "answer",
                "answer_echo",
                "call",
                "output",
                "context",
                "abort",
                "compacted",
                "again",
                "injected",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=24,
)


def _codex_lines(steps: list[tuple[str, int]]) -> list[bytes]:
    lines = [json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "t"}}).encode()]
    for number, (kind, pick) in enumerate(steps):
        form, payload = "response_item", dict[str, Any]()
        match kind:
            case "prompt" | "injected":
                words = f"prompt {pick} of some length" if kind == "prompt" else "<skill>x</skill>"
                payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
            case "answer":
                words = f"answer {pick} of some length"
                payload = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}
            case "call":
                payload = {
                    "type": "function_call",
                    "name": "x",
                    "arguments": f'{{"n":{number}}}',
                    "call_id": f"c{pick}",
                }
            case "output":
                payload = {"type": "function_call_output", "call_id": f"c{pick}", "output": f"out {number}"}
            case "echo" | "answer_echo":
                role = "user" if kind == "echo" else "agent"
                word = "prompt" if kind == "echo" else "answer"
                form, payload = "event_msg", {"type": f"{role}_message", "message": f"{word} {pick} of some length"}
            case "abort":
                form, payload = "event_msg", {"type": "turn_aborted", "reason": "interrupted"}
            case "compacted":
                form, payload = "compacted", {"message": f"so far {number}"}
            case "again":
                lines.append(lines[pick % len(lines)])
                continue
            case _:
                form = "turn_context"
        lines.append(json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": form, "payload": payload}).encode())
    return lines


@given(steps=_CODEX)
@_SETTINGS
def test_codex_can_be_gone_on_with_anywhere(
    steps: list[tuple[str, int]], write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    _check_every_offset(write(*_codex_lines(steps)), CODEX, read)


@given(steps=_CLAUDE, cut=st.integers(1, 60))
@_SETTINGS
def test_a_growing_file_gives_what_was_missing(
    steps: list[tuple[str, str, int]], cut: int, write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    """A file imported while its agent writes: the second reading starts where the first ended and loses no words."""
    path = write(*_claude_lines(steps))
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut * 20)])
    first = read(path, CLAUDE_CODE)
    path.write_bytes(content)
    second = read(path, CLAUDE_CODE, start_offset=first.position.offset)
    words = sorted(part.text for e in first.events + second.events for part in e.parts if hasattr(part, "text"))
    assert words == sorted(
        part.text for e in read(path, CLAUDE_CODE).events for part in e.parts if hasattr(part, "text")
    )


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "message", "id", "input", "source", "data", "output", "summary"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_ODD_ROW = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "user",
                "assistant",
                "system",
                "attachment",
                "summary",
                "response_item",
                "event_msg",
                "session_meta",
                "compacted",
            ]
        )
    },
    optional=dict.fromkeys(
        [
            "uuid",
            "parentUuid",
            "message",
            "attachment",
            "subtype",
            "isSidechain",
            "timestamp",
            "toolUseResult",
            "sessionId",
            "cwd",
            "error",
            "content",
            "origin",
            "leafUuid",
            "agentId",
            "compactMetadata",
        ],
        _ODD,
    )
    | {
        "payload": st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "role",
                    "content",
                    "call_id",
                    "id",
                    "name",
                    "arguments",
                    "output",
                    "source",
                    "message",
                    "summary",
                    "item",
                    "action",
                    "images",
                    "forked_from_id",
                    "cwd",
                    "turn_id",
                ]
            ),
            _ODD
            | st.sampled_from(
                [
                    "message",
                    "function_call",
                    "function_call_output",
                    "reasoning",
                    "user",
                    "assistant",
                    "user_message",
                    "custom_tool_call",
                    "image_generation_call",
                    "item_completed",
                ]
            ),
            max_size=6,
        )
    },
)


@pytest.mark.parametrize("form", [CLAUDE_CODE, CODEX])
@given(rows=st.lists(_ODD_ROW, max_size=8))
@_SETTINGS
def test_rows_of_any_shape_never_stop_a_reading(
    form: str, rows: list[dict[str, Any]], write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    """K10: whatever stands where an object, a list or a text is expected."""
    reading = read(write(*rows), form)
    assert reading.position.offset == sum(len(json.dumps(row)) + 1 for row in rows)
    assert 1 <= len(reading.header.title.encode()) <= 512
