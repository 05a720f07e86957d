"""Shared by the tests of import: writing a transcript, and reading one to its end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from emelex_core import limits
from emelex_core.assets.media import Readable
from emelex_core.errors import Invalid
from emelex_core.events import AssetRef, Event, encode_payload
from emelex_core.imports.records import ImportedTurn, Position, SessionHeader, TranscriptFile
from emelex_core.imports.transcripts import open_transcript


class MemorySink:
    """Keeps media bytes by digest; refuses what does not begin like a PNG, as a real store sniffs content."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        data = data if isinstance(data, bytes) else b"".join(iter(lambda: data.read(limits.IO_BUFFER_BYTES), b""))
        if not data.startswith(b"\x89PNG"):
            raise Invalid("the bytes are no image")
        digest = hashlib.sha256(data).hexdigest()
        self.stored[digest] = data
        return AssetRef(sha256=digest, kind="image", media_type=declared_media_type or "image/png", size=len(data))


@dataclass(kw_only=True)
class Reading:
    """A transcript read to its end. Every event has passed the entry gate."""

    turns: list[ImportedTurn]
    header: SessionHeader
    child_headers: dict[str, SessionHeader]
    skipped: dict[str, int]
    defects: dict[str, int]
    position: Position
    media: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def events(self) -> list[Event]:
        return [event for turn in self.turns for event in turn.events]

    def shape(self) -> list[list[str]]:
        """Kinds of each turn's events, with their labels."""
        return [
            [event.kind.value if event.label is None else f"{event.kind.value}:{event.label}" for event in turn.events]
            for turn in self.turns
        ]


Read = Callable[..., Reading]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write records (objects, or raw bytes) as lines of a file below a temporary directory."""

    def write_lines(*records: Any, name: str = "transcript.jsonl", end: bytes = b"\n") -> Path:
        lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n".join(lines) + (end if lines else b""))
        return path

    return write_lines


@pytest.fixture
def read() -> Read:
    """Read a transcript to its end, checking every event at the entry gate and every source record for uniqueness."""

    def read_file(path: Path, form: str, *, start_offset: int = 0, parent: str | None = None) -> Reading:
        sink = MemorySink()
        file = TranscriptFile(path=path, format=form, packed=False, parent_source_id=parent)
        reader = open_transcript(file, sink, start_offset=start_offset)
        turns = list(reader)
        seen: set[tuple[str | None, str | None]] = set()
        for turn in turns:
            assert turn.events
            for event in turn.events:
                encode_payload(event)
                assert event.source_record is not None
                assert (turn.branch, event.source_record) not in seen
                seen.add((turn.branch, event.source_record))
        return Reading(
            turns=turns,
            header=reader.header,
            child_headers=reader.child_headers,
            skipped=dict(reader.skipped),
            defects=dict(reader.defects),
            position=reader.position,
            media=sink.stored,
        )

    return read_file
