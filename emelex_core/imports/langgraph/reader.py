"""Reader of LangGraph's checkpoint store (SQLite): the messages of each thread.

Each checkpoint holds the whole state. Checkpoints form a tree: a thread that was resumed from an earlier one forks.

The module owns these invariants:

- A path is what the checkpoints from the root to a leaf held, each message where it first stood: what the graph removed
  or replaced later stays, and is counted.
- At a fork, the child that came first continues the Session: importing before and after a fork leads to the same.
- Memory holds the messages of one thread, and one checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from emelex_core.imports.conversations.conversation import Conversation, ConversationReader, Message, content_digest
from emelex_core.imports.files.foreign_store import CELL_BYTES_MAX, ForeignStore, load_foreign, opened
from emelex_core.imports.files.lenient import JsonList, JsonObject, as_list, as_object, bounded_id
from emelex_core.imports.langgraph.messages import LangChainReader, is_message
from emelex_core.imports.langgraph.values import Undecodable, decode
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import instant, kind_name

SQL: Final = load_foreign("langgraph")
TABLE: Final = "checkpoints"
COLUMNS: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint"})
_CHANNEL: Final = "messages"
_PLUMBING: Final = ("branch:", "__", "start:")
"""Channels by which LangGraph runs itself."""
_LEAVES_MAX: Final = 1_024
"""Leaves of one thread that are kept; each costs a pass over its checkpoints."""


class LangGraphReader(ConversationReader):
    """Iterates the threads of one store, each namespace of a thread a conversation."""

    def __iter__(self) -> Iterator[Conversation]:
        with opened(self._path) as store:
            threads = list(store.rows(SQL["threads"]))
            for number, (thread_id, namespace, _) in enumerate(threads):
                yield self._conversation(_Thread(store, thread_id, namespace))
                self.done_bytes = self._path.stat().st_size * (number + 1) // len(threads)

    def _conversation(self, thread: _Thread) -> Conversation:
        skipped: Counter[str] = Counter()
        defects: Counter[str] = Counter()
        parts = PartReader(MediaReader(self._media, defects), skipped, defects)
        own = bounded_id(thread.thread_id) or content_digest(str(thread.thread_id))
        inner = bounded_id(thread.namespace)
        return Conversation(
            source_id=own if inner is None else f"{own}/{inner}",
            paths=self._paths(thread, parts),
            parent_source_id=None if inner is None else own,
            skipped=skipped,
            defects=defects,
        )

    def _paths(self, thread: _Thread, parts: PartReader) -> Iterator[Sequence[Message]]:
        """Yield the paths to the leaves, the earliest child of each fork first."""
        tree = _Tree(thread, parts.defects)
        reader = LangChainReader(parts)
        thread.count_writes(tree.leaves, parts)
        seen: set[str] = set()
        for number, leaf in enumerate(tree.leaves):
            if number >= _LEAVES_MAX:
                parts.defects["branch_not_imported"] += 1
                continue
            path: dict[str, Message] = {}
            for checkpoint_id in tree.path(leaf):
                self.pulse()
                state = thread.messages(checkpoint_id, parts, count=checkpoint_id not in seen)
                seen.add(checkpoint_id)
                if state is not None:
                    self._join(path, state, reader, parts, last=checkpoint_id == leaf)
            yield list(path.values())

    @staticmethod
    def _join(
        path: dict[str, Message], state: _State, reader: LangChainReader, parts: PartReader, *, last: bool
    ) -> None:
        """Add to a path what a checkpoint holds beyond those before it."""
        held: set[str] = set()
        for place, value in enumerate(state.messages):
            message = reader.message(value, place=place, occurred_at=state.occurred_at)
            if message is not None:
                held.add(message.id)
                path.setdefault(message.id, message)
        if last and len(held) < len(path):
            parts.skipped["message_no_longer_in_state"] += len(path) - len(held)


class _State:
    """The messages of one checkpoint, and when it was written."""

    def __init__(self, messages: JsonList, occurred_at: int | None) -> None:
        self.messages = messages
        self.occurred_at = occurred_at


class _Thread:
    """One thread and namespace in a store."""

    def __init__(self, store: ForeignStore, thread_id: Any, namespace: Any) -> None:
        self.thread_id = thread_id
        self.namespace = namespace
        self._store = store
        self._where = {"thread_id": thread_id, "checkpoint_ns": namespace}

    def links(self) -> list[tuple[str, str | None]]:
        """Return each checkpoint with its parent, oldest first: their ids are ordered by time."""
        return [(str(own), parent) for own, parent in self._store.rows(SQL["tree"], self._where)]

    def messages(self, checkpoint_id: str, parts: PartReader, *, count: bool) -> _State | None:
        """Return a checkpoint's messages. What is odd in it is counted once, however many paths lead through it."""
        defects = parts.defects if count else Counter[str]()
        parameters = {**self._where, "checkpoint_id": checkpoint_id, "bytes_max": CELL_BYTES_MAX}
        for kind, data in self._store.rows(SQL["checkpoint"], parameters):
            if not isinstance(data, bytes):
                defects["oversized_record"] += 1
                continue
            try:
                state = decode(kind or "json", data, defects)
            except Undecodable:
                defects["undecodable_checkpoint"] += 1
                continue
            channels = as_object(state.get("channel_values")) or {}
            if count:
                self._count_channels(channels, parts)
            return _State(_messages(channels), instant(state.get("ts")))
        return None

    def count_writes(self, leaves: Sequence[str], parts: PartReader) -> None:
        """Count the writes to the messages: those of a leaf are not in any checkpoint yet, the others are."""
        if "writes" not in self._store.tables():
            return
        parameters = {**self._where, "channel": _CHANNEL, "leaves": json.dumps(leaves)}
        for total, pending in self._store.rows(SQL["writes"], parameters):
            if pending:
                parts.skipped["pending_write"] += pending
            if total > pending:
                parts.skipped["write"] += total - pending

    @staticmethod
    def _count_channels(channels: JsonObject, parts: PartReader) -> None:
        for name, value in channels.items():
            if not name.startswith(_PLUMBING) and not _holds_messages(value) and name != _CHANNEL:
                parts.skipped[f"channel/{kind_name(name)}"] += 1


