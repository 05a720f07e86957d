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
REPEATS: Final = 0.8
"""From this share of its words on, a sentence repeats a foreign line."""


@dataclass(slots=True)
class ForeignWords:
    """Collects what others state, event by event in order."""

    _said: list[keys.Frame] = field(default_factory=list[keys.Frame])

    def add(self, event: StoredEvent) -> None:
        """Take in one event; own words are passed over."""
        if event.kind in EVIDENCE_KINDS:
            return
        for part in event.parts:
            text = part.text if isinstance(part, ToolResultPart | TextPart) else ""
            for line in text[:TEXT_CHARACTERS_MAX].splitlines():
                if len(self._said) >= LINES_MAX:
                    return
                if durable.CHARACTERS_MIN <= len(line) <= durable.CHARACTERS_MAX and _states(line):
                    self._said.append(keys.frame(line))

    def holds(self, sentence: str) -> bool:
        """Whether a sentence repeats what was said by others before."""
        shape = keys.frame(sentence)
        return any(keys.containment(shape, said) >= REPEATS for said in self._said)


def _states(line: str) -> bool:
    return durable.may_state(line) or cues.has(line, Cue.INSTRUCTION)
