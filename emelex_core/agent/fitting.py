"""A history cut to a model's context: by whole turns, the oldest first, and never silently.

The module owns these invariants:

- What is kept is a Summary that opens the history, then a suffix of whole turns. A turn begins with a user's words.
- Where turns are left out, a note stands in their place, for the model and for the person.
- Only when the newest turn alone is too long, answers of its tools are shortened, the longest first; each says so.
- Sizes are the engine's own counts (behaviour 176).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from emelex_core.agent.wording import shortened
from emelex_core.errors import PermanentFailure
from emelex_core.events import Event, EventKind, Part, ToolResultPart

RESULT_BYTES_MIN: Final = 256
"""Shorter answers of tools are not shortened any more."""

ROOM_HINT: Final = "use --no-tools, a smaller --max-tokens, or a model with a larger context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The events that fit. `left_out` counts turns, `shortened` answers of tools."""

    events: tuple[Event, ...]
    left_out: int
    shortened: int

    @property
    def note(self) -> str | None:
        """What is missing, in one line; None for nothing."""
        said: list[str] = []
        if self.left_out:
            said.append(f"{_counted(self.left_out, 'earlier turn')} left out")
        if self.shortened:
            said.append(f"{_counted(self.shortened, 'tool result')} shortened")
        them = "it does" if self.left_out + self.shortened == 1 else "they do"
        return f"{' and '.join(said)}, because {them} not fit the model's context" if said else None


def fit(
    events: Sequence[Event], *, measure: Callable[[tuple[Event, ...]], int], weigh: Callable[[Event], int], tokens: int
) -> Fitted:
    """Keep what fits into so many tokens. `measure` counts a whole prompt exactly, `weigh` one event by itself.

    Raises: PermanentFailure when not even the newest turn fits with its tools' answers shortened.
    """
    opening, turns = _turns(events)
    kept = _suffix(turns, weigh, tokens - sum(map(weigh, opening)))
    while True:
        fitted = Fitted(events=_joined(opening, turns, kept), left_out=len(turns) - kept, shortened=0)
        if measure(fitted.events) <= tokens:
            return fitted
        if kept <= 1:
            return _squeezed(fitted, measure, tokens)
        kept -= 1


def _turns(events: Sequence[Event]) -> tuple[list[Event], list[list[Event]]]:
    """Split a history into a Summary that opens it, and turns; what stands before the first user's words is a turn."""
    opening = [event for event in events[:1] if event.kind is EventKind.SUMMARY]
    turns: list[list[Event]] = []
    for event in events[len(opening) :]:
        starts = event.kind is EventKind.USER or (event.kind is EventKind.CONTEXT and _answered(turns))
        if starts and not _only_context(turns):
            turns.append([])
        if not turns:
            turns.append([])
        turns[-1].append(event)
    return opening, turns


def _answered(turns: list[list[Event]]) -> bool:
    """Whether context that comes now belongs to the next turn."""
    return bool(turns) and turns[-1][-1].kind is EventKind.ASSISTANT


def _only_context(turns: list[list[Event]]) -> bool:
    """Whether the last turn has nothing but context so far, which belongs to the words that follow."""
    return bool(turns) and all(event.kind is EventKind.CONTEXT for event in turns[-1])


def _suffix(turns: list[list[Event]], weigh: Callable[[Event], int], tokens: int) -> int:
    """How many turns can fit at most; counting stops where they do not, so that a long history costs no more."""
    for kept, turn in enumerate(reversed(turns)):
        tokens -= sum(map(weigh, turn))
        if tokens < 0:
            return max(kept, 1)
    return len(turns)


def _joined(opening: list[Event], turns: list[list[Event]], kept: int) -> tuple[Event, ...]:
    left_out = len(turns) - kept
    note = [_note(left_out)] if left_out else []
    return (*opening, *note, *(event for turn in turns[left_out:] for event in turn))


def _note(left_out: int) -> Event:
    turns = "1 earlier turn is" if left_out == 1 else f"{left_out} earlier turns are"
    return Event.context(f"[{turns} left out here for want of room in the model's context.]", label="left_out")


def _counted(count: int, noun: str) -> str:
    return f"1 {noun} was" if count == 1 else f"{count} {noun}s were"


def _squeezed(fitted: Fitted, measure: Callable[[tuple[Event, ...]], int], tokens: int) -> Fitted:
    """Halve the longest tool answer until the newest turn fits."""
    events = list(fitted.events)
    changed: set[int] = set()
    while (size := measure(tuple(events))) > tokens:
        longest = max(range(len(events)), key=lambda index: _result_bytes(events[index]), default=None)
        if longest is None or _result_bytes(events[longest]) <= RESULT_BYTES_MIN:
            raise PermanentFailure(
                f"the newest turn alone has {size} tokens, and {tokens} are what the model's context leaves for it",
                hint=ROOM_HINT,
            )
        events[longest] = _halved(events[longest])
        changed.add(longest)
    return Fitted(events=tuple(events), left_out=fitted.left_out, shortened=len(changed))


def _result_bytes(event: Event) -> int:
    return max((len(part.text.encode()) for part in event.parts if isinstance(part, ToolResultPart)), default=0)


def _halved(event: Event) -> Event:
    bound = max(_result_bytes(event) // 2, RESULT_BYTES_MIN)
    parts: list[Part] = [
        msgspec.structs.replace(part, text=shortened(part.text, bound)) if isinstance(part, ToolResultPart) else part
        for part in event.parts
    ]
    return Event(kind=event.kind, parts=tuple(parts), label=event.label)
