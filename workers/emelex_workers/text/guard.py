"""What a model's wording of one line must hold against that line (behaviours 184 and 188).

The module owns these invariants:

- A wording is accepted only when it is the line with words left out: content words in the line's own order, nothing
  invented, no name, number or quote lost, and what the line denies, demands or doubts is denied, demanded or doubted
  still.
- A refused wording is never repaired: the caller puts the source's own words in its place.
- Each refusal has one reason, so that provenance can count them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emelex_core.engine.ports import FinishReason, Generation
from emelex_core.errors import OutputRejected
from emelex_workers.text import cues, keys, lines, reply, secrets
from emelex_workers.text.cues import Cue
from emelex_workers.text.tokens import holds, names, quotations

LENGTH_FACTOR_MAX: Final = 1.0
"""A restatement longer than its line has gained nothing."""
KEPT_WORDS_MIN: Final = 0.6
"""Share of the line's content words that must stand in the wording: filler goes, statements stay."""

_WORDS_OF_FORCE: Final = """
must always only require requires required should exactly least most until unless except before after if when once
because instead may might can could would will likely probably possibly seem seems appear appears looks almost
nearly about partly some all every than immer muss müssen nur soll sollen erst wenn falls weil kann könnte
vielleicht wohl fast alle toujours seulement doit si quand parce peut siempre solo sólo debe cuando porque puede
altijd alleen moet als omdat kan sempre deve
"""


class Refusal(StrEnum):
    """Why a wording was refused."""

    TRUNCATED = "truncated"
    NO_TEXT = "no_text"
    EMPTY = "empty"
    CONTROL_TEXT = "control_text"
    ECHO = "echo"
    REFUSED = "refused"
    LOOP = "loop"
    NOT_PROSE = "not_prose"
    TOO_LONG = "too_long"
    UNFINISHED = "unfinished"
    INVENTED = "invented"
    LOST = "lost"
    POLARITY = "polarity"
    OFF_TOPIC = "off_topic"
    SPEAKER = "speaker"
    LEAKED = "leaked"
    UNCHANGED = "unchanged"


PROTOCOL: Final = frozenset({Refusal.TRUNCATED, Refusal.NO_TEXT, Refusal.EMPTY})
"""The generation did not end as text."""
UNUSABLE: Final = PROTOCOL | {
    Refusal.CONTROL_TEXT,
    Refusal.ECHO,
    Refusal.REFUSED,
    Refusal.LOOP,
    Refusal.NOT_PROSE,
}
"""Refusals that speak of an engine which does not do what it is asked, rather than of a weak wording (ADR 0021)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cleaned wording and None, or the empty text and the reason for its refusal."""

    text: str
    refusal: Refusal | None


