"""Knowledge candidates from a Session: sentences chosen by rules, worded by the model where it passes, all quoted.

The module owns these invariants (behaviours 137, 172, 177, 184–187):

- Evidence is a user's or an assistant's own words, never tool output, context, reasoning, a Summary or recalled
  Knowledge.
- Each candidate names its event and quotes it byte for byte; the quote is verified against the event before it counts.
- A sentence that repeats what a tool or a page said earlier in the Session is that source's word, and stays out.
- Of two sentences with the same frame the newer one stands; what is active already is not proposed again.
- Keys are made by code, unique and at most 128 a job; nothing with the shape of a secret gets through.
- Nothing to remember is a success. The same events, engine and settings give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Cancelled
from emelex_core.events import EVIDENCE_KINDS, EventKind, TextPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import cues, durable, keys, lines, restate, secrets
from emelex_workers.text.cues import Cue
from emelex_workers.text.durable import Category, Durable
from emelex_workers.text.foreign import ForeignWords
from emelex_workers.text.restate import Restater, Usage

RULES_VERSION: Final = "distil-1"
CANDIDATES_BEST: Final = 24
"""So many of the best are proposed for one Session; more would be noise to whoever recalls them."""
POOL_MAX: Final = 512
"""Sentences held while reading; beyond it the lowest-ranked go, counted."""
WORDED_CHARACTERS_MIN: Final = 60
"""Shorter sentences are short enough: their own words are the best evidence."""
SAME: Final = 0.8
"""From this share of common words on, two sentences or keys are about the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One piece of Knowledge to write, with its evidence: `quote` stands in the event's text byte for byte."""

    key: str
    content: str
    confidence: float
    event_id: str
    sequence: int
    quote: str
    speaker: EventKind
    operation: str = "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """What a Session is worth remembering for; empty is a valid answer."""

    candidates: tuple[Candidate, ...]
    provenance: dict[str, Any]
    usage: Usage


def distil(
    events: Iterable[StoredEvent],
    *,
    engine: ChatEngine,
    existing: Mapping[str, str],
    cancel: CancelToken,
    attempt: int = 1,
    candidates_max: int = CANDIDATES_BEST,
    calls_max: int = restate.CALLS_MAX,
) -> Distillation:
    """Read a stream of events once and return the candidates, best evidence first in the order of the Session.

    `existing` maps the workspace's active keys to their contents: a sentence about the same takes over the key, and one
    that says the same is left out. `attempt` counts from 1; each attempt differs in a stated way.

    Raises: Cancelled; PermanentFailure; OutputRejected when every call of the engine ended wrongly; EngineFailure.
    """
    reading = _Reading()
    for event in events:
        if cancel.cancelled:
            raise Cancelled("cancelled while the source was read")
        reading.add(event)
    restater = Restater(engine, cancel, restate.settings_for(attempt, calls_max=calls_max))
    chosen = _chosen(reading, existing, min(candidates_max, limits.CANDIDATES_MAX))
    candidates: dict[str, Candidate] = {}
    for found in chosen:
        key = _key(found, existing)
        while key in candidates:
            key = keys.numbered(key)
        candidates[key] = _candidate(found, key, restater)
    restater.close()
    provenance = {
        "rules_version": RULES_VERSION,
        "attempt": attempt,
        "model": engine.info.reference,
        "model_snapshot": engine.info.snapshot_id,
        "events": reading.events,
        "sentences": reading.sentences,
        "left_out": dict(sorted(reading.left_out.items())),
        "candidates": len(candidates),
        "wording": restater.provenance(),
    }
    return Distillation(candidates=tuple(candidates.values()), provenance=provenance, usage=restater.usage)


@dataclass(slots=True)
class _Reading:
    """What has been read so far, in bounded memory."""

    pool: list[Durable] = field(default_factory=list[Durable])
    foreign: ForeignWords = field(default_factory=ForeignWords)
    left_out: Counter[str] = field(default_factory=Counter[str])
    grounded: bool = False
    events: int = 0
    sentences: int = 0

    def add(self, event: StoredEvent) -> None:
        """Take in one event as evidence, or as what somebody else said."""
        self.events += 1
        self.grounded = self.grounded or event.kind is EventKind.TOOL
        self.foreign.add(event)
        if event.kind in EVIDENCE_KINDS:
            self._evidence(event)

    def _evidence(self, event: StoredEvent) -> None:
        for span in lines.spans(event):
            self.sentences += 1
            if event.kind is EventKind.USER and cues.has(span.safe, Cue.RETRACTION):
                self._retract(span.sequence)
                continue
            found = durable.durable(span, grounded=self.grounded)
            if found is None:
                continue
            if not _is_quotable(found, event):
                self.left_out["not_quotable"] += 1
            elif event.kind is EventKind.ASSISTANT and self.foreign.holds(span.safe):
                self.left_out["said_by_tool"] += 1
            else:
                self.pool.append(found)
        if len(self.pool) > 2 * POOL_MAX:
            self._shrink()

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
        self.pool = sorted(best[:POOL_MAX], key=_place)


def _chosen(reading: _Reading, existing: Mapping[str, str], candidates_max: int) -> list[Durable]:
    """Return the best sentences in order: the newest of each frame, without what is active already."""
    active = {keys.normal_form(content) for content in existing.values()}
    newest: list[tuple[keys.Frame, Durable]] = []
    for found in sorted(reading.pool, key=_place, reverse=True):
        shape = keys.identity(found.span.safe)
        if any(_is_same(shape, known) for known, _ in newest):
            reading.left_out["superseded"] += 1
        elif keys.normal_form(found.span.safe) in active:
            reading.left_out["already_active"] += 1
        else:
            newest.append((shape, found))
    ranked = sorted(
        (found for _, found in newest), key=lambda found: (-found.score, -found.span.sequence, found.span.start)
    )
    reading.left_out["lower_ranked"] += max(len(ranked) - candidates_max, 0)
    return sorted(ranked[:candidates_max], key=_place)


def _is_same(shape: keys.Frame, known: keys.Frame) -> bool:
    return shape == known or (len(shape) >= 3 and keys.similarity(shape, known) >= SAME)


def _key(found: Durable, existing: Mapping[str, str]) -> str:
    """Make the key, or take over that of the active entry that is about the same."""
    made = keys.key_of(found.span.safe, found.category.value)
    if made in existing:
        return made
    words = keys.words_of_key(made)
    near = [key for key in existing if len(words) >= 2 and keys.similarity(words, keys.words_of_key(key)) >= SAME]
    return min(near, default=made)


def _candidate(found: Durable, key: str, restater: Restater) -> Candidate:
    content = found.span.safe
    if len(content) >= WORDED_CHARACTERS_MIN and found.category is not Category.RULE:
        content = secrets.mask(restater.word(content).text)
    return Candidate(
        key=key,
        content=content,
        confidence=found.confidence,
        event_id=found.span.event_id,
        sequence=found.span.sequence,
        quote=found.span.text,
        speaker=found.span.speaker,
    )


def _is_quotable(found: Durable, event: StoredEvent) -> bool:
    """Whether the quote stands in its event byte for byte, within bounds, and is free of secrets."""
    part = event.parts[found.span.part]
    quote = found.span.text.encode()
    return (
        isinstance(part, TextPart)
        and part.text.encode()[found.span.start : found.span.end] == quote
        and len(quote) <= limits.EVIDENCE_QUOTE_BYTES_MAX
        and not secrets.find(found.span.text)
    )


def _place(found: Durable) -> tuple[int, int, int]:
    return found.span.sequence, found.span.part, found.span.start
