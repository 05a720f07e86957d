"""What must survive of an event's own words, found by rules.

The module owns these invariants:

- Each anchor names the event it comes from, and its text is the source's own (`Span.safe`).
- Code, quoted matter, tables and headings are somebody else's words or layout: they make no anchor, except that a
  person may paste an error line.
- What a person takes back in the next sentence (`just kidding`) makes no anchor.
- Order of an event's anchors is the order of its text; the score alone says what goes first when room is short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from emelex_core.events import EventKind
from emelex_workers.text import cues, durable, secrets
from emelex_workers.text.cues import Cue
from emelex_workers.text.lines import PROSE, Shape, Span
from emelex_workers.text.tokens import TokenKind, tokens

LINE_CHARACTERS_MIN: Final = 12
REQUEST_SPANS_MAX: Final = 40
"""A user's message with more sentences is pasted matter: its beginning, its end and its cue lines speak for it."""
MASKED_SCORE: Final = 10.0
"""What is left of a line that was about a secret."""
LASTING_SCORE: Final = 70.0
"""What a person states for good outlives what is asked for now."""
_REQUEST_HEAD: Final = 8
_REQUEST_TAIL: Final = 4
_ERROR_CHARACTERS_MAX: Final = 240


class AnchorKind(StrEnum):
    """What an anchor is for the reader of a Summary."""

    ORDER = "order"
    CONSTRAINT = "constraint"
    FACT = "fact"
    DECISION = "decision"
    QUESTION = "question"
    OPEN = "open"
    STATEMENT = "statement"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One line that matters, with its event and its byte offset there. A higher score stays longer."""

    kind: AnchorKind
    text: str
    event_id: str
    sequence: int
    speaker: EventKind
    position: int
    score: float


_ERROR_LINE: Final = re.compile(
    r"(?:E\s{1,8})?(?:[A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning|Interrupt|Exit|Fault|Failure)\b(?:: .*)?$"
    r"|(?:error|fatal|panic|abort(?:ed)?|failed|failure|exception|fehler|erreur)(?:\[[A-Z]{0,3}\d{1,6}\])?: ?.+"
    r"|(?:FAILED|ERROR) \S+.*|npm ERR! .+|.{1,120}: (?:fatal )?(?:error|command not found"
    r"|No such file or directory|Permission denied)\b.*"
    r"|error TS\d{1,6}: .+|thread '.{1,80}' panicked at .+|[Ss]egmentation fault.*"
    r"|.{1,100}verification failed: .+|=+ .{0,80}\b\d+ failed\b.*)"
)


def anchors(own: tuple[Span, ...], *, speaker: EventKind, is_last_word: bool = False) -> Iterator[Anchor]:
    """Yield the anchors of an event's spans, in order; only a user's and an assistant's words have any.

    `is_last_word` says that the event closes its turn: what an assistant says there sums up what it did.
    """
    if speaker is EventKind.USER:
        yield from _user_anchors(own)
    elif speaker is EventKind.ASSISTANT:
        yield from _assistant_anchors(own, is_last_word=is_last_word)


def is_error_line(line: str) -> bool:
    """Whether a line reports an error in one of the forms that tools use, and orders nothing."""
    return (
        len(line) <= _ERROR_CHARACTERS_MAX
        and _ERROR_LINE.match(line) is not None
        and not cues.has(line, Cue.INSTRUCTION)
        and "://" not in line
    )


def _user_anchors(own: tuple[Span, ...]) -> Iterator[Anchor]:
    prose = tuple(span for span in own if span.shape in PROSE)
    pasted = len(prose) > REQUEST_SPANS_MAX
    place = {span.start: index for index, span in enumerate(prose)}
    taken_back = {before.start for before, span in pairwise(prose) if cues.has(span.safe, Cue.RETRACTION)}
    errors = 0
    for span in own:
        if span.start in taken_back or cues.has(span.safe, Cue.RETRACTION):
            continue
        if span.shape in {Shape.CODE, Shape.QUOTE} or (span.shape in PROSE and is_error_line(span.safe)):
            if is_error_line(span.safe) and errors < 3:
                errors += 1
                yield _anchor(AnchorKind.ERROR, span, 30.0)
            continue
        if span.shape not in PROSE or cues.is_acknowledgement(span.safe):
            continue
        kind = _user_kind(span.safe)
        index = place[span.start]
        at_edge = index < _REQUEST_HEAD or index >= len(prose) - _REQUEST_TAIL
        if kind is AnchorKind.ORDER and index > 0 and ((pasted and not at_edge) or _is_scrap(span.safe)):
            continue
        yield _anchor(kind, span, _user_score(kind, index, span.safe))


def _user_kind(line: str) -> AnchorKind:
    if cues.has(line, Cue.QUESTION):
        return AnchorKind.ORDER
    if cues.has(line, Cue.CONSTRAINT):
        return AnchorKind.CONSTRAINT
    if cues.has(line, Cue.DECISION):
        return AnchorKind.DECISION
    return AnchorKind.FACT if secrets.REMOVED not in line and durable.lasts(line) else AnchorKind.ORDER


def _user_score(kind: AnchorKind, index: int, line: str) -> float:
    """Earlier sentences of a message say what is wanted; lead-ins and what was masked say little."""
    if kind is AnchorKind.FACT:
        return LASTING_SCORE
    if kind is not AnchorKind.ORDER:
        return 80.0
    if secrets.REMOVED in line:
        return MASKED_SCORE
    return max(60.0 - 3 * index, 30.0) - (20.0 if line.endswith((":", "：")) else 0.0)


def _is_scrap(line: str) -> bool:
    """Whether a line inside a longer message is too little to be wanted: a label, a greeting, an aside in brackets."""
    said = cues.has(line, Cue.QUESTION) or cues.has_many_letters(line) or any(tokens(line))
    return (len(line.split()) < 3 and not said) or (line[0] == "(" and line[-1] == ")")


def _assistant_anchors(own: tuple[Span, ...], *, is_last_word: bool) -> Iterator[Anchor]:
    for index, span in enumerate(own):
        if span.shape not in PROSE or len(span.safe) < LINE_CHARACTERS_MIN or cues.has(span.safe, Cue.CHATTER):
            continue
        kind = _assistant_kind(span.safe)
        if kind is AnchorKind.QUESTION and not is_last_word:
            continue
        if kind is AnchorKind.STATEMENT and span.safe.endswith(":"):
            continue
        yield _anchor(kind, span, _statement_score(span, index, is_last_word=is_last_word))


def _assistant_kind(line: str) -> AnchorKind:
    if cues.has(line, Cue.QUESTION):
        return AnchorKind.QUESTION
    if cues.has(line, Cue.HYPOTHETICAL) or cues.has(line, Cue.QUOTING):
        return AnchorKind.STATEMENT
    if cues.has(line, Cue.CONSTRAINT) and cues.has(line, Cue.NEGATION):
        return AnchorKind.CONSTRAINT
    if cues.has(line, Cue.OPEN):
        return AnchorKind.OPEN
    if cues.has(line, Cue.DECISION):
        return AnchorKind.DECISION
    return AnchorKind.STATEMENT


def _statement_score(span: Span, index: int, *, is_last_word: bool) -> float:
    named = len({token.text for token in tokens(span.safe) if token.kind is not TokenKind.CONSTANT})
    words = len(span.safe.split())
    score = 10.0 + 3.0 * min(named, 4)
    score += 8.0 if cues.has(span.safe, Cue.OUTCOME) else 0.0
    score += 10.0 if is_last_word else 0.0
    score += 4.0 if cues.has(span.safe, Cue.NEGATION) else 0.0
    score -= 6.0 if words < 5 and not named else 0.0
    score -= 8.0 if cues.has(span.safe, Cue.HYPOTHETICAL) else 0.0
    score -= 3.0 if span.shape is Shape.ITEM else 0.0
    score -= 4.0 if cues.has(span.safe, Cue.MOMENT) else 0.0
    return score - min(index, 20) * 0.3


def _anchor(kind: AnchorKind, span: Span, score: float) -> Anchor:
    return Anchor(
        kind=kind,
        text=span.safe,
        event_id=span.event_id,
        sequence=span.sequence,
        speaker=span.speaker,
        position=span.start,
        score=score,
    )
