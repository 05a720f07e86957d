"""Which sentences carry durable facts, told by rules, and how much each is worth.

The module owns these invariants:

- Only a user's and an assistant's own prose is looked at; questions, chatter, plans of the moment, hypotheses, jokes
  and reports of what some page or tool says carry no fact.
- Confidence comes from the origin alone (`CONFIDENCE`); what a model says of its own certainty is worth nothing.

| origin | confidence |
|---|---|
| a user's rule or order (always, never, must, use X) | 0.95 |
| a user's decision or preference | 0.90 |
| a user's statement of fact | 0.85 |
| an assistant's decision, or its statement that names something | 0.70 |
| an assistant's other statement | 0.60 |

The default recall floor is 0.70: what an assistant said without naming anything is kept, and not recalled by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emelex_core.events import EventKind
from emelex_workers.text import cues, keys, phrases
from emelex_workers.text.cues import Cue
from emelex_workers.text.lines import PROSE, Shape, Span
from emelex_workers.text.tokens import TokenKind, tokens


class Category(StrEnum):
    """What kind of fact it is; the first word of its key."""

    RULE = "rule"
    PREFERENCE = "preference"
    DECISION = "decision"
    COMMAND = "command"
    LOCATION = "location"
    PERSON = "person"
    FACT = "fact"


CONFIDENCE: Final[dict[tuple[EventKind, Category], float]] = {
    (EventKind.USER, Category.RULE): 0.95,
    (EventKind.USER, Category.PREFERENCE): 0.90,
    (EventKind.USER, Category.DECISION): 0.90,
    (EventKind.ASSISTANT, Category.DECISION): 0.70,
}
_USER_FACT: Final = 0.85
_ASSISTANT_NAMED: Final = 0.70
_ASSISTANT_OTHER: Final = 0.60

CHARACTERS_MIN: Final = 12
CHARACTERS_MAX: Final = 600
WORDS_MIN: Final = 3
RULE_WORDS_MIN: Final = 2
"""A rule with fewer content words, such as `do not merge`, belongs to its moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """A sentence that carries a fact. A higher score is kept first."""

    span: Span
    category: Category
    confidence: float
    score: float


_STABLE_NAMES: Final = frozenset(
    {
        TokenKind.PATH,
        TokenKind.URL,
        TokenKind.IDENTIFIER,
        TokenKind.VERSION,
        TokenKind.NUMBER,
        TokenKind.FLAG,
        TokenKind.MAIL,
    }
)


def durable(span: Span, *, grounded: bool) -> Durable | None:
    """Judge one span; None where it carries no durable fact, or may not.

    `grounded` says that the assistant has looked at something by a tool: before that, what it states is general
    knowledge and not the workspace's.
    """
    line = span.safe
    if span.shape not in PROSE or span.secret or "[control token]" in line or line.endswith((":", "：", "…")):
        return None
    if not CHARACTERS_MIN <= len(line) <= CHARACTERS_MAX or not _has_words(line) or line.startswith("["):
        return None
    if any(cues.has(line, cue) for cue in (Cue.QUESTION, Cue.HYPOTHETICAL, Cue.RETRACTION, Cue.CHATTER)):
        return None
    user = span.speaker is EventKind.USER
    category = _user_category(span) if user else _assistant_category(span, grounded=grounded)
    if category is None:
        return None
    return Durable(span=span, category=category, confidence=_confidence(span, category), score=_score(span, category))


def may_state(line: str) -> bool:
    """Whether somebody's line could be taken for a rule or a fact; quick and generous, for foreign text."""
    return (
        cues.has(line, Cue.CONSTRAINT)
        or cues.has(line, Cue.DECISION)
        or phrases.PREFERENCE.search(line) is not None
        or _stated(line) is not None
    )


def asks(line: str) -> bool:
    """Whether a person's line asks for something to be done or answered."""
    return (
        cues.has(line, Cue.QUESTION)
        or phrases.WISH.search(line) is not None
        or phrases.ASKED.search(line) is not None
        or phrases.TASK.match(line) is not None
    )


