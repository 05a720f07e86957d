"""Foreign conversations in tests: reading a file of them to its end, and importing files into a real store."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emelex_core import limits
from emelex_core.assets.media import Readable
from emelex_core.errors import EmelexError, Invalid
from emelex_core.events import AssetRef, Event, Part, TextPart, ToolCallPart, ToolResultPart, encode_payload
from emelex_core.imports.conversations.conversation import Message
from emelex_core.imports.conversations.playing import Player
from emelex_core.imports.conversations.readers import open_conversations
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.records import TranscriptFile
from emelex_core.imports.report import ImportedSession, ImportTotals
from emelex_core.sessions.records import StoredEvent
from emelex_core.store import MemoryStore

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10


@dataclass(kw_only=True)
class Talk:
    """One conversation that was read: the turns of each path, and what was counted."""

    source_id: str
    title: str | None
    cwd: str | None
    parent: str | None
    paths: list[list[Message]]
    turns: list[list[tuple[Event, ...]]]
    skipped: dict[str, int]
    defects: dict[str, int]

    @property
    def events(self) -> list[Event]:
        """The events of the main path."""
        return [event for turn in self.turns[0] for event in turn]

    def lines(self, path: int = 0) -> list[str]:
        """The events of a path, each in one line."""
        return [line(event) for turn in self.turns[path] for event in turn]


@dataclass(kw_only=True)
class Reading:
    """A file of conversations read to its end. Every event has passed the entry gate."""

    talks: list[Talk]
    skipped: dict[str, int]
    defects: dict[str, int]
    media: dict[str, bytes] = field(default_factory=dict[str, bytes])


class MemorySink:
    """Keeps media bytes by digest; refuses what does not begin like a PNG, as a real store sniffs content."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        del declared_media_type
        if not isinstance(data, bytes):
            source = data
            data = b"".join(iter(lambda: source.read(limits.IO_BUFFER_BYTES), b""))
        if not data.startswith(b"\x89PNG"):
            raise Invalid("the bytes are no image")
        digest = hashlib.sha256(data).hexdigest()
        self.stored[digest] = data
        return AssetRef(sha256=digest, kind="image", media_type="image/png", size=len(data))


def read(path: Path, form: str) -> Reading:
    """Read a file to its end, checking every event at the entry gate and every name for uniqueness in its path."""
    sink = MemorySink()
    reader = open_conversations(TranscriptFile(path=path, format=form, packed=False), sink)
    talks = [_talk(conversation) for conversation in reader]
    return Reading(talks=talks, skipped=dict(reader.skipped), defects=dict(reader.defects), media=sink.stored)


def _talk(conversation: Any) -> Talk:
    paths = [list(path) for path in conversation.paths]
    turns: list[list[tuple[Event, ...]]] = []
    played: Counter[str] = Counter()
    for path in paths:
        played = Counter()
        turns.append(list(Player(played).turns(path)))
        names = [event.source_record for turn in turns[-1] for event in turn]
        assert len(set(names)) == len(names)
        for event in (event for turn in turns[-1] for event in turn):
            encode_payload(event)
    return Talk(
        source_id=conversation.source_id,
        title=conversation.title,
        cwd=conversation.cwd,
        parent=conversation.parent_source_id,
        paths=paths,
        turns=turns,
        skipped=dict(conversation.skipped),
        defects=dict(conversation.defects + played),
    )


def line(event: Event | StoredEvent) -> str:
    """An event in one line: its kind, its label, and its parts."""
    kind = event.kind.value if event.label is None else f"{event.kind.value}:{event.label}"
    return f"{kind} {' + '.join(_part(part) for part in event.parts)}"


def _part(part: Part) -> str:
    match part:
        case TextPart(text=text):
            return text
        case ToolCallPart(call_id=call_id, name=name, arguments=arguments):
            return f"{name}[{call_id}]{json.dumps(arguments, ensure_ascii=False)}"
        case ToolResultPart(call_id=call_id, text=text):
            odd = "" if part.status == "completed" else f" {part.status}"
            failed = " failed" if part.is_error else ""
            code = "" if part.exit_code is None else f" exit {part.exit_code}"
            return f"[{call_id}{odd}{failed}{code}] {text}"
        case _:
            return f"<{type(part).__name__}>" if not hasattr(part, "text") else f"({getattr(part, 'text', '')})"


@dataclass(kw_only=True)
class Run:
    """What one import told."""

    sessions: list[ImportedSession]
    totals: ImportTotals
    problems: list[EmelexError]


class Library:
    """A store into which files are imported."""

    def __init__(self, store: MemoryStore, workspace: Path) -> None:
        self.store = store
        self._workspace = workspace

    def run(
        self,
        *paths: Path,
        format: str = "auto",  # noqa: A002 - the command's own word
        dry_run: bool = False,
        distill: bool = False,
        again: bool = False,
    ) -> Run:
        """Import files."""
        sessions: list[ImportedSession] = []
        problems: list[EmelexError] = []
        totals = import_transcripts(
            self.store,
            paths,
            format=format,
            workspace=self._workspace,
            dry_run=dry_run,
            distill=distill,
            again=again,
            listen=sessions.append,
            problem=lambda path, error: problems.append(error),
        )
        return Run(sessions=sessions, totals=totals, problems=problems)

    def lines(self, session_id: str) -> list[str]:
        """The events of a Session, each in one line."""
        return [line(event) for event in self.store.iterate_events(self.store.get_session(session_id))]

    def all(self) -> dict[str, list[str]]:
        """Every imported Session's events, by its source id."""
        found: dict[str, list[str]] = {}
        for session in self.store.list_sessions():
            assert session.source_id is not None
            found[session.source_id] = self.lines(session.id)
        return found


@contextmanager
def library(folder: Path) -> Generator[Library]:
    """A new store below a folder, with a workspace beside it."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    with MemoryStore.open(folder / "home", create=True) as store:
        yield Library(store, workspace)


def put(folder: Path, name: str, value: Any) -> Path:
    """Write a JSON file, or raw bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def put_lines(folder: Path, name: str, values: Sequence[Any], *, end: bytes = b"\n") -> Path:
    """Write JSON Lines; a value may be raw bytes."""
    lines = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return put(folder, name, b"\n".join(lines) + (end if lines else b""))
