"""Events of one branch, assembled into turns.

The module owns these invariants:

- A turn ends before a person's prompt, and before a new answer once every call of the last one has its result.
- A result whose call stands in an earlier turn becomes a turn of its own, ahead of the turn in hand, and is counted.
- One event fits `EVENT_BYTES_MAX` and `JSON_NODES_MAX`; one turn fits `TURN_BYTES_MAX` and `TURN_EVENTS_MAX`. What is
  larger is split, and counted where it is a turn.
- Each turn knows where its first line begins, so that reading can go on from there until the turn is stored. The pieces
  of a turn that was too large begin where the whole began: what its calls wait for is not known anywhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import orjson
from msgspec.structs import replace

from emelex_core import limits
from emelex_core.events import Event, EventKind, MediaPart, Part, ToolCallPart
from emelex_core.imports.records import Position

_PART_OVERHEAD_BYTES: Final = 1_024
"""Field names, call id, tool name, digest: what a part has beside its text, at most."""
_EVENT_ROOM_BYTES: Final = limits.IMPORT_TEXT_BYTES_MAX + 2 * _PART_OVERHEAD_BYTES
_EVENT_NODES_MAX: Final = limits.JSON_NODES_MAX // 2
_PATIENCE: Final = 1
"""How many further answers a turn takes up while a call of it is still open."""


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A complete turn of a branch, the place where its first line begins, and the offset of its last line."""

    events: tuple[Event, ...]
    branch: str | None
    start: Position
    last_offset: int


class RecordName:
    """Gives the events of one record their ids: the record's own, then `#1`, `#2`, …"""

    __slots__ = ("_base", "_taken")

    def __init__(self, base: str) -> None:
        self._base = base
        self._taken = 0

    def take(self) -> str:
        """Return the next event's id."""
        number = self._taken
        self._taken += 1
        return f"{self._base}#{number}" if number else self._base


@dataclass(slots=True)
class _Answer:
    """An assistant event that may still grow."""

    key: str | None
    record: str
    occurred_at: int | None
    parts: list[Part]
    size: int = 0
    nodes: int = 0
    media: int = 0