def lasts(line: str) -> bool:
    """Whether a person's line states something lasting, rather than asking for something now."""
    said = Span(
        event_id="", sequence=0, speaker=EventKind.USER, part=0, start=0, end=0, text=line, safe=line,
        shape=Shape.SENTENCE, secret=False,
    )  # fmt: skip
    return durable(said, grounded=True) is not None


def _user_category(span: Span) -> Category | None:
    """A user's task of the moment is none, unless it states a rule for all times."""
    line = span.safe
    lasting = cues.has(line, Cue.CONSTRAINT)
    if cues.has(line, Cue.MOMENT) and not lasting:
        return None
    if lasting and (not phrases.TASK.match(line) or phrases.FOR_ALL_TIME.search(line)):
        lasts = len(keys.frame(line)) >= RULE_WORDS_MIN or _is_named(line) or cues.has_many_letters(line)
        return Category.RULE if lasts else None
    if phrases.PERSON.search(line):
        return Category.PERSON
    if (phrases.TASK.match(line) and not phrases.COMMAND.search(line)) or phrases.ASKED.search(line):
        return None
    if phrases.PREFERENCE.search(line):
        return Category.PREFERENCE
    if cues.has(line, Cue.DECISION):
        return Category.DECISION
    if phrases.USE.match(line) and not phrases.PURPOSE.search(line):
        return Category.RULE
    if phrases.PROBLEM.search(line) or phrases.ADVICE.search(line):
        return None
    stated = _stated(line) or (Category.FACT if _gives_a_value(line) else None)
    return None if stated is Category.FACT and span.shape is Shape.ITEM and not _is_named(line) else stated


def _gives_a_value(line: str) -> bool:
    """Whether a person states something definite of something: `our CI runs in Frankfurt`."""
    stated = phrases.VALUED.match(line) is not None and not phrases.DEPENDENT.match(line)
    return stated and (_is_named(line) or phrases.PROPER.search(line) is not None)


def _assistant_category(span: Span, *, grounded: bool) -> Category | None:
    line = span.safe
    if any(cues.has(line, cue) for cue in (Cue.QUOTING, Cue.MOMENT, Cue.OPEN)) or phrases.ADVICE.search(line):
        return None
    if phrases.DEPENDENT.match(line) or phrases.DID.match(line) or phrases.TASK.match(line):
        return None
    if span.shape is Shape.ITEM and len(line) < 40:
        return None
    if cues.has(line, Cue.DECISION):
        return Category.DECISION
    stated = _stated(line)
    if stated is None or not (grounded or phrases.OWN.search(line)):
        return None
    return stated if _is_named(line) or phrases.OWN.search(line) else None


def _stated(line: str) -> Category | None:
    if phrases.PERSON.search(line):
        return Category.PERSON
    if phrases.COMMAND.search(line):
        return Category.COMMAND
    if phrases.LOCATION.search(line):
        return Category.LOCATION
    return Category.FACT if phrases.FACT.search(line) else None


def _confidence(span: Span, category: Category) -> float:
    if known := CONFIDENCE.get((span.speaker, category)):
        return known
    if span.speaker is EventKind.USER:
        return _USER_FACT
    return _ASSISTANT_NAMED if _is_named(span.safe) else _ASSISTANT_OTHER


def _score(span: Span, category: Category) -> float:
    score = 50.0 if span.speaker is EventKind.USER else 20.0
    score += {Category.RULE: 20.0, Category.PREFERENCE: 15.0, Category.DECISION: 12.0}.get(category, 5.0)
    score += 2.0 * min(sum(token.kind in _STABLE_NAMES for token in tokens(span.safe)), 4)
    score -= 10.0 if phrases.DEPENDENT.match(span.safe) else 0.0
    return score - max(len(span.safe) - 240, 0) / 40


def _is_named(line: str) -> bool:
    return any(token.kind in _STABLE_NAMES for token in tokens(line)) or "`" in line


def _has_words(line: str) -> bool:
    """Languages without spaces count by characters."""
    return len(line.split()) >= WORDS_MIN or cues.has_many_letters(line)
