"""Reader of ChatGPT's data export: a ZIP, or one of the conversations files in it.

A conversation is a tree of nodes. What its owner sees is the path from the root to `current_node`; every other leaf is
an answer that was regenerated or a prompt that was edited.

The module owns these invariants:

- The visible path comes first. A first child is never taken for the visible one.
- Files of any size are read conversation by conversation; one that is broken or too large costs only itself.
- A file that is cut or damaged is refused before anything of it is stored.
- What `conversations.json` may be is the same for a file, a member of a ZIP and a shard: a list, an object that holds
  the list, or one conversation.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from emelex_core.assets.media import Readable
from emelex_core.errors import Storage
from emelex_core.imports.chatgpt.content import ContentReader, is_answer, is_call
from emelex_core.imports.chatgpt.files import ExportFiles, FolderExport, ZipExport, is_zip
from emelex_core.imports.conversations.conversation import Conversation, ConversationReader, Message, message_id
from emelex_core.imports.files.json_array import elements
from emelex_core.imports.files.jsonl import open_unpacked
from emelex_core.imports.files.lenient import (
    JsonObject,
    as_list,
    as_object,
    as_word,
    bounded_id,
    load_exact,
    load_record,
)
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import clean_title, text_of

_LEAVES_MAX: Final = 1_024
"""Leaves of one conversation that are kept; each costs a pass along its path."""
_INSTANT_MS_MAX: Final = 2**53


class ChatGPTReader(ConversationReader):
    """Iterates the conversations of one export or conversations file."""

    def __iter__(self) -> Iterator[Conversation]:
        for stream, _, what in self._streams():
            # One look over all of it: what is cut or damaged is known before anything of it is stored.
            for _ in elements(stream, Counter(), what=what):
                self.pulse()
        for stream, files, what in self._streams():
            for end, data in elements(stream, self.defects, what=what):
                value = self._read(data)
                if value is not None:
                    yield self._conversation(value, files)
                self.done_bytes = min(max(self.done_bytes, end), self._path.stat().st_size)

    def _streams(self) -> Iterator[tuple[Readable, ExportFiles, str]]:
        """Open what holds conversations, one after the other, with the files that they may point to."""
        if not is_zip(self._path):
            with open_unpacked(self._path) as stream:
                yield _Reading(stream, self._path), FolderExport(self._path.parent), str(self._path)
            return
        with contextlib.closing(ZipExport(self._path)) as export:
            for member in export.conversations:
                with export.member(member) as stream:
                    yield stream, export, f"{self._path}: {member.filename[:80]!r} in it"

    def _read(self, data: bytes) -> JsonObject | None:
        """Return a conversation's object, or None for what is none."""
        value = load_record(data, self.defects)
        if value is None:
            return None
        if as_object(value.get("mapping")) is None:
            self.defects["not_a_conversation"] += 1
            return None
        return load_exact(data, value, self.defects)

    def _conversation(self, value: JsonObject, files: ExportFiles) -> Conversation:
        mapping = as_object(value.get("mapping")) or {}
        skipped: Counter[str] = Counter()
        defects: Counter[str] = Counter()
        tree = Tree(mapping, as_word(value.get("current_node")), defects)
        parts = PartReader(MediaReader(self._media, defects), skipped, defects)
        own = bounded_id(value.get("conversation_id")) or bounded_id(value.get("id"))
        return Conversation(
            source_id=own or bounded_id(next(iter(mapping), None)) or "?",
            paths=_paths(tree, ContentReader(parts, files), parts),
            title=clean_title(text_of(value.get("title"))),
            skipped=skipped,
            defects=defects,
        )


