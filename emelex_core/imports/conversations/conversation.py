"""Conversations as other agents keep them: messages with ids, and the paths that lead through them.

These formats have no byte offset to go on from: a file is rewritten whole, or is a database. A conversation is a set of
paths from its first message to a last one; where they part, somebody edited, regenerated, rewound or forked.

The module owns these invariants:

- A message's id is its own id, or its position where the format has none, together with a digest of its content. The
  same id therefore always means the same words; a message that was edited in place is another message.
- An id never ends like the number that `RecordName` appends, so that an event's name tells its message.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from emelex_core.events import EventKind, Part
from emelex_core.imports.records import MediaSink, TranscriptFile

_NATIVE_CHARACTERS_MAX: Final = 128
_DIGEST_CHARACTERS: Final = 16
_NUMBER: Final = re.compile(r"#[0-9]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One utterance of a message. A tool's answer begins with its `ToolResultPart`; no other kind holds one.

    `answers` is set for an answer that names no call: it goes to the oldest open call of the tool of that name, else to
    the oldest of all; its part's own id stands where none is open.
    """

    kind: EventKind
    parts: tuple[Part, ...]
    label: str | None = None
    answers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message that says something. `occurred_at` is the instant that it states, in milliseconds."""

    id: str
    said: tuple[Said, ...]
    occurred_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation. The first path is the main one; each is a list of messages from the first to a last.

    `title` is None where the source names none. `skipped` and `defects` count what was noise and what was odd in it,
    by name; both are complete once the paths have been gone through.
    """

    source_id: str
    paths: Iterable[Sequence[Message]]
    title: str | None = None
    cwd: str | None = None
    parent_source_id: str | None = None
    skipped: Counter[str] = field(default_factory=Counter[str])
    defects: Counter[str] = field(default_factory=Counter[str])


class ConversationReader(ABC):
    """Iterates the conversations of one file, once.

    `skipped` and `defects` count what belongs to no conversation; `done_bytes` is how much of the file was read.
    `pulse` is called now and then while nothing is yielded; what it raises ends the reading. Iterating raises NotFound,
    Invalid and Storage.
    """

    def __init__(self, file: TranscriptFile, media: MediaSink) -> None:
        self.skipped: Counter[str] = Counter()
        self.defects: Counter[str] = Counter()
        self.done_bytes = 0
        self.pulse: Callable[[], None] = lambda: None
        self._path = file.path
        self._media = media

    @abstractmethod
    def __iter__(self) -> Iterator[Conversation]:
        """Read the file."""


def message_id(native: Any, content: Any, *, place: int) -> str:
    """Return the id of a message: the format's own, or its place, with a digest of what the message holds."""
    own = isinstance(native, str) and bool(native) and native.isprintable()
    base = str(native)[:_NATIVE_CHARACTERS_MAX] if own else f"@{place}"
    return f"{base}~{content_digest(native if own else None, content)}"


def content_digest(*values: Any) -> str:
    """Return a short digest of JSON values; the order of keys does not matter."""
    try:
        data = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Nested too deep for the writer, or an integer beyond 64 bits.
        data = repr(values).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


def message_of(source_record: str) -> str:
    """Return the id of the message that an event's name belongs to."""
    return _NUMBER.sub("", source_record)
