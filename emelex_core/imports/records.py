"""What a reader of foreign transcripts yields. The readers and the store side meet here and nowhere else.

The module owns these invariants:

- A turn is one atomic unit of append: a prompt with its first answer and that answer's tool results, or a later answer
  with its tool results. It never ends between a call and a result that the file holds next to it.
- `ImportedTurn.end_offset` is a safe place to go on from: everything before it is in this turn or an earlier one. It
  never decreases. Where branches interleave it lags, and reading on from it yields some turns again, with the same
  `source_record` ids.
- A `GrowingReader` also says what is settled: turns that no growth of the file changes (ADR 0012).
- `source_record` is unique within its Session and the same at every reading of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from emelex_core.assets.media import Readable
from emelex_core.events import AssetRef, Event
from emelex_core.sessions.records import ImportSource

CLAUDE_CODE: Final = "claude-code"
CODEX: Final = "codex"
GEMINI: Final = "gemini"
OPENAI_CHAT: Final = "openai-chat"
CHATGPT: Final = "chatgpt"
OPENAI_AGENTS: Final = "openai-agents"
LANGGRAPH: Final = "langgraph"
CONVERSATION_FORMATS: Final = (GEMINI, OPENAI_CHAT, CHATGPT, OPENAI_AGENTS, LANGGRAPH)
"""Formats without a byte offset to go on from; see `conversation`."""
FORMATS: Final = (CLAUDE_CODE, CODEX, *CONVERSATION_FORMATS)
"""The formats that a reader exists for, as the command line spells them."""


class MediaSink(Protocol):
    """Stores media bytes, given whole or as a source to read them from, and returns the reference to them.

    Raises: Invalid for bytes that are not acceptable; the reader puts a labelled placeholder in their place. What the
    source raises passes through.
    """

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptFile:
    """One transcript on disk.

    `packed` tells zstd from plain text, by content. `parent_source_id` is the parent's id where the layout names it
    (`<session>/subagents/…`); readers also find it in the records.
    """

    path: Path
    format: str
    packed: bool
    parent_source_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader:
    """Which Session a transcript becomes. `title` is one non-blank line of at most 80 characters and 512 bytes."""

    source: ImportSource
    title: str


class Position(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place in the unpacked stream: bytes before it, and the 32-byte SHA-256 of exactly those bytes."""

    offset: int
    sha256: bytes


class ImportedTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One unit of append.

    `branch` is None for the main Session, else the source id of a child Session found inside the same file.
    `end_offset` counts bytes of the unpacked stream that are consumed once this turn is stored, and `prefix_sha256` is
    the digest of those bytes. `start_offset` is where the turn's first line begins. `ended` is false for a turn that
    only the end of the file ended: a file that grows may go on with it.
    """

    events: tuple[Event, ...]
    branch: str | None
    end_offset: int
    prefix_sha256: bytes
    start_offset: int = 0
    ended: bool = True


class TranscriptReader(Protocol):
    """Iterates the turns of one transcript, once.

    `header` and `child_headers` are complete enough to create a Session when its first turn arrives; their titles can
    improve until the end. `skipped` counts known noise by name and `defects` counts what was odd, cut or lost by name.
    `position` is how far the file was read: after the last turn it lies behind trailing noise, so that an importer that
    stores it reads nothing twice.
    """

    skipped: Counter[str]
    defects: Counter[str]

    @property
    def header(self) -> SessionHeader:
        """The main Session, as far as it is known."""
        ...

    @property
    def child_headers(self) -> dict[str, SessionHeader]:
        """Sessions inside the same file, by branch."""
        ...

    @property
    def position(self) -> Position:
        """How far the file was read."""
        ...

    def __iter__(self) -> Iterator[ImportedTurn]: ...


@runtime_checkable
class GrowingReader(TranscriptReader, Protocol):
    """Reads a file to which its agent only adds.

    What it yields is a function of the lines before: reading more of the file changes no turn but those that the file's
    end ended. Read from `settled`, a file yields exactly the turns that begin there or later, in the same order.
    """

    @property
    def settled(self) -> Position:
        """Up to where the file is settled: every turn that begins before has been yielded, and lies wholly before."""
        ...
