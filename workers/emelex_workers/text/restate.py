"""One bounded model call a line: the model words, the code has chosen and checks (measured.md, "Quality").

The module owns these invariants:

- Every call of a job has the same instruction in front, so that an engine can reuse the prefix; the line
  comes last, and is data.
- A wording that fails its check is never used: the line stands in its source's own words.
- Calls are bounded for a job. What an attempt after a refusal changes is stated (`settings_for`, ADR 0021).
- An engine of whose texts none is even a try (empty, truncated, an echo, a loop, a refusal, JSON, an error message) has
  failed the attempt, by name. At the last attempt it fails nobody: the rules' own lines stand, and say so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, ChatEngine, Generation, Message, Request, Role, Sampling
from emelex_core.errors import Cancelled, OutputRejected, PermanentFailure
from emelex_workers.text import grammar, guard
from emelex_workers.text.guard import UNUSABLE, Refusal, Verdict

PROMPT_VERSION: Final = "restate-2"
CALLS_MAX: Final = 16
LINE_CHARACTERS_MAX: Final = 600
"""A longer line is not sent: the small models lose its end."""
LAST_ATTEMPT: Final = limits.FAILURES_TERMINAL
"""From this attempt on an engine that gives no usable text fails nobody: the rules' own lines stand, and say so."""
_SPARE_TOKENS: Final = 16
"""A wording may not be longer than its line, so neither may its call be, but for a little room to end."""
_HEARD_CALLS: Final = 1
"""A model that is certified for no wording is asked for one all the same: a job notices when it does not work."""
_UNUSABLE_CALLS: Final = 3
"""So many unusable texts in a row show that the engine does not do it; asking on would only cost time."""

_CAUSES: Final = {
    Refusal.TRUNCATED: "output truncated at the token limit",
    Refusal.NO_TEXT: "tool calls instead of text",
    Refusal.EMPTY: "empty output",
    Refusal.CONTROL_TEXT: "control tokens as text",
    Refusal.ECHO: "an echo of the instruction",
    Refusal.REFUSED: "a refusal to answer",
    Refusal.LOOP: "a text that repeats itself",
    Refusal.NOT_PROSE: "JSON, markup or an error message",
}

INSTRUCTION: Final = (
    "You shorten one line. Write the same facts in fewer words, in the same language. "
    "Copy every name, path, number, `code` and negation unchanged. Add nothing."
)
"""No example follows: the smallest models copy examples into their answers (measured.md)."""


class Freedom(StrEnum):
    """What a model may write: one free line that the guard judges, or the line's own words with some left out."""

    REWORD = "reword"
    LEAVE_OUT = "leave_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the calls of one attempt are made; `may_fall_back` says that no usable text is no failure."""

    sampling: Sampling
    freedom: Freedom
    calls_max: int
    may_fall_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A line as it will stand: `by_model` says whose words they are."""

    text: str
    by_model: bool


@dataclass(slots=True)
class Usage:
    """What the calls of a job cost."""

    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a model is trusted with. Without a certificate it is asked for free wordings, and keeps what passes.

    `words` is the freest form of wording that it has shown, None where it has shown none: then it is only heard.
    `judges` says that it may leave out candidates for Knowledge.
    """

    certified: bool
    words: Freedom | None
    judges: bool

    def stated(self) -> dict[str, Any]:
        """As it stands in a record."""
        return {"certified": self.certified, "words": self.words and self.words.value, "judges": self.judges}

    @classmethod
    def read(cls, stated: Mapping[str, Any]) -> Abilities:
        """From a record. Raises: KeyError, ValueError for what is none."""
        words = stated["words"]
        return cls(
            certified=bool(stated["certified"]),
            words=None if words is None else Freedom(words),
            judges=bool(stated["judges"]),
        )


