"""Reader of OpenAI chat JSON: a list of messages, `{messages}`, JSON Lines of either, or request and response logs.

The format has no ids and no times. A conversation is named by the id that its object carries, else by a digest of how
it begins: its instructions and the first words behind them. So a log whose every line repeats the conversation so far
becomes one Session, a file that grew appends, and answers to the same prompt that differ become branches.

The module owns these invariants:

- A message's id is its position and a digest of its content.
- Lines of one conversation are read together, wherever they stand in the file; memory holds one conversation.
"""

from __future__ import annotations

import contextlib
import tempfile
from array import array
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import Any, BinaryIO, Final, cast

from emelex_core import limits
from emelex_core.errors import Invalid
from emelex_core.imports.conversations.conversation import Conversation, ConversationReader, Message, content_digest
from emelex_core.imports.files.documents import Document, is_lines, read_at, read_documents
from emelex_core.imports.files.jsonl import open_unpacked
from emelex_core.imports.files.lenient import (
    JsonList,
    JsonObject,
    as_items,
    as_list,
    as_object,
    as_word,
    bounded_id,
    load_record,
)
from emelex_core.imports.openai.items import ROLES, ItemReader
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import clean_title, text_of

LIST_KEY: Final = "messages"
_IDS: Final = ("conversation_id", "session_id", "thread_id")
_OPENING_DIGESTED: Final = ("role", "type", "content")
_SAYING: Final = frozenset({"content", "tool_calls", "function_call", "refusal", "audio"})


class OpenAIChatReader(ConversationReader):
    """Iterates the conversations of one file, each once."""

    def __iter__(self) -> Iterator[Conversation]:
        if is_lines(self._path):
            yield from self._lines()
            return
        for document in read_documents(self._path, self.defects, list_key=LIST_KEY):
            yield from self._groups(_objects(document.value))
            self.done_bytes = document.end_offset

    def _groups(self, objects: list[JsonObject]) -> Iterator[Conversation]:
        """Yield the conversations of several objects of one document."""
        groups: dict[str, list[JsonObject]] = {}
        for value in objects:
            source_id = self._source_id(value)
            if source_id is not None:
                groups.setdefault(source_id, []).append(value)
        for source_id, group in groups.items():
            yield self._conversation(source_id, iter(group), title=text_of(group[0].get("title")))

    def _lines(self) -> Iterator[Conversation]:
        """Find the lines of each conversation, then read them once more, together."""
        places: dict[str, array[int]] = {}
        bare: list[JsonObject] = []
        for document in read_documents(self._path, self.defects, list_key=LIST_KEY):
            self.pulse()
            if _is_message(document.value):
                self._bound(document)
                bare.append(document.value)
                continue
            source_id = self._source_id(document.value)
            if source_id is not None:
                places.setdefault(source_id, array("q")).append(document.offset)
        if bare:
            yield from self._groups([{LIST_KEY: bare}])
        if not places:
            return
        with _seekable(open_unpacked(self._path)) as stream:
            for source_id, offsets in places.items():
                yield self._conversation(source_id, self._at(stream, offsets), title=None)
                self.done_bytes = offsets[-1]

    def _at(self, stream: BinaryIO, offsets: Sequence[int]) -> Iterator[JsonObject]:
        for offset in offsets:
            # What is odd in a line was counted when it was read first.
            value = read_at(stream, offset, self._path, Counter(), list_key=LIST_KEY)
            if value is not None:
                yield value

    def _bound(self, document: Document) -> None:
        """Lines that are bare messages are one conversation, which has to fit in memory."""
        if document.end_offset > limits.IMPORT_LINE_BYTES_MAX:
            raise Invalid(f"{self._path}: one conversation of more than {limits.IMPORT_LINE_BYTES_MAX} bytes")

    def _source_id(self, value: JsonObject) -> str | None:
        """Return the id of the conversation that an object holds; count what holds none."""
        messages = next(iter(_paths(value, Counter())), None)
        if messages is None:
            self.defects["not_a_conversation"] += 1
            return None
        if _opening(messages) is None:
            self.skipped["empty_conversation"] += 1
            return None
        return next((found for key in _IDS if (found := bounded_id(value.get(key)))), None) or _opening(messages)

    def _conversation(self, source_id: str, values: Iterator[JsonObject], *, title: str | None) -> Conversation:
        skipped: Counter[str] = Counter()
        defects: Counter[str] = Counter()
        parts = PartReader(MediaReader(self._media, defects), skipped, defects)

        def paths() -> Iterator[Sequence[Message]]:
            seen: dict[str, Message | None] = {}
            for value in values:
                for messages in _paths(value, defects):
                    yield _path(messages, parts, seen)

        return Conversation(
            source_id=source_id, paths=paths(), title=clean_title(title), skipped=skipped, defects=defects
        )