class Tree:
    """The nodes of one conversation, and the paths through them."""

    def __init__(self, mapping: JsonObject, current: str, defects: Counter[str]) -> None:
        self.nodes = {key: node for key, node in ((key, as_object(node)) for key, node in mapping.items()) if node}
        if len(self.nodes) < len(mapping):
            defects["malformed:node"] += len(mapping) - len(self.nodes)
        self._defects = defects
        self._parents = self._find_parents()
        self.leaves = self._find_leaves(current)

    def path(self, leaf: str) -> list[str]:
        """Return the nodes from a root to a leaf."""
        path: dict[str, None] = {}
        own: str | None = leaf
        while own is not None and own not in path:
            path[own] = None
            own = self._parents[own]
        if own is not None:
            self._defects["node_cycle"] += 1
        return list(path)[::-1]

    def message(self, key: str) -> JsonObject | None:
        """Return a node's message; roots have none."""
        return as_object(self.nodes[key].get("message"))

    def _find_parents(self) -> dict[str, str | None]:
        """A node's own word for its parent counts; where that says nothing, the parent's list of children does."""
        listed: dict[str, str] = {}
        for key, node in self.nodes.items():
            for child in as_list(node.get("children")) or []:
                if isinstance(child, str):
                    listed.setdefault(child, key)
        parents: dict[str, str | None] = {}
        for key, node in self.nodes.items():
            parent = node.get("parent")
            found = parent if isinstance(parent, str) and parent in self.nodes else listed.get(key)
            if isinstance(parent, str) and parent not in self.nodes:
                self._defects["missing_parent"] += 1
            parents[key] = found
        return parents

    def _find_leaves(self, current: str) -> list[str]:
        """Return the leaves, the visible one first."""
        inner = set(self._parents.values())
        leaves = [key for key in self.nodes if key not in inner]
        if current not in self.nodes:
            if not leaves:
                return list(self.nodes)[-1:]
            self._defects["no_current_node"] += 1
            current = max(leaves, key=lambda key: (_seconds(self.message(key)), leaves.index(key)))
        return [current, *(leaf for leaf in leaves if leaf != current)]


def _paths(tree: Tree, reader: ContentReader, parts: PartReader) -> Iterator[Sequence[Message]]:
    read: dict[str, Message | None] = {}
    for number, leaf in enumerate(tree.leaves):
        if number >= _LEAVES_MAX:
            parts.defects["branch_not_imported"] += 1
            continue
        keys = tree.path(leaf)
        calls = _calls(tree, keys)
        for place, key in enumerate(keys):
            if key not in read:
                read[key] = _message(tree.message(key), key, calls[key], reader, parts, place)
        yield [message for key in keys if (message := read[key]) is not None]


def _message(
    message: JsonObject | None, key: str, call_id: str, reader: ContentReader, parts: PartReader, place: int
) -> Message | None:
    """Its times, status and metadata change without anybody saying anything: they are no part of its id."""
    if message is None:
        parts.skipped["node_without_message"] += 1
        return None
    read = reader.said(message, call_id=call_id)
    said = [said for said in read if said.parts]
    if not said:
        if read:
            parts.skipped["empty_message"] += 1
        return None
    author = as_object(message.get("author")) or {}
    content = [author.get("role"), author.get("name"), message.get("recipient"), message.get("content")]
    return Message(id=message_id(key, content, place=place), said=tuple(said), occurred_at=_instant(message))


def _calls(tree: Tree, keys: list[str]) -> dict[str, str]:
    """Return the call that each node of a path makes or answers: its own, or the last one of its tool's name."""
    calls: dict[str, str] = {}
    made: dict[str, str] = {}
    last = ""
    for key in keys:
        message = tree.message(key) or {}
        own = bounded_id(key) or "?"
        if is_call(message):
            made[as_word(message.get("recipient")).partition(".")[0]] = last = own
        elif is_answer(message):
            name = as_word((as_object(message.get("author")) or {}).get("name")).partition(".")[0]
            own = made.get(name) or last or own
        calls[key] = own
    return calls


def _seconds(message: JsonObject | None) -> float:
    value: Any = (message or {}).get("create_time")
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else 0.0


def _instant(message: JsonObject) -> int | None:
    seconds = _seconds(message)
    return int(seconds * 1000) if 0 < seconds * 1000 < _INSTANT_MS_MAX else None


class _Reading:
    """A file that is read, with its failures named."""

    def __init__(self, stream: Readable, path: Any) -> None:
        self._stream = stream
        self._path = path

    def read(self, size: int, /) -> bytes:
        """Return the next bytes. Raises: Storage."""
        try:
            return self._stream.read(size)
        except OSError as error:
            raise Storage(f"{self._path}: reading failed: {error.strerror or error}") from error