class TurnAssembler:
    """Collects one branch's events in file order. Finished turns go to `out`, in the order in which they are stored.

    `here` returns the place where the line in hand begins, and `offset` its offset alone, which costs less.
    """

    def __init__(
        self,
        branch: str | None,
        *,
        out: list[Finished],
        here: Callable[[], Position],
        defects: Counter[str],
        offset: Callable[[], int] | None = None,
    ) -> None:
        self._branch = branch
        self._out = out
        self._here = here
        self._offset = offset or (lambda: here().offset)
        self._defects = defects
        self._unanswered: dict[str, None] = {}
        self._answer: _Answer | None = None
        self.start: Position | None = None
        self._last_offset = 0
        self._events: list[Event] = []
        self._bytes = 0
        self._open: dict[str, None] = {}
        self._closed: set[str] = set()
        self._prompted = self._answered_once = False
        self._key: str | None = None
        self._waited = 0

    def prompt(self, event: Event, *, joins: bool = False) -> None:
        """A person's words: they begin a turn, together with the context before them.

        `joins` is for words said while tools were running: they stay in the turn as long as it waits for results.
        """
        self._close_answer()
        if (self._prompted or self._answered_once) and not (joins and self._open):
            self.finish()
        self._prompted = True
        self._take(event)

    def context(self, event: Event) -> None:
        """Text put before the model: after a complete answer it begins the next turn."""
        self._close_answer()
        if self._answered_once and not self._open:
            self.finish()
        self._take(event)

    def note(self, event: Event) -> None:
        """An audit or error event: it stays with the turn in hand."""
        self._close_answer()
        self._take(event)

    def answer(self, part: Part, *, key: str | None, name: RecordName, occurred_at: int | None) -> None:
        """One part of an assistant's answer. Parts with the same key in a row are one event."""
        if self._answer is None or self._answer.key != key:
            self._close_answer()
            self._next_batch(key)
            self._answer = self._new_answer(key, name, occurred_at)
        size, nodes = part_size(part)
        answer = self._answer
        full = answer.size + size > _EVENT_ROOM_BYTES or answer.nodes + nodes > _EVENT_NODES_MAX
        if answer.parts and (full or answer.media >= limits.ASSETS_PER_EVENT_MAX):
            self._close_answer()
            answer = self._answer = self._new_answer(key, name, occurred_at)
        answer.parts.append(part)
        self._last_offset = self._offset()
        answer.size += size
        answer.nodes += nodes
        answer.media += isinstance(part, MediaPart)
        if isinstance(part, ToolCallPart):
            self._open[part.call_id] = None

    def begin_at(self, place: Position) -> None:
        """The turn in hand holds words of an earlier line: it begins no later than there."""
        if self.start is not None and place.offset < self.start.offset:
            self.start = place

    def end_answer(self) -> None:
        """The model's response is over, although nothing else came yet."""
        self._close_answer()

    def expect_no_result(self, call_id: str) -> None:
        """The call's result is never recorded by this agent: do not wait for it."""
        self._open.pop(call_id, None)

    def first_open(self) -> str | None:
        """Return the oldest call that waits for its result."""
        return next(iter(self._open), None)

    @property
    def waits(self) -> bool:
        """Whether a call still has no result."""
        return bool(self._open)

    def result(self, event: Event, call_id: str) -> None:
        """A tool's result joins its call's turn, or becomes a turn of its own when that turn is over."""
        self._close_answer()
        if call_id in self._open:
            del self._open[call_id]
            self._closed.add(call_id)
        elif call_id in self._closed:
            self._defects["repeated_result"] += 1
        else:
            late = call_id in self._unanswered
            self._unanswered.pop(call_id, None)
            self._defects["late_result" if late else "orphan_result"] += 1
            here = self._here()
            self._out.append(Finished((event,), self._branch, here, here.offset))
            return
        self._take(event)

    def finish(self) -> None:
        """End the turn in hand; its open calls stay without a result."""
        self._close_answer()
        self._unanswered.update(self._open)
        while len(self._unanswered) > limits.TURN_EVENTS_MAX:
            del self._unanswered[next(iter(self._unanswered))]
            self._defects["unanswered_call"] += 1
        self._emit()
        self.start = None
        self._begin()

    def end(self) -> None:
        """The file is over: end the turn in hand and count the calls without a result."""
        self.finish()
        if self._unanswered:
            self._defects["unanswered_call"] += len(self._unanswered)
        self._unanswered.clear()

    def _begin(self) -> None:
        self._open = {}
        self._closed = set()
        self._prompted = self._answered_once = False
        self._key = None
        self._waited = 0

    def _next_batch(self, key: str | None) -> None:
        """Decide whether an answer belongs to the turn in hand: the first does, and more of the same message."""
        if self._answered_once and (key is None or key != self._key):
            self._waited += 1
            if not self._open or self._waited > _PATIENCE:
                self.finish()
        self._answered_once = True
        self._key = key

    def _new_answer(self, key: str | None, name: RecordName, occurred_at: int | None) -> _Answer:
        if self.start is None:
            self.start = self._here()
        return _Answer(key, name.take(), occurred_at, [])

    def _close_answer(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            self._append(
                Event(
                    kind=EventKind.ASSISTANT,
                    parts=tuple(answer.parts),
                    source_record=answer.record,
                    occurred_at=answer.occurred_at,
                ),
                answer.size + _PART_OVERHEAD_BYTES,
            )

    def _take(self, event: Event) -> None:
        """Append an event of the line in hand."""
        self._append(event, event_size(event))
        self._last_offset = self._offset()

    def _append(self, event: Event, size: int) -> None:
        if self._events and (len(self._events) >= limits.TURN_EVENTS_MAX or self._bytes + size > limits.TURN_BYTES_MAX):
            self._defects["split_turn"] += 1
            self._emit()
        if self.start is None:
            self.start = self._here()
        self._events.append(event)
        self._bytes += size

    def _emit(self) -> None:
        if self._events and self.start is not None:
            self._out.append(Finished(tuple(self._events), self._branch, self.start, self._last_offset))
        self._events = []
        self._bytes = 0


def split_event(event: Event, name: RecordName) -> list[Event]:
    """Return the event, or several of its kind that each fit the bounds of one; further ones take further names."""
    if len(event.parts) == 1:
        return [event]
    pieces: list[list[Part]] = [[]]
    size = media = 0
    for part in event.parts:
        more, _ = part_size(part)
        if pieces[-1] and (size + more > _EVENT_ROOM_BYTES or media >= limits.ASSETS_PER_EVENT_MAX):
            pieces.append([])
            size = media = 0
        pieces[-1].append(part)
        size += more
        media += isinstance(part, MediaPart)
    if len(pieces) == 1:
        return [event]
    first, *rest = pieces
    return [
        replace(event, parts=tuple(first)),
        *(replace(event, parts=tuple(piece), source_record=name.take()) for piece in rest),
    ]


def event_size(event: Event) -> int:
    """Bytes that an event's payload has at most."""
    size = _PART_OVERHEAD_BYTES
    for part in event.parts:
        size += part_size(part)[0]
    return size


def part_size(part: Part) -> tuple[int, int]:
    """Bytes that a part has as JSON at most, and its JSON values at most."""
    if isinstance(part, ToolCallPart):
        data = orjson.dumps(part.arguments)
        return len(data) + _PART_OVERHEAD_BYTES, data.count(b",") + data.count(b":") + data.count(b"[") + 8
    if isinstance(part, MediaPart):
        return _PART_OVERHEAD_BYTES, 8
    return len(orjson.dumps(part.text)) + _PART_OVERHEAD_BYTES, 8
