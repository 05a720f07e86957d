"""Pack a stream of events into windows by the engine's own tokenizer (behaviours 165, 174, 176).

The module owns these invariants:

- Each event is in exactly one window, in order; a turn is split only where it is larger than a window.
- Sizes are the engine's counts of what a model would be shown of an event: its own words, and tool calls as command and
  outcome. Bytes bound memory, and decide nothing else.
- Events are consumed once; one window is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from emelex_core import limits
from emelex_core.events import EVIDENCE_KINDS, TextPart, ToolCallPart, ToolResultPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text.actions import command_line, command_of, failure_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A leaf of a fold: consecutive events and their size in tokens."""

    events: tuple[StoredEvent, ...]
    tokens: int

    @property
    def first_sequence(self) -> int:
        """The first event's place in the Session."""
        return self.events[0].sequence

    @property
    def last_sequence(self) -> int:
        """The last event's place in the Session."""
        return self.events[-1].sequence


def windows(
    events: Iterable[StoredEvent],
    *,
    tokens_max: int,
    count: Callable[[str], int],
    bytes_max: int = limits.WINDOW_BYTES_MAX,
) -> Iterator[Window]:
    """Yield windows of whole turns of at most `tokens_max` tokens; a larger turn is split between its events."""
    packed: list[StoredEvent] = []
    packed_tokens = packed_bytes = 0
    for turn in _turns(events, bytes_max):
        sizes = [count(source_text(event)) for event in turn]
        turn_bytes = sum(event.payload_bytes for event in turn)
        fits = packed_tokens + sum(sizes) <= tokens_max and packed_bytes + turn_bytes <= bytes_max
        if packed and not fits:
            yield Window(events=tuple(packed), tokens=packed_tokens)
            packed, packed_tokens, packed_bytes = [], 0, 0
        for event, size in zip(turn, sizes, strict=True):
            too_much = packed_tokens + size > tokens_max or packed_bytes + event.payload_bytes > bytes_max
            if packed and too_much:
                yield Window(events=tuple(packed), tokens=packed_tokens)
                packed, packed_tokens, packed_bytes = [], 0, 0
            packed.append(event)
            packed_tokens += size
            packed_bytes += event.payload_bytes
    if packed:
        yield Window(events=tuple(packed), tokens=packed_tokens)


def source_text(event: StoredEvent) -> str:
    """Return what a model would be shown of an event: own words, commands and outcomes."""
    shown: list[str] = []
    for part in event.parts:
        if isinstance(part, TextPart) and event.kind in EVIDENCE_KINDS:
            shown.append(part.text)
        elif isinstance(part, ToolCallPart):
            command = command_of(part)
            shown.append(f"{part.name}: {command_line(command) if command else ''}")
        elif isinstance(part, ToolResultPart):
            shown.append(failure_of(part) or "ok")
    return "\n".join(shown)


def _turns(events: Iterable[StoredEvent], bytes_max: int) -> Iterator[list[StoredEvent]]:
    """Yield the events of each turn; a turn over the byte bound comes in pieces."""
    turn: list[StoredEvent] = []
    size = 0
    for event in events:
        if turn and (event.turn_id != turn[0].turn_id or size + event.payload_bytes > bytes_max):
            yield turn
            turn, size = [], 0
        turn.append(event)
        size += event.payload_bytes
    if turn:
        yield turn
