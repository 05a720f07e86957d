"""Knowledge candidates from a Session: sentences chosen by rules, worded by the model where it passes, all quoted.

The module owns these invariants (behaviours 137, 172, 177, 184–187):

- Evidence is a user's or an assistant's own words, never tool output, context, reasoning, a Summary or recalled
  Knowledge.
- Each candidate names its event and quotes it byte for byte; the quote is verified against the event before it counts.
- A sentence that repeats what a tool or a page said earlier in the Session is that source's word, and quarantined.
- Of two sentences with the same frame the newer one stands; what is active already is not proposed again, what an
  entry says otherwise takes over its key, and what a person says is no longer so becomes a tombstone.
- Keys are made by code, unique and at most 128 a job; nothing with the shape of a secret gets through.
- Nothing to remember is a success. The same events, engine and settings give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Cancelled
from emelex_core.events import EventKind
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import keys, restate, secrets
from emelex_workers.text.active import Active
from emelex_workers.text.durable import Category, Durable
from emelex_workers.text.gathering import Gathering, place
from emelex_workers.text.judge import Judge
from emelex_workers.text.lines import Span
from emelex_workers.text.restate import FIRST_TRY, Restater, Try, Usage

RULES_VERSION: Final = "distil-3"
CANDIDATES_BEST: Final = 24
"""So many of the best are proposed for one Session; more would be noise to whoever recalls them."""
FRAME_WORDS_MIN: Final = 3
"""Shorter frames are about the same only when they are equal."""
WORDED_CHARACTERS_MIN: Final = 60
"""Shorter sentences are short enough: their own words are the best evidence."""
SAME: Final = 0.8
"""From this share of common words on, two sentences or keys are about the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One change of Knowledge, with its evidence: `quote` stands in the event's text byte for byte.

    `operation` is `upsert`, or `tombstone` for an active entry that is no longer so, which has no content.
    `quarantined` says that the words are those of a tool or a page, whoever repeated them.
    """

    key: str
    content: str
    confidence: float
    event_id: str
    sequence: int
    quote: str
    speaker: EventKind
    operation: str = "upsert"
    quarantined: bool = False


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
    this: Try = FIRST_TRY,
    candidates_max: int = CANDIDATES_BEST,
    calls_max: int = restate.CALLS_MAX,
) -> Distillation:
    """Read a stream of events once and return the candidates, best evidence first in the order of the Session.

    `existing` maps the workspace's active keys to their contents: a sentence about the same takes over the key, and one
    that says the same is left out. `this` says which attempt it is; after a refusal each differs in a stated way.

    Raises: Cancelled; PermanentFailure; OutputRejected when every call of the engine ended wrongly; EngineFailure.
    """
    reading = Gathering(active=Active(existing))
    for event in events:
        if cancel.cancelled:
            raise Cancelled("cancelled while the source was read")
        reading.add(event)
    restater = Restater(engine, cancel, restate.settings_for(this, calls_max=calls_max))
    judge = Judge(engine, cancel)
    most = min(candidates_max, limits.CANDIDATES_MAX)
    chosen = [found for found in _chosen(reading, most) if not this.able.judges or _stands(found, judge)]
    candidates = _changes(reading, chosen, _worded(chosen, restater, trusted=this.able.certified), most)
    restater.close()
    return Distillation(
        candidates=candidates,
        provenance={
            "rules_version": RULES_VERSION,
            "attempt": this.attempt,
            "refusals": this.refusals,
            "abilities": this.able.stated(),
            "form": "worded" if restater.accepted else "verbatim",
            "model": engine.info.reference,
            "model_snapshot": engine.info.snapshot_id,
            "events": reading.events,
            "sentences": reading.sentences,
            "left_out": dict(sorted(reading.left_out.items())),
            "candidates": len(candidates),
            "tombstones": [
                _place_of(made.key, reading.ended[made.key]) for made in candidates if made.operation == "tombstone"
            ],
            "quarantined": sum(made.quarantined for made in candidates),
            "wording": restater.provenance(),
            "judging": judge.provenance() if this.able.judges else None,
        },
        usage=restater.usage,
    )


def _changes(
    reading: Gathering, chosen: list[Durable], wordings: Mapping[Span, str], candidates_max: int
) -> tuple[Candidate, ...]:
    """The whole changeset: what was chosen, then what is no longer so, then what waits for review."""
    candidates: dict[str, Candidate] = {}
    for found in chosen:
        key = _key(found, reading.active)
        if not reading.is_ended(key, found):
            _put(candidates, _candidate(found, key, wordings.get(found.span, found.span.safe)))
    for key, span in list(reading.ended.items())[: candidates_max - len(candidates)]:
        candidates.setdefault(key, _tombstone(key, span))
    for found in reading.quarantined[: candidates_max - len(candidates)]:
        _put(candidates, _candidate(found, _key(found, reading.active), found.span.safe, quarantined=True))
    return tuple(candidates.values())


def _chosen(reading: Gathering, candidates_max: int) -> list[Durable]:
    """Return the best sentences in order: the newest of each frame, without what is active already."""
    index = keys.FrameIndex(SAME)
    shapes: set[keys.Frame] = set()
    newest: list[Durable] = []
    for found in sorted(reading.pool, key=place, reverse=True):
        shape = keys.identity(found.span.safe)
        if shape in shapes or (len(shape) >= FRAME_WORDS_MIN and not index.add(shape)):
            reading.left_out["superseded"] += 1
            continue
        shapes.add(shape)
        if reading.active.says(found.span.safe):
            reading.left_out["already_active"] += 1
        else:
            newest.append(found)
    ranked = sorted(newest, key=lambda found: (-found.score, -found.span.sequence, found.span.start))
    reading.left_out["lower_ranked"] += max(len(ranked) - candidates_max, 0)
    return sorted(ranked[:candidates_max], key=place)


def _stands(found: Durable, judge: Judge) -> bool:
    """A person's word always does; an assistant's is judged, where the model has shown that it can."""
    return found.span.speaker is EventKind.USER or judge.keeps(found.span.safe)


def _put(candidates: dict[str, Candidate], made: Candidate) -> None:
    """Add a candidate under its key, or under the next one that is free."""
    key = made.key
    while key in candidates:
        key = keys.numbered(key)
    candidates[key] = replace(made, key=key)


def _key(found: Durable, active: Active) -> str:
    return active.key_for(found.span.safe, keys.key_of(found.span.safe, found.category.value))


def _worded(chosen: list[Durable], restater: Restater, *, trusted: bool) -> dict[Span, str]:
    """Ask the model for the longer sentences that are no rules; return those that passed.

    A model without a certificate words no Knowledge (ADR 0020): it is heard on one sentence, so that one which does not
    work is noticed by every job, and the sentences stand in their speakers' words.
    """
    asked = [found for found in chosen if _is_wordy(found)] if trusted else []
    if not asked:
        for found in sorted(chosen, key=lambda found: -len(found.span.safe))[:1]:
            restater.word(found.span.safe)
    wordings = ((found.span, restater.word(found.span.safe)) for found in asked)
    return {span: secrets.mask(wording.text) for span, wording in wordings if wording.by_model}


def _is_wordy(found: Durable) -> bool:
    return len(found.span.safe) >= WORDED_CHARACTERS_MIN and found.category is not Category.RULE


def _candidate(found: Durable, key: str, content: str, *, quarantined: bool = False) -> Candidate:
    return Candidate(
        key=key,
        content=content,
        confidence=found.confidence,
        event_id=found.span.event_id,
        sequence=found.span.sequence,
        quote=found.span.text,
        speaker=found.span.speaker,
        quarantined=quarantined,
    )


def _place_of(key: str, span: Span) -> dict[str, Any]:
    """Where the quote of a tombstone stands, which no entry keeps; no words of it, since nobody redacts records."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"key_sha256": digest, "sequence": span.sequence, "part": span.part, "start": span.start, "end": span.end}


def _tombstone(key: str, span: Span) -> Candidate:
    return Candidate(
        key=key,
        content="",
        confidence=1.0,
        event_id=span.event_id,
        sequence=span.sequence,
        quote=span.text,
        speaker=span.speaker,
        operation="tombstone",
    )
