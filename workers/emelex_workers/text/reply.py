"""Strict reading of what a model wrote (behaviours 170, 171, 184).

The module owns these invariants:

- Only a generation that finished by itself is read; reasoning in a closed `<think>` block is taken out first.
- A reply is plain or fenced JSON and nothing else: text around it, an unknown field, a duplicate key, a number that is
  not finite, or one bad candidate rejects the whole reply. All or nothing.
- An empty list of candidates is a success; an empty text is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from emelex_core import codec, limits
from emelex_core.engine.ports import FinishReason, Generation
from emelex_core.errors import Invalid, OutputRejected

REPLY_BYTES_MAX: Final = 4 * limits.MIB

_THINK_CLOSED: Final = re.compile(r"\A\s*<think>.*?</think>", re.S)
_FENCED: Final = re.compile(r"\A\s*(`{3,})(?:json)?[^\S\n]*\n(?P<body>.*)\n\1\s*\Z", re.S | re.I)
_TOP: Final = frozenset({"candidates"})
_FIELDS: Final = frozenset({"key", "content", "confidence", "quote", "operation"})
_REQUIRED: Final = frozenset({"key", "content", "quote"})
_OPERATIONS: Final = frozenset({"upsert", "tombstone"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCandidate:
    """One candidate as a model proposed it. Nothing in it is proven yet: the quote still has to be found in an event."""

    key: str
    content: str
    quote: str
    confidence: float | None
    operation: str


def finished_text(generation: Generation) -> str:
    """Return the text of a generation that ended by itself, without reasoning; raise OutputRejected for any other."""
    if generation.finish_reason is FinishReason.LENGTH:
        raise OutputRejected("output truncated: the model did not end before its token limit")
    if generation.finish_reason is not FinishReason.STOP:
        raise OutputRejected(f"the model ended with {generation.finish_reason.value} instead of text")
    text = _THINK_CLOSED.sub("", generation.text, count=1).strip()
    if text.startswith("<think>"):
        raise OutputRejected("the output is unfinished reasoning")
    if not text:
        raise OutputRejected("the output is empty")
    return text


def parse_candidates(generation: Generation) -> tuple[ReplyCandidate, ...]:
    """Read a model's list of candidates.

    The reply is `{"candidates": [{"key", "content", "quote", "confidence"?, "operation"?}, …]}` with at most 128 entries
    and unique keys. Raises: OutputRejected naming the first thing that is wrong.
    """
    text = finished_text(generation)
    if fenced := _FENCED.match(text):
        text = fenced["body"]
    try:
        value = codec.parse_strict(text, what="reply", bytes_max=REPLY_BYTES_MAX)
    except Invalid as error:
        raise OutputRejected(error.message) from None
    if not isinstance(value, dict) or not isinstance(value.get("candidates"), list):
        raise OutputRejected("reply: it is not an object with a list of candidates")
    if unknown := set(value) - _TOP:
        raise OutputRejected(f"reply: unknown field {min(unknown)[:80]!r}")
    entries = value["candidates"]
    if len(entries) > limits.CANDIDATES_MAX:
        raise OutputRejected(f"reply: {len(entries)} candidates; at most {limits.CANDIDATES_MAX} are accepted")
    candidates = tuple(_candidate(entry, index) for index, entry in enumerate(entries))
    keys = [candidate.key for candidate in candidates]
    if len(set(keys)) != len(keys):
        raise OutputRejected("reply: a key stands twice")
    return candidates


def _candidate(entry: Any, index: int) -> ReplyCandidate:
    what = f"reply candidate {index + 1}"
    if not isinstance(entry, dict):
        raise OutputRejected(f"{what}: it is no object")
    if unknown := set(entry) - _FIELDS:
        raise OutputRejected(f"{what}: unknown field {min(unknown)[:80]!r}")
    if missing := _REQUIRED - set(entry):
        raise OutputRejected(f"{what}: {min(missing)} is missing")
    operation = entry.get("operation", "upsert")
    if operation not in _OPERATIONS:
        raise OutputRejected(f"{what}: the operation is neither upsert nor tombstone")
    return ReplyCandidate(
        key=_text(entry["key"], f"{what} key", limits.KNOWLEDGE_KEY_BYTES_MAX),
        content=_text(entry["content"], f"{what} content", limits.KNOWLEDGE_CONTENT_BYTES_MAX),
        quote=_text(entry["quote"], f"{what} quote", limits.EVIDENCE_QUOTE_BYTES_MAX),
        confidence=_confidence(entry.get("confidence"), what),
        operation=operation,
    )


def _text(value: Any, what: str, bytes_max: int) -> str:
    if not isinstance(value, str):
        raise OutputRejected(f"{what}: it is no text")
    try:
        return codec.check_line(value, what=what, bytes_max=bytes_max)
    except Invalid as error:
        raise OutputRejected(error.message) from None


def _confidence(value: Any, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise OutputRejected(f"{what}: the confidence is no number from 0 to 1")
    return float(value)
