"""What tools, pages and notes state, so that repeating it makes nobody's own word (behaviours 185, 186).

The module owns these invariants:

- Everything but a user's and an assistant's own words is foreign: tool output, context, Summaries, notes.
- Memory is bounded: so many lines that state or order something, from the beginning of each text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from emelex_core.events import EVIDENCE_KINDS, TextPart, ToolResultPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import cues, durable, keys
from emelex_workers.text.cues import Cue

LINES_MAX: Final = 2_000
TEXT_CHARACTERS_MAX: Final = 65_536
UNREAD_CHARACTERS_MAX: Final = 1_048_576
"""Texts that wait to be read; more are read at once, so that memory stays flat."""
REPEATS: Final = 0.8
"""From this share of its words on, a sentence repeats a foreign line."""


@dataclass(slots=True)
class ForeignWords:
    """Collects what others state, event by event in order.

    Texts are only kept until somebody asks: most Sessions state nothing that could repeat them.
    """

    _said: keys.ContainmentIndex = field(default_factory=lambda: keys.ContainmentIndex(REPEATS))
    _unread: list[str] = field(default_factory=list[str])
    _unread_characters: int = 0

    def add(self, event: StoredEvent) -> None:
        """Take in one event; own words are passed over."""
        if event.kind in EVIDENCE_KINDS:
            return
        for part in event.parts:
            if isinstance(part, ToolResultPart | TextPart):
                text = part.text[:TEXT_CHARACTERS_MAX]
                self._unread.append(text)
                self._unread_characters += len(text)
        if self._unread_characters > UNREAD_CHARACTERS_MAX:
            self._read()

    @classmethod
    def of(cls, said: list[keys.Frame]) -> ForeignWords:
        """Take up what was collected before."""
        words = cls()
        for shape in said:
            words._said.add(shape)
        return words

    def said(self) -> list[keys.Frame]:
        """What was collected so far, in order."""
        self._read()
        return list(self._said.frames)

    def holds(self, sentence: str) -> bool:
        """Whether a sentence repeats what was said by others before."""
        self._read()
        return self._said.holds(keys.frame(sentence))

    def _read(self) -> None:
        for text in self._unread:
            for line in text.splitlines():
                if len(self._said) >= LINES_MAX:
                    break
                if durable.CHARACTERS_MIN <= len(line) <= durable.CHARACTERS_MAX and _states(line):
                    self._said.add(keys.frame(line))
        self._unread = []
        self._unread_characters = 0


def _states(line: str) -> bool:
    return durable.may_state(line) or cues.has(line, Cue.INSTRUCTION)