UNCERTIFIED: Final = Abilities(certified=False, words=Freedom.REWORD, judges=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Which attempt at a job this is, counted from 1, and how many earlier ones the gate refused.

    What an attempt changes depends on the refusals alone: one that was killed is repeated, so that what it finished is
    of use. `attempt` decides whether another one is left, `able` what the model is asked for.
    """

    attempt: int = 1
    refusals: int = 0
    able: Abilities = UNCERTIFIED

    @property
    def variation(self) -> int:
        """Which way of working it is, counted from 1."""
        return self.refusals + 1

    @property
    def is_last(self) -> bool:
        """Whether a failure now would be the end."""
        return self.attempt >= LAST_ATTEMPT


FIRST_TRY: Final = Try()


def settings_for(this: Try, *, calls_max: int = CALLS_MAX) -> Settings:
    """Return the settings of an attempt.

    First greedy, as freely as the model may; after a refusal sampled with a new seed, under a grammar that only allows
    to leave words out, and in smaller windows (`summarise`); after the second the same with another seed and half the
    calls. At the last attempt text that is no use is no failure.
    """
    most = calls_max if this.able.words is not None else min(calls_max, _HEARD_CALLS)
    if this.variation == 1:
        freedom = this.able.words or Freedom.LEAVE_OUT
        return Settings(sampling=Sampling(), freedom=freedom, calls_max=most, may_fall_back=this.is_last)
    sampling = Sampling(temperature=0.3, seed=this.variation)
    calls = most if this.variation == 2 else max(most // 2, min(most, 1))
    return Settings(sampling=sampling, freedom=Freedom.LEAVE_OUT, calls_max=calls, may_fall_back=this.is_last)


@dataclass(slots=True)
class Restater:
    """Words lines with one engine, for one attempt at one job."""

    engine: ChatEngine
    cancel: CancelToken
    settings: Settings
    usage: Usage = field(default_factory=Usage)
    refusals: Counter[str] = field(default_factory=Counter[str])
    accepted: int = 0
    _unusable_in_a_row: int = 0
    _last_unusable: Refusal | None = None

    def word(self, line: str) -> Wording:
        """Return the line in the model's words where they pass every check, else in its own.

        Raises: Cancelled; PermanentFailure; EngineFailure.
        """
        if self.cancel.cancelled:
            raise Cancelled("cancelled while lines were worded")
        if not self.can_ask or len(line) > LINE_CHARACTERS_MAX or "[control token]" in line:
            return Wording(text=line, by_model=False)
        verdict = self._judged(line, self.settings.freedom)
        if verdict.refusal in UNUSABLE and self.settings.freedom is Freedom.REWORD and self.can_ask:
            verdict = self._judged(line, Freedom.LEAVE_OUT)
        if verdict.refusal:
            return Wording(text=line, by_model=False)
        self.accepted += 1
        return Wording(text=verdict.text, by_model=True)

    @property
    def can_ask(self) -> bool:
        """Whether another call is within the job's bound and the engine is not known to be broken."""
        return self.usage.calls < self.settings.calls_max and self._unusable_in_a_row < _UNUSABLE_CALLS

    def close(self) -> None:
        """Raise OutputRejected when calls were made, none gave usable text, and another attempt is left."""
        if self.settings.may_fall_back:
            return
        unusable = sum(self.refusals[refusal.value] for refusal in UNUSABLE)
        if self.usage.calls and unusable == self.usage.calls and self._last_unusable is not None:
            raise OutputRejected(
                f"the model gave no usable text in {self.usage.calls} calls: {_CAUSES[self._last_unusable]}"
            )

    def provenance(self) -> dict[str, Any]:
        """Return what repeats this run: prompt, grammar, sampling and counts; no times."""
        return {
            "prompt_version": PROMPT_VERSION,
            "prompt_sha256": PROMPT_SHA256,
            "freedom": self.settings.freedom.value,
            "grammar_sha256": GRAMMAR_SHA256,
            "temperature": self.settings.sampling.temperature,
            "seed": self.settings.sampling.seed,
            "calls_max": self.settings.calls_max,
            "calls": self.usage.calls,
            "worded_by_model": self.accepted,
            "rejected": dict(sorted(self.refusals.items())),
        }

    def _judged(self, line: str, freedom: Freedom) -> Verdict:
        verdict = guard.check(self._ask(line, freedom), line, instruction=INSTRUCTION)
        self._count(verdict.refusal)
        return verdict

    def _count(self, refusal: Refusal | None) -> None:
        if refusal in UNUSABLE:
            self._unusable_in_a_row += 1
            self._last_unusable = refusal
        else:
            self._unusable_in_a_row = 0
        if refusal is not None:
            self.refusals[refusal.value] += 1

    def _ask(self, line: str, freedom: Freedom) -> Generation:
        request = Request(
            messages=prompt(line),
            output_tokens_max=self.engine.count_text(line) + _SPARE_TOKENS,
            grammar=grammar.ONE_LINE
            if freedom is Freedom.REWORD
            else grammar.leaving_out(line, force=guard.FORCE_WORDS),
            stop=("\n",),
            sampling=self.settings.sampling,
        )
        generation = self.engine.generate(request, self.cancel)
        self.usage.calls += 1
        self.usage.prompt_tokens += generation.prompt_tokens
        self.usage.output_tokens += generation.output_tokens
        self.usage.seconds += generation.seconds
        return generation


def prompt(line: str) -> tuple[Message, ...]:
    """Return the messages that ask for one line's wording."""
    return Message(role=Role.SYSTEM, text=INSTRUCTION), Message(role=Role.USER, text=line)


def source_tokens_max(engine: ChatEngine, output_tokens_max: int) -> int:
    """Return the safe budget for source text: context minus prompt and output, by the engine's own count.

    Raises: PermanentFailure when nothing is left.
    """
    context = engine.info.context_tokens
    output = min(output_tokens_max, context // 4)
    room = context - output - engine.count_prompt(prompt(""))
    if room <= 0:
        raise PermanentFailure(f"the model's context of {context} tokens does not hold the prompt")
    return room


GRAMMAR_SHA256: Final = hashlib.sha256(grammar.ONE_LINE.encode()).hexdigest()
PROMPT_SHA256: Final = hashlib.sha256(
    "\x1e".join(f"{message.role.value}\x1f{message.text}" for message in prompt("")).encode()
).hexdigest()
