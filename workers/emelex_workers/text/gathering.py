"""Reading a Session for what is worth remembering, in bounded memory.

The module owns these invariants (behaviours 177, 185, 186):

- Evidence is a user's or an assistant's own words, never tool output, context, reasoning, a Summary or recalled
  Knowledge.
- An assistant's sentence that repeats what a tool or a page said is that source's word: it is set aside for review, and
  an order in it is dropped. One that repeats recalled Knowledge, a Summary or a note is no news at all.
- What a person takes back is taken back, and what is said to be no longer so is not remembered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from emelex_core import limits
from emelex_core.events import EVIDENCE_KINDS, EventKind, TextPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import cues, durable, keys, lines, secrets
from emelex_workers.text.active import Active, ended_words, is_about
from emelex_workers.text.cues import Cue
from emelex_workers.text.durable import Durable
from emelex_workers.text.foreign import ForeignWords
from emelex_workers.text.lines import PROSE, Span

POOL_MAX: Final = 512
"""Sentences held while reading; beyond it the lowest-ranked go, counted."""
QUARANTINED_MAX: Final = 16
"""Sentences of others that are shown for review; a page may hold thousands."""
ENDED_MAX: Final = 64


@dataclass(slots=True)
class Gathering:
    """What has been read so far. `ended` maps keys of active entries to the line that says they are no longer so."""

    active: Active
    pool: list[Durable] = field(default_factory=list[Durable])
    quarantined: list[Durable] = field(default_factory=list[Durable])
    ended: dict[str, Span] = field(default_factory=dict[str, Span])
    tools: ForeignWords = field(default_factory=ForeignWords)
    recalled: ForeignWords = field(default_factory=ForeignWords)
    left_out: Counter[str] = field(default_factory=Counter[str])
    grounded: bool = False
    events: int = 0
    sentences: int = 0

    def add(self, event: StoredEvent) -> None:
        """Take in one event as evidence, or as what somebody else said."""
        self.events += 1
        self.grounded = self.grounded or event.kind is EventKind.TOOL
        (self.tools if event.kind is EventKind.TOOL else self.recalled).add(event)
        if event.kind in EVIDENCE_KINDS:
            self._evidence(event)

    def is_ended(self, key: str, found: Durable) -> bool:
        """Whether a later line says that the entry is no longer so; of an end and a value the later one stands."""
        span = self.ended.get(key)
        return span is not None and (span.sequence, span.part, span.start) > place(found)

    def _evidence(self, event: StoredEvent) -> None:
        for span in lines.spans(event):
            self.sentences += 1
            if event.kind is EventKind.USER and cues.has(span.safe, Cue.RETRACTION):
                self._retract(span.sequence)
            elif not self._ends(span, event):
                self._sentence(span, event)
        if len(self.pool) > 2 * POOL_MAX:
            self._shrink()

    def _sentence(self, span: Span, event: StoredEvent) -> None:
        found = durable.durable(span, grounded=self.grounded)
        if found is None:
            return
        if not _is_quotable(span, event):
            self.left_out["not_quotable"] += 1
        elif event.kind is EventKind.ASSISTANT and self.recalled.holds(span.safe):
            self.left_out["recalled"] += 1
        elif event.kind is EventKind.ASSISTANT and self.tools.holds(span.safe):
            self.left_out["said_by_tool"] += 1
            if len(self.quarantined) < QUARANTINED_MAX and not cues.has(span.safe, Cue.INSTRUCTION):
                self.quarantined.append(found)
        else:
            self.pool.append(found)

    def _ends(self, span: Span, event: StoredEvent) -> bool:
        """Whether a person's line says that an active entry is no longer so; it is a tombstone, and no fact beside."""
        if event.kind is not EventKind.USER or span.shape not in PROSE or span.secret:
            return False
        if any(cues.has(span.safe, cue) for cue in (Cue.QUESTION, Cue.HYPOTHETICAL)):
            return False
        self._forget(ended_words(span.safe))
        key = self.active.ended_by(span.safe)
        if key is None or not _is_quotable(span, event) or len(self.ended) >= ENDED_MAX:
            return False
        self.ended[key] = span
        return True

    def _forget(self, about: keys.Frame) -> None:
        """Drop the one sentence of this Session that a person says is no longer so."""
        meant = [found for found in self.pool if about and is_about(about, found.span.safe)]
        if len(meant) == 1:
            self.pool = [found for found in self.pool if found is not meant[0]]
            self.left_out["no_longer_so"] += 1

    def _retract(self, sequence: int) -> None:
        """Drop the last thing that the user said before taking it back."""
        said = [found for found in self.pool if found.span.speaker is EventKind.USER]
        if not said:
            return
        last = said[-1]
        in_message = last.span.sequence == sequence
        dropped = [last] if in_message else [found for found in said if found.span.sequence == last.span.sequence]
        self.pool = [found for found in self.pool if not any(found is gone for gone in dropped)]
        self.left_out["taken_back"] += len(dropped)

    def _shrink(self) -> None:
        best = sorted(self.pool, key=lambda found: (-found.score, -found.span.sequence, found.span.start))
        self.left_out["lower_ranked"] += max(len(best) - POOL_MAX, 0)
        self.pool = sorted(best[:POOL_MAX], key=place)


def place(found: Durable) -> tuple[int, int, int]:
    """Where a sentence stands in its Session."""
    return found.span.sequence, found.span.part, found.span.start


def _is_quotable(span: Span, event: StoredEvent) -> bool:
    """Whether the quote stands in its event byte for byte, within bounds, and is free of secrets."""
    part = event.parts[span.part]
    quote = span.text.encode()
    return (
        isinstance(part, TextPart)
        and part.text.encode()[span.start : span.end] == quote
        and len(quote) <= limits.EVIDENCE_QUOTE_BYTES_MAX
        and not secrets.find(span.text)
    )