def conversation_shape(value: JsonObject) -> bool:
    """Whether an object is a conversation, a log line or a message of this format."""
    if _is_message(value):
        return True
    objects = _objects(value)
    paths = _paths(objects[0], Counter()) if objects else None
    return any(_is_message(item) or _is_item(item) for path in paths or [] for item in path[:1])


def _path(messages: JsonList, parts: PartReader, seen: dict[str, Message | None]) -> list[Message]:
    """Return the messages of one path. A message that an earlier path held at its place is not read again."""
    items = ItemReader(parts)
    found: list[Message] = []
    for place, value in enumerate(messages):
        item = as_object(value)
        if item is None:
            parts.defects["malformed:message"] += 1
            continue
        key = content_digest(place, item)
        if key not in seen:
            seen[key] = items.message(item, place=place)
        message = seen[key]
        if message is not None:
            found.append(message)
    return found


def _paths(value: JsonObject, defects: Counter[str]) -> list[JsonList]:
    """Return an object's message lists: one, or one for each choice of a logged response; none for no conversation."""
    messages = as_list(value.get(LIST_KEY))
    if messages is not None:
        return [messages]
    request = _opened(value.get("request"))
    if request is None:
        return []
    messages = as_list(request.get(LIST_KEY))
    if messages is None:
        given = request.get("input")
        if given is None:
            return []
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else as_items(given)
    answers = _answers(_opened(value.get("response")) or {})
    if not answers:
        defects["response_without_message"] += 1
    return [[*messages, *answer] for answer in answers] or [messages]


def _answers(response: JsonObject) -> list[JsonList]:
    """Return what each choice of a response adds to its conversation."""
    output = as_list(response.get("output"))
    if output:
        return [output]
    choices = [as_object(choice) or {} for choice in as_list(response.get("choices")) or []]
    found = [as_object(choice.get("message")) for choice in choices]
    found += [response] if _is_message(response) else [as_object(response.get("message"))]
    return [[message] for message in found if message is not None]


def _opened(value: Any) -> JsonObject | None:
    """Open one side of a log line: an object, its JSON text, or an envelope with a body."""
    fields = load_record(value.encode("utf-8", "replace"), Counter()) if isinstance(value, str) else as_object(value)
    body = None if fields is None else as_object(fields.get("body"))
    return fields if body is None else body


def _objects(value: JsonObject) -> list[JsonObject]:
    """Return the conversations of a document: itself, or the objects of a list that are conversations."""
    items = as_list(value.get(LIST_KEY)) or []
    objects = [item for item in map(as_object, items) if item is not None]
    if objects and len(value) == 1 and not any(_is_message(item) or _is_item(item) for item in objects):
        return [item for value in objects for item in ([value] if _paths(value, Counter()) else [])]
    return [value]


def _opening(messages: JsonList) -> str | None:
    """Name a conversation by everything up to its first words; None where there are instructions only."""
    opening: list[Any] = []
    for item in map(as_object, messages):
        if item is not None:
            opening.append([item.get(key) for key in _OPENING_DIGESTED])
            if item.get("role") not in ("system", "developer"):
                return content_digest(*opening)
    return None


def _is_message(value: Any) -> bool:
    """Whether a value has a role and something that such a role says; other agents have roles, too."""
    fields = as_object(value) or {}
    return as_word(fields.get("role")) in ROLES and not _SAYING.isdisjoint(fields)


def _is_item(value: Any) -> bool:
    fields = as_object(value) or {}
    return isinstance(fields.get("type"), str) and ("call_id" in fields or fields["type"] == "reasoning")


@contextlib.contextmanager
def _seekable(stream: BinaryIO) -> Generator[BinaryIO]:
    """A stream that can be read from any place: the file, or an unpacked copy that nobody else sees."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(stream)
        if stream.seekable():
            yield stream
            return
        copy = cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(prefix="emelex-import-")))
        while block := stream.read(limits.MIB):
            copy.write(block)
        yield copy
