"""Strict reading of what a model wrote (behaviours 170, 171, 184).

The module owns these invariants:

- Only a generation that finished by itself is read; reasoning in a closed `<think>` block is taken out first.
- A reply is plain or fenced JSON and nothing else: text around it, an unknown field, a duplicate key, a number that is
  not finite, or one bad candidate rejects the whole reply. All or nothing.
- An empty list of candidates is a success; an empty text is not.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

from emelex_core import codec, limits
from emelex_core.engine.ports import FinishReason, Generation
from emelex_core.errors import Invalid, OutputRejected
from emelex_workers.text import secrets

REPLY_BYTES_MAX: Final = 4 * limits.MIB
_MESSAGE_CHARACTERS_MAX: Final = 400

_THINK_CLOSED: Final = re.compile(r"\A\s*<think>.*?</think>", re.S)
_FENCED: Final = re.compile(r"\A\s*(`{3,})(?:json)?[^\S\n]*\n(?P<body>.*)\n\1\s*\Z", re.S | re.I)


class ReplyCandidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate as a model proposed it. Nothing in it is proven: the quote still has to be found in an event."""

    key: str
    content: str
    quote: str
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    operation: Literal["upsert", "tombstone"] = "upsert"


class _Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    candidates: Annotated[tuple[ReplyCandidate, ...], msgspec.Meta(max_length=limits.CANDIDATES_MAX)]


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

    The reply is `{"candidates": [{"key", "content", "quote", "confidence"?, "operation"?}, …]}` with at most 128
    entries and unique keys. Raises: OutputRejected naming the first thing that is wrong.
    """
    text = finished_text(generation)
    if fenced := _FENCED.match(text):
        text = fenced["body"]
    try:
        value = codec.parse_strict(text, what="reply", bytes_max=REPLY_BYTES_MAX)
        candidates = msgspec.convert(value, _Reply).candidates
        for candidate in candidates:
            _check(candidate)
    except Invalid as error:
        raise OutputRejected(secrets.mask(error.message[:_MESSAGE_CHARACTERS_MAX])) from None
    except msgspec.ValidationError as error:
        raise OutputRejected(f"reply: {secrets.mask(str(error)[:_MESSAGE_CHARACTERS_MAX])}") from None
    keys = [candidate.key for candidate in candidates]
    if len(set(keys)) != len(keys):
        raise OutputRejected("reply: a key stands twice")
    return candidates


def _check(candidate: ReplyCandidate) -> None:
    codec.check_line(candidate.key, what="reply key", bytes_max=limits.KNOWLEDGE_KEY_BYTES_MAX)
    codec.check_line(candidate.content, what="reply content", bytes_max=limits.KNOWLEDGE_CONTENT_BYTES_MAX)
    codec.check_line(candidate.quote, what="reply quote", bytes_max=limits.EVIDENCE_QUOTE_BYTES_MAX)
