"""Reader of Gemini CLI's chat recordings: one JSON object a session, or JSON Lines that are replayed.

JSON Lines begin with the session's own fields. A record with an id is a message, and replaces the one with that id;
`$set` changes the session's fields, or all messages at once; `$rewindTo` takes back a message and what follows it.

The module owns these invariants:

- What was rewound is kept: the path up to there comes first, and what was said instead parts from it.
- A new list of messages that only shortens the old one is a rewind. Any other (a compression, a resume) adds what is
  new and removes nothing: the raw history is whole.
- A message's words, its calls and their answers are messages of their own here, since they arrive one after the other.
  A call that is still under way waits, with all that follows it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from emelex_core.imports.conversations.conversation import Conversation, ConversationReader
from emelex_core.imports.files.documents import read_documents
from emelex_core.imports.files.lenient import JsonObject, as_list, as_object, as_word, bounded_id
from emelex_core.imports.gemini.messages import MessageReader
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.reader import clean_title, text_of

LIST_KEY: Final = "messages"
_REWINDS_MAX: Final = 1_024
"""Abandoned paths that are kept; each costs a pass over its messages."""
_KINDS: Final = frozenset({"user", "gemini", "info", "error", "warning"})
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class GeminiReader(ConversationReader):
    """Reads the one conversation of a file."""

    def __iter__(self) -> Iterator[Conversation]:
        log = _Log(self.skipped, self.defects)
        for document in read_documents(self._path, self.defects, list_key=LIST_KEY):
            self.pulse()
            log.take(document.value)
            self.done_bytes = document.end_offset
        if not log.current and not log.abandoned:
            self.skipped["empty_conversation"] += 1
            return
        skipped: Counter[str] = Counter()
        defects: Counter[str] = Counter()
        reader = MessageReader(MediaReader(self._media, defects), skipped, defects)
        yield Conversation(
            source_id=bounded_id(log.fields.get("sessionId")) or self._path.name.partition(".")[0],
            paths=(reader.path(records) for records in (*log.abandoned, log.current)),
            title=clean_title(text_of(log.fields.get("summary"))),
            cwd=_directory(log.fields),
            parent_source_id=self._parent(log.fields),
            skipped=skipped,
            defects=defects,
        )

    def _parent(self, fields: JsonObject) -> str | None:
        """A subagent's recording lies in a folder that is named after its session."""
        folder = self._path.parent.name
        return folder if fields.get("kind") == "subagent" and _UUID.fullmatch(folder) else None


def session_shape(value: JsonObject) -> bool:
    """Whether an object is a recording, or the first line of one."""
    named = isinstance(value.get("sessionId"), str) and ("projectHash" in value or "startTime" in value)
    messages = as_list(value.get(LIST_KEY))
    if messages is None:
        return named and "type" not in value
    return any(_is_message(item) for item in messages[:8]) or (named and not messages)


class _Log:
    """The state that the records of one recording lead to, and the paths that were left on the way."""

    def __init__(self, skipped: Counter[str], defects: Counter[str]) -> None:
        self.fields: JsonObject = {}
        self.current: list[JsonObject] = []
        self.abandoned: list[list[JsonObject]] = []
        self._skipped = skipped
        self._defects = defects
        self._places: dict[str, int] = {}

    def take(self, record: JsonObject) -> None:
        """Replay one record."""
        if "$rewindTo" in record:
            self._rewind(record["$rewindTo"])
        elif "$set" in record:
            self._set(as_object(record["$set"]) or {})
        elif _is_message(record):
            self._put(record)
        elif "sessionId" in record or LIST_KEY in record:
            self._set(record)
        else:
            self._defects["unknown:record"] += 1

    def _set(self, fields: JsonObject) -> None:
        self.fields.update({key: value for key, value in fields.items() if key != LIST_KEY})
        messages = as_list(fields.get(LIST_KEY))
        if messages is None:
            return
        records = [item for item in map(as_object, messages) if item is not None]
        if len(records) != len(messages):
            self._defects["malformed:message"] += len(messages) - len(records)
        ids = [record.get("id") for record in records]
        held = [record.get("id") for record in self.current]
        if ids == held[: len(ids)]:
            self._cut(len(ids))
        elif held != ids[: len(held)]:
            self._skipped["replaced_context"] += 1
        for record in records:
            self._put(record)

    def _put(self, record: JsonObject) -> None:
        """Add a message, or put its newer version in its place."""
        own = as_word(record.get("id"))
        place = self._places.get(own)
        if place is None:
            self._places[own or f"@{len(self.current)}"] = len(self.current)
            self.current.append(record)
        else:
            self.current[place] = record

    def _rewind(self, target: Any) -> None:
        """Take back a message and all behind it; everything when nobody knows it, as the recorder itself does."""
        place = self._places.get(as_word(target))
        if place is None:
            self._defects["unknown_rewind"] += 1
        self._cut(place or 0)

    def _cut(self, size: int) -> None:
        if size == len(self.current):
            return
        self._skipped["rewound_message"] += len(self.current) - size
        if len(self.abandoned) < _REWINDS_MAX:
            self.abandoned.append(list(self.current))
        else:
            self._defects["rewind_not_imported"] += 1
        del self.current[size:]
        self._places = {own: place for own, place in self._places.items() if place < size}


def _is_message(value: Any) -> bool:
    fields = as_object(value) or {}
    return isinstance(fields.get("type"), str) and fields["type"] in _KINDS and "payload" not in fields


def _directory(fields: JsonObject) -> str | None:
    found: Sequence[Any] = as_list(fields.get("directories")) or []
    return text_of(found[0]) if found else None