class _Tree:
    """The checkpoints of one thread. Its leaves are in the order of a walk that goes to older children first."""

    def __init__(self, thread: _Thread, defects: Counter[str]) -> None:
        links = thread.links()
        self._parents: dict[str, str | None] = dict(links)
        children: dict[str | None, list[str]] = {}
        for own, parent in links:
            if parent is not None and parent not in self._parents:
                defects["missing_parent"] += 1
                parent = self._parents[own] = None
            children.setdefault(parent, []).append(own)
        self.leaves: list[str] = []
        waiting = list(reversed(children.get(None, [])))
        met: set[str] = set()
        while waiting:
            own = waiting.pop()
            met.add(own)
            below = children.get(own)
            if below:
                waiting += reversed(below)
            else:
                self.leaves.append(own)
        if len(met) < len(links):
            defects["checkpoint_cycle"] += len(links) - len(met)

    def path(self, leaf: str) -> list[str]:
        """Return the checkpoints from a root to a leaf."""
        path: list[str] = []
        own: str | None = leaf
        while own is not None:
            path.append(own)
            own = self._parents[own]
        return path[::-1]


def _messages(channels: JsonObject) -> JsonList:
    """Return the messages of a state: those of the usual channel, else of every channel that holds some."""
    usual = as_list(channels.get(_CHANNEL))
    if usual is not None and (_holds_messages(usual) or not usual):
        return usual
    return [item for value in channels.values() if _holds_messages(value) for item in as_list(value) or []]


def _holds_messages(value: Any) -> bool:
    items = as_list(value)
    return bool(items) and all(is_message(item) for item in items or [])
