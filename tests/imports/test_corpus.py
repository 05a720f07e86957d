"""Real transcripts: what comes out against what an independent count finds in the files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core.events import EventKind, MediaPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.discover import discover
from emelex_core.imports.records import CLAUDE_CODE, CODEX

CORPUS = (Path(__file__).resolve().parents[3] / "shared" / "corpus").resolve()
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")]


def _files(form: str, *, zoo: bool = True) -> list[Path]:
    found = sorted((CORPUS / form).rglob("*.jsonl")) if CORPUS.is_dir() else []
    return [path for path in found if zoo or "zoo" not in path.name]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def _parts(reading: Any) -> Counter[type]:
    return Counter(type(part) for event in reading.events for part in event.parts)


def _blocks(rows: list[dict[str, Any]], role: str, kind: str) -> list[dict[str, Any]]:
    contents = [row["message"]["content"] for row in rows if row.get("type") == role]
    return [block for content in contents if isinstance(content, list) for block in content if block["type"] == kind]


def test_every_transcript_is_found_with_its_format() -> None:
    found = discover([CORPUS])
    assert sorted(file.path for file in found if file.format == CLAUDE_CODE) == _files("claude-code")
    assert sorted(file.path for file in found if file.format == CODEX) == _files("codex")
    assert not found.problems


@pytest.mark.parametrize("path", _files("claude-code", zoo=False), ids=lambda path: path.name[:20])
def test_claude_code_counts(path: Path, read: Callable[..., Any]) -> None:
    rows, reading = _rows(path), read(path, CLAUDE_CODE)
    parts = _parts(reading)
    assert parts[ToolCallPart] == len(_blocks(rows, "assistant", "tool_use"))
    assert parts[ToolResultPart] == len(_blocks(rows, "user", "tool_result"))
    assert parts[ReasoningPart] == sum(bool(b["thinking"]) for b in _blocks(rows, "assistant", "thinking"))
    assert parts[MediaPart] == len(_blocks(rows, "user", "image"))
    words = [b["text"] for b in _blocks(rows, "assistant", "text")]
    spoken = [event for event in reading.events if event.kind is EventKind.ASSISTANT]
    assert [p.text for event in spoken for p in event.parts if isinstance(p, TextPart)] == words
    calls = [p.call_id for e in reading.events for p in e.parts if isinstance(p, ToolCallPart)]
    results = [p.call_id for e in reading.events for p in e.parts if isinstance(p, ToolResultPart)]
    assert sorted(calls) == sorted(results)
    assert reading.defects == {}
    assert reading.position.offset == path.stat().st_size


@pytest.mark.parametrize("path", _files("claude-code", zoo=False), ids=lambda path: path.name[:20])
def test_claude_code_prompts(path: Path, read: Callable[..., Any]) -> None:
    """A person's words: user rows that are neither meta, summary, command echo, result nor a subagent's orders."""

    def own(row: dict[str, Any]) -> bool:
        content = row["message"]["content"]
        text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
        flags = ("isMeta", "isCompactSummary", "isSidechain")
        return bool(text) and not text.startswith("<") and not any(row.get(flag) for flag in flags)

    rows, reading = _rows(path), read(path, CLAUDE_CODE)
    expected = [row["uuid"] for row in rows if row.get("type") == "user" and own(row)]
    assert [event.source_record for event in reading.events if event.kind is EventKind.USER] == expected


@pytest.mark.parametrize("path", _files("claude-code") + _files("codex"), ids=lambda path: path.name[:20])
def test_calls_and_results_share_a_turn(path: Path, read: Callable[..., Any]) -> None:
    reading = read(path, CODEX if "codex" in path.parts else CLAUDE_CODE)
    for turn in reading.turns:
        calls = {p.call_id for e in turn.events for p in e.parts if isinstance(p, ToolCallPart)}
        results = {p.call_id for e in turn.events for p in e.parts if isinstance(p, ToolResultPart)}
        assert results <= calls or len(turn.events) == 1
    assert reading.position.offset == path.stat().st_size


def test_a_codex_rollout(read: Callable[..., Any]) -> None:
    path = _files("codex", zoo=False)[0]
    items = [row["payload"] for row in _rows(path) if row["type"] == "response_item"]
    kinds = Counter(item["type"] for item in items)
    reading = read(path, CODEX)
    parts = _parts(reading)
    assert parts[ToolCallPart] == kinds["function_call"] + kinds["custom_tool_call"] == 18
    assert parts[ToolResultPart] == kinds["function_call_output"] + kinds["custom_tool_call_output"] == 18
    assert parts[ReasoningPart] == kinds["reasoning"] == 20
    assert [event.kind for event in reading.events].count(EventKind.USER) == 3
    codes = [p.exit_code for e in reading.events for p in e.parts if isinstance(p, ToolResultPart)]
    stated = [i["output"] for i in items if i["type"].endswith("_output") and i["output"].startswith("{")]
    assert [code for code in codes if code is not None] == [json.loads(o)["metadata"]["exit_code"] for o in stated]
    assert reading.defects == {}


def test_the_zoos_leave_nothing_unnamed(read: Callable[..., Any]) -> None:
    """The zoos hold nearly every kind; one block of theirs has no meaning that we know."""
    for form, folder in ((CLAUDE_CODE, "claude-code"), (CODEX, "codex")):
        path = next(path for path in _files(folder) if "zoo" in path.name)
        unknown = {name for name in read(path, form).defects if name.startswith("unknown:")}
        assert unknown <= {"unknown:block/fallback"}


def test_a_real_image_reaches_the_store(read: Callable[..., Any]) -> None:
    path = next(path for path in _files("claude-code") if path.name.startswith("image"))
    reading = read(path, CLAUDE_CODE)
    (content,) = reading.media.values()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")


def test_subagents_hang_on_their_session(read: Callable[..., Any]) -> None:
    readings = [read(f.path, f.format, parent=f.parent_source_id) for f in discover([CORPUS / "claude-code"])]
    labels = {event.label for reading in readings for event in reading.events if event.kind is EventKind.TOOL}
    children = [reading.header.source for reading in readings if reading.header.source.parent_source_id]
    assert len(children) == 2
    for child in children:
        parent, _, agent = child.source_id.rpartition("/agent-")
        assert parent == child.parent_source_id
        assert f"agent:{agent}" in labels
