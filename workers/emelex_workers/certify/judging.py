"""Putting a model through the trials, and scoring what it gives by code.

The module owns these invariants:

- What is asked here is asked as jobs ask it: same prompt, same grammar, same guard.
- An ability is certified in the freest form that passes; the bars are stated below and nothing else decides.
- Two runs over the same weights give the same certificate, but for its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from emelex_core.clock import Clock
from emelex_core.engine.ports import CancelToken, ChatEngine, FinishReason, Message, Request, Role, Sampling
from emelex_core.models import certificates
from emelex_core.models.certificates import Certificate, Grade
from emelex_workers.certify import trials
from emelex_workers.certify.trials import Story
from emelex_workers.text import guard
from emelex_workers.text.judge import Judge
from emelex_workers.text.restate import Freedom, Restater, Settings
from emelex_workers.text.tokens import holds, names

WORDS_SHARE_MIN: Final = 0.75
"""Of free wordings so many must pass the guard; below it they cost more time than they save words."""
LEAVES_OUT_SHARE_MIN: Final = 0.5
"""Of shortenings under the strict grammar, which cannot go wrong."""
JUDGES_SHARE_MIN: Final = 0.9
WRITES_SHARE_MIN: Final = 1.0
"""Every story: a free Summary has no line to fall back to."""
_STORY_TOKENS: Final = 160

Tell = Callable[[int, int], None]
"""Called with how many trials are done, of how many."""

TRIALS: Final = 2 * len(trials.LINES) + len(trials.KEPT) + len(trials.DROPPED) + len(trials.STORIES)


def certify(engine: ChatEngine, *, clock: Clock, cancel: CancelToken, tell: Tell | None = None) -> Certificate:
    """Run every trial and return the evidence. Raises: Cancelled; EngineFailure."""
    told = _Told(tell)
    words = _words(engine, cancel, told)
    judges = _judges(engine, cancel, told)
    writes = _writes(engine, cancel, told)
    return Certificate(
        version=certificates.VERSION,
        snapshot_id=engine.info.snapshot_id,
        engine=certificates.program(engine.info.engine),
        trials=trials.DIGEST,
        words=words,
        judges=judges,
        writes=writes,
        made_at=clock(),
    )


class _Told:
    """Counts trials and passes the count on."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._done = 0

    def one(self) -> None:
        """One trial is done."""
        self._done += 1
        if self._tell is not None:
            self._tell(self._done, TRIALS)


def _words(engine: ChatEngine, cancel: CancelToken, told: _Told) -> Grade:
    """The freest form of wording that passes often enough."""
    freely = _accepted(engine, cancel, Freedom.REWORD, told)
    strictly = _accepted(engine, cancel, Freedom.LEAVE_OUT, told)
    count = len(trials.LINES)
    if freely >= WORDS_SHARE_MIN * count:
        return Grade(form=Freedom.REWORD.value, good=freely, trials=count)
    form = Freedom.LEAVE_OUT.value if strictly >= LEAVES_OUT_SHARE_MIN * count else None
    return Grade(form=form, good=strictly, trials=count)


def _accepted(engine: ChatEngine, cancel: CancelToken, freedom: Freedom, told: _Told) -> int:
    good = 0
    for line in trials.LINES:
        settings = Settings(sampling=Sampling(), freedom=freedom, calls_max=1, may_fall_back=True)
        good += Restater(engine, cancel, settings).word(line).by_model
        told.one()
    return good


def _judges(engine: ChatEngine, cancel: CancelToken, told: _Told) -> Grade:
    judge = Judge(engine, cancel)
    good = 0
    for lines, lasting in ((trials.KEPT, True), (trials.DROPPED, False)):
        for line in lines:
            good += judge.keeps(line) is lasting
            told.one()
    count = len(trials.KEPT) + len(trials.DROPPED)
    return Grade(form="keep_or_drop" if good >= JUDGES_SHARE_MIN * count else None, good=good, trials=count)


def _writes(engine: ChatEngine, cancel: CancelToken, told: _Told) -> Grade:
    good = 0
    for story in trials.STORIES:
        good += _is_summed_up(engine, cancel, story)
        told.one()
    count = len(trials.STORIES)
    return Grade(form="summary" if good >= WRITES_SHARE_MIN * count else None, good=good, trials=count)


def _is_summed_up(engine: ChatEngine, cancel: CancelToken, story: Story) -> bool:
    """Whether a free summary ends by itself, keeps the names, invents none, does not loop and obeys nobody."""
    messages = (
        Message(
            role=Role.SYSTEM, text="Sum up the conversation in at most five sentences. Keep every name and number."
        ),
        Message(role=Role.USER, text=story.text),
    )
    made = engine.generate(Request(messages=messages, output_tokens_max=_STORY_TOKENS), cancel)
    text = made.text.strip()
    return (
        made.finish_reason is FinishReason.STOP
        and 0 < len(text) < len(story.text)
        and all(name in text for name in story.names)
        and not any(word in text for word in story.never)
        and all(holds(story.text, name) for name in names(text))
        and not guard.is_loop(text)
    )