_LABEL: Final = re.compile(
    r"\A(?:(?:line|rewritten|rewrite|short|shorter|answer|sentence|summary|output|note)\b[^:]{0,20}:\s*)+", re.I
)
_CONTROL: Final = re.compile(r"<\||\|>|<｜|</?s>|\[/?INST\]|\[control token\]|<(?:start|end)_of_turn>")
_REFUSING: Final = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|an ai|just an ai)|as an ai|as a language model|i (?:can(?:not|['’]t)"
    r"|am not able to) (?:help|assist|provide|comply|do that|fulfil)|i apologi[sz]e|es tut mir leid|je suis désolé"
    r"|lo siento)\b",
    re.I,
)
_NOT_PROSE: Final = re.compile(
    r"[{\[<]|```|(?:http/\S{1,8} )?[1-5]\d\d\b[: ]|(?:internal server |fatal |api |unexpected )?(?:error|exception)\b"
    r"|traceback \(|\w{1,60}(?:error|exception): |(?:service|model) (?:is )?(?:un|over)|rate limit|bad gateway|null\Z",
    re.I,
)
"""What programs write where a sentence was asked for: JSON, markup, and their own errors."""
FORCE_WORDS: Final = frozenset(_WORDS_OF_FORCE.split())
"""Words that say how strongly, when and why: leaving one out makes another statement."""

_FIRST_PERSON: Final = re.compile(r"\b(?:i|i['’](?:m|ve|ll|d)|my|me|we|we['’](?:re|ve|ll)|our|us|you|your)\b", re.I)
_ENDS: Final = re.compile(r"[.!?。！？)\]`\"”’»]\Z")
_CAPITALISED: Final = re.compile(r"(?<![\w'’])[A-Z][a-z]{2,}(?!\w)")


def check(generation: Generation, line: str, *, instruction: str) -> Verdict:
    """Judge a generation that was asked to reword `line`; never raises for what a model can write."""
    if generation.finish_reason is FinishReason.LENGTH:
        return Verdict(text="", refusal=Refusal.TRUNCATED)
    if generation.finish_reason is not FinishReason.STOP:
        return Verdict(text="", refusal=Refusal.NO_TEXT)
    try:
        raw = reply.finished_text(generation)
    except OutputRejected:
        return Verdict(text="", refusal=Refusal.EMPTY)
    if _CONTROL.search(raw):
        return Verdict(text="", refusal=Refusal.CONTROL_TEXT)
    text = _cleaned(raw)
    refusal = refusal_of(text, line, instruction=instruction)
    return Verdict(text="" if refusal else text, refusal=refusal)


def refusal_of(text: str, line: str, *, instruction: str) -> Refusal | None:
    """Return the first reason why a wording may not stand for its line, or None."""
    if not text:
        return Refusal.EMPTY
    if keys.normal_form(text) == keys.normal_form(line):
        return Refusal.UNCHANGED
    if _is_echo(text, line, instruction):
        return Refusal.ECHO
    if _REFUSING.search(text) and not _REFUSING.search(line):
        return Refusal.REFUSED
    if is_loop(text):
        return Refusal.LOOP
    if _NOT_PROSE.match(text) and not _NOT_PROSE.match(line):
        return Refusal.NOT_PROSE
    if len(text) > LENGTH_FACTOR_MAX * len(line):
        return Refusal.TOO_LONG
    if not _ENDS.search(text) and _ENDS.search(line):
        return Refusal.UNFINISHED
    if secrets.find(text):
        return Refusal.LEAKED
    return _unfaithful(text, line)


def is_loop(text: str) -> bool:
    """Whether a text repeats itself: one word three times in a row, or a phrase of four words twice or more."""
    words = keys.normal_form(text).split()
    if any(words[index] == words[index + 1] == words[index + 2] for index in range(len(words) - 2)):
        return True
    phrases = Counter(tuple(words[index : index + 4]) for index in range(len(words) - 3))
    return any(times >= 2 for times in phrases.values())


def _unfaithful(text: str, line: str) -> Refusal | None:
    if any(not holds(line, name) for name in (*names(text), *quotations(text), *_capitalised(text, line))):
        return Refusal.INVENTED
    if any(not holds(text, name) for name in (*names(line), *quotations(line))):
        return Refusal.LOST
    if any(text.count(mark) != line.count(mark) for mark in (secrets.REMOVED, "?")):
        return Refusal.LOST
    if cues.count(text, Cue.NEGATION) != cues.count(line, Cue.NEGATION) or _force(text) != _force(line):
        return Refusal.POLARITY
    if _FIRST_PERSON.search(text) and not _FIRST_PERSON.search(line):
        return Refusal.SPEAKER
    return Refusal.OFF_TOPIC if _is_off_topic(text, line) else None


def _is_off_topic(text: str, line: str) -> bool:
    """Whether the wording is anything but the line with words left out.

    Small models swap who does what, and turn a report into an order (`Created` into `Create`): words are compared whole
    and in order.
    """
    source, wording = keys.content_words(line), keys.content_words(text)
    remaining = iter(source)
    in_order = all(word in remaining for word in wording)
    return not in_order or len(wording) < KEPT_WORDS_MIN * len(source)


def _force(text: str) -> Counter[str]:
    return Counter(word for word in re.findall(r"\w+", text.lower()) if word in FORCE_WORDS)


def _capitalised(text: str, line: str) -> tuple[str, ...]:
    """Capitalised words inside the wording that the line does not write, in any case: invented names."""
    known = {word.casefold() for word in re.findall(r"\w+", line)}
    return tuple(
        match[0]
        for match in _CAPITALISED.finditer(text)
        if match[0].casefold() not in known and match.start() > 0 and text[: match.start()].rstrip()[-1:] not in ".!?:"
    )


def _is_echo(text: str, line: str, instruction: str) -> bool:
    told = keys.frame(instruction) - keys.frame(line)
    return keys.containment(keys.frame(text) - keys.frame(line), told) > 0.5 and len(keys.frame(text) & told) >= 2


def _cleaned(text: str) -> str:
    text = _LABEL.sub("", lines.plain(text.split("\n", 1)[0]))
    if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`" and text.count(text[0]) == 2:
        text = text[1:-1].strip()
    return text.removeprefix("- ").strip()
