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
from emelex_core.imports.files.jsonl import prefix_sha256
from emelex_core.imports.records import CLAUDE_CODE, CODEX
from foreign_rows import CLAUDE_STEPS, CODEX_STEPS, claude_lines, codex_lines

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


@given(steps=CLAUDE_STEPS)
@_SETTINGS
def test_claude_code_can_be_gone_on_with_anywhere(
    steps: list[tuple[str, str, int]], write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    _check_every_offset(write(*claude_lines(steps)), CLAUDE_CODE, read)


@given(steps=CODEX_STEPS)
@_SETTINGS
def test_codex_can_be_gone_on_with_anywhere(
    steps: list[tuple[str, int]], write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    _check_every_offset(write(*codex_lines(steps)), CODEX, read)


@given(steps=CLAUDE_STEPS, cut=st.integers(1, 60))
@_SETTINGS
def test_a_growing_file_gives_what_was_missing(
    steps: list[tuple[str, str, int]], cut: int, write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    """A file imported while its agent writes: the second reading starts where the first ended and loses no words."""
    path = write(*claude_lines(steps))
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
