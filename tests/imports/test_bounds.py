"""Memory that does not grow with the file, and packed files that read like plain ones (K12)."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from emelex_core.events import AssetRef
from emelex_core.imports.reading.recent import Recent
from emelex_core.imports.records import CLAUDE_CODE, CODEX, TranscriptFile
from emelex_core.imports.transcripts import open_transcript


def _no_media(data: bytes, *, declared_media_type: str | None) -> AssetRef:
    raise AssertionError("these transcripts hold no media")


def _peak_bytes(path: Path) -> int:
    """Return the most memory that a reading held at a time, when each turn is let go."""
    file = TranscriptFile(path=path, format=CLAUDE_CODE, packed=False)
    tracemalloc.start()
    try:
        turns = sum(1 for _ in open_transcript(file, _no_media))
        assert turns > 100
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _talk(prompts: int) -> list[dict[str, Any]]:
    """A talk that is long in bytes and not in records, so that the bounded window of ids does not fill up meanwhile."""
    words = "all work and no play " * 1_000
    return [
        {"type": "user", "uuid": f"u{number}", "sessionId": "s", "message": {"content": f"{number} {words}"}}
        for number in range(prompts)
    ]


def test_memory_is_flat_in_the_files_size(write: Callable[..., Path]) -> None:
    small = _peak_bytes(write(*_talk(110), name="small.jsonl"))
    large = _peak_bytes(write(*_talk(1_100), name="large.jsonl"))
    assert large < 1.3 * small


@given(keys=st.lists(st.integers(0, 40), max_size=200))
def test_the_window_remembers_the_newest_and_forgets_in_bounds(keys: list[int]) -> None:
    recent: Recent[int] = Recent(capacity=5)
    for place, key in enumerate(keys):
        recent.put(str(key), place)
    newest = {str(key): place for place, key in enumerate(keys)}
    for key in keys[-5:]:
        assert recent.get(str(key)) == newest[str(key)]
    assert sum(recent.get(str(key)) is not None for key in range(41)) <= 10


def test_a_packed_rollout_gives_the_turns_and_offsets_of_the_plain_one(
    write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    records = [{"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "t"}}]
    for number in range(50):
        content = [{"type": "input_text", "text": f"question {number}"}]
        payload = {"type": "message", "role": "user", "content": content}
        records.append({"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload})
    plain = write(*records, name="rollout-a.jsonl")
    packed = write(name="rollout-b.jsonl.zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    first, second = read(plain, CODEX), read(packed, CODEX)
    assert first.turns == second.turns
    assert first.position == second.position
    middle = first.turns[24].end_offset
    assert read(packed, CODEX, start_offset=middle).turns == first.turns[25:]
    assert json.loads(plain.read_bytes()[middle:].splitlines()[0])["payload"]["content"][0]["text"] == "question 25"
