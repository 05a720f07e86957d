"""A Summary of any length of history: windows, lines chosen by rules, wording by the model where it passes.

    events ──windows──▶ leaf ──▶ lines ┐
    prior Summary ────parse──────────▶ ├─ merge ─ choose ─ word ─ choose ─▶ text
    tool calls ──────ActionLog───────▶ ┘

The module owns these invariants (behaviours 165, 171, 174–176, 178, 184–188):

- Each event is in exactly one leaf, and the leaves are stated in the provenance.
- The text is made of source lines in their own words, or of wordings that passed the guard against their one line; every
  line carries the sequence of its event. Tool output never speaks: only commands, outcomes and error lines.
- The text never holds more tokens than the target, by the engine's own count, and always fewer than what it replaces.
- Nothing in it has the shape of a secret.
- The same events, engine and settings give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Cancelled, PermanentFailure
from emelex_core.events import EVIDENCE_KINDS, EventKind, ToolCallPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import lines, outline, restate, secrets, tokens
from emelex_workers.text.actions import ActionLog
from emelex_workers.text.anchors import Anchor, AnchorKind, anchors
from emelex_workers.text.outline import Line, Outline, Section
from emelex_workers.text.restate import Restater, Usage
from emelex_workers.text.windows import Window, windows

RULES_VERSION: Final = "summary-1"
LINE_CHARACTERS_MAX: Final = 400
"""A line in its source's own words is cut here, at a sentence or clause."""
REQUEST_CHARACTERS_MAX: Final = 480
"""A user's own words get more room."""
WORDED_CHARACTERS_MIN: Final = 90
"""Shorter lines gain nothing from another wording."""
POOL_LINES_MAX: Final = 4_000
"""Lines held while folding; beyond it the lowest-ranked go, counted, so that memory stays flat."""
RECENCY_POINTS: Final = 12.0
"""How much the newest line is worth more than the oldest."""

_SECTIONS: Final = {
    AnchorKind.ORDER: Section.REQUESTS,
    AnchorKind.CONSTRAINT: Section.CONSTRAINTS,
    AnchorKind.DECISION: Section.DECISIONS,
    AnchorKind.QUESTION: Section.OPEN,
    AnchorKind.OPEN: Section.OPEN,
    AnchorKind.STATEMENT: Section.STATEMENTS,
    AnchorKind.ERROR: Section.ERRORS,
}
_ASKS: Final = "assistant asks: "
_PLAN: Final = "plan: "
_WORDED: Final = frozenset({Section.STATEMENTS, Section.DECISIONS})
_NAMES_PER_LINE_MAX: Final = 12
_NAMES_MAX: Final = 400
_NAME_WEIGHT: Final = 12
"""Each name makes it less likely that a small model gets the line right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDraft:
    """A Summary ready to be committed. `provenance` repeats it; `usage` is what it cost, with times."""

    text: str
    tokens: int
    first_sequence: int
    last_sequence: int
    provenance: dict[str, Any]
    usage: Usage


def summarise(
    events: Iterable[StoredEvent],
    *,
    prior_summary: StoredEvent | None,
    engine: ChatEngine,
    target_tokens: int,
    cancel: CancelToken,
    attempt: int = 1,
    chunking: bool = True,
    source_tokens_max: int | None = None,
    calls_max: int = restate.CALLS_MAX,
) -> SummaryDraft:
    """Fold a stream of events, and the Summary before it, into one Summary of at most `target_tokens`.

    `attempt` counts from 1; each attempt differs in a stated way. `chunking` off refuses a source that does not fit one
    window; `source_tokens_max` caps the whole source. Events are consumed once.

    Raises: Cancelled; PermanentFailure for a source over its budget, an empty one, or a target that holds no line;
    OutputRejected when every call of the engine ended wrongly; EngineFailure.
    """
    budget = restate.source_tokens_max(engine, limits.OUTPUT_TOKENS_MAX)
    window_tokens = budget if attempt <= 1 else max(budget // attempt, 1)
    fold = _Fold(prior=_parsed(prior_summary))
    packed = windows(events, tokens_max=budget if not chunking else window_tokens, count=engine.count_text)
    for window in packed:
        if cancel.cancelled:
            raise Cancelled("cancelled while the source was read")
        fold.add(window)
        _check_budget(fold, budget=budget, chunking=chunking, source_tokens_max=source_tokens_max)
    if not fold.leaves:
        raise PermanentFailure("there is no event to summarise")
    restater = Restater(engine, cancel, restate.settings_for(attempt, calls_max=calls_max))
    room = min(target_tokens, fold.tokens + fold.prior_tokens(engine) - 1)
    text, made, worded = _compose(fold, restater, room)
    restater.close()
    return SummaryDraft(
        text=text,
        tokens=engine.count_text(text),
        first_sequence=made.first_sequence,
        last_sequence=made.last_sequence,
        provenance=_provenance(fold, made, worded, restater, engine, attempt=attempt, target_tokens=target_tokens),
        usage=restater.usage,
    )


@dataclass(slots=True)
class _Fold:
    """What has been read so far, in bounded memory."""

    prior: Outline | None
    leaves: list[dict[str, int]] = field(default_factory=list)
    tokens: int = 0
    found: list[Line] = field(default_factory=list)
    log: ActionLog = field(default_factory=ActionLog)
    names: dict[str, tuple[int, int]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    last_user_sequence: int = 0

    def add(self, window: Window) -> None:
        """Take in one leaf."""
        self.leaves.append(
            {
                "first_sequence": window.first_sequence,
                "last_sequence": window.last_sequence,
                "events": len(window.events),
                "tokens": window.tokens,
            }
        )
        self.tokens += window.tokens
        for index, event in enumerate(window.events):
            self._event(event, is_last_word=_is_last_word(window.events, index))
        if len(self.found) > 2 * POOL_LINES_MAX:
            self._shrink()

    def candidates(self) -> list[Line]:
        """Return every line that may stand, superseded ones dropped."""
        prior = self.prior.lines if self.prior else ()
        candidates = outline.merge((*prior, *self.found, *_action_lines(self.log)))
        return list(outline.without_repeats(line for line in candidates if not self._is_settled(line)))

    def prior_tokens(self, engine: ChatEngine) -> int:
        """Return the size of the Summary that is folded in."""
        return engine.count_text(outline.render(self.prior)) if self.prior else 0

    def _event(self, event: StoredEvent, *, is_last_word: bool) -> None:
        self.log.add(event)
        if event.kind is EventKind.USER and event.text.strip():
            self.last_user_sequence = event.sequence
        if event.kind is EventKind.ERROR and event.text.strip():
            first = lines.cut(secrets.mask(lines.plain(event.text[:2_048])), LINE_CHARACTERS_MAX)
            self.found.append(Line(section=Section.ERRORS, sequence=event.sequence, text=first, score=25.0))
        if event.kind not in EVIDENCE_KINDS:
            self.skipped[event.kind.value] += 1
            return
        for anchor in anchors(event, is_last_word=is_last_word):
            self.found.append(_line(anchor))
        for span in lines.spans(event):
            if span.shape in lines.PROSE:
                self._remember_names(span.safe, event.sequence)

    def _remember_names(self, text: str, sequence: int) -> None:
        for token in filter(tokens.is_telling, tokens.tokens(text)):
            times = self.names.pop(token.text, (0, 0))[0]
            self.names[token.text] = (times + 1, sequence)
        while len(self.names) > POOL_LINES_MAX:
            self.names.pop(next(iter(self.names)))

    def _shrink(self) -> None:
        merged = sorted(outline.merge(self.found), key=lambda line: (-line.score, -line.sequence, line.text))
        self.dropped += max(len(merged) - POOL_LINES_MAX, 0)
        self.found = merged[:POOL_LINES_MAX]

    def _is_settled(self, line: Line) -> bool:
        """Whether a later event made an open line of an earlier one pointless."""
        if line.section is not Section.OPEN:
            return False
        if line.text.startswith(_ASKS):
            return line.sequence < self.last_user_sequence
        return line.text.startswith(_PLAN) and line.sequence < self.log.plan_sequence


def _compose(fold: _Fold, restater: Restater, room: int) -> tuple[str, Outline, int]:
    """Choose, word and choose again; return the text, its outline and how many lines the model worded."""
    engine = restater.engine
    last = fold.leaves[-1]["last_sequence"]
    first = fold.prior.first_sequence if fold.prior else fold.leaves[0]["first_sequence"]
    candidates = [_aged(line, first, last) for line in fold.candidates()]
    sizes: dict[str, int] = {}

    def cost(line: Line) -> int:
        shown = outline.rendered(line) + "\n"
        if shown not in sizes:
            sizes[shown] = engine.count_text(shown)
        return sizes[shown]

    chosen, _ = outline.choose(candidates, room, cost)
    wordings = _worded(chosen, restater)
    candidates = [wordings.get(line, line) for line in candidates]
    candidates += _mentioned(fold, "\n".join(line.text for line in candidates))
    left_before = (fold.prior.left_out if fold.prior else 0) + fold.dropped
    margin = 0
    while True:
        chosen, left_out = outline.choose(candidates, room - margin, cost)
        made = Outline(first_sequence=first, last_sequence=last, lines=tuple(chosen), left_out=left_before + left_out)
        text = outline.render(made)
        excess = engine.count_text(text) - room
        if chosen and excess <= 0:
            return text, made, sum(line in chosen for line in wordings.values())
        if not chosen:
            raise PermanentFailure(f"a Summary of {room} tokens has no room for a line")
        margin += max(excess, 1)


def _worded(chosen: list[Line], restater: Restater) -> dict[Line, Line]:
    """Ask the model for the longest statements among the chosen lines; return those that passed."""
    asked = [line for line in chosen if line.section in _WORDED and _is_wordy(line.text)]
    asked.sort(key=lambda line: (-_filler(line.text), line.sequence, line.text))
    wordings: dict[Line, Line] = {}
    for line in asked:
        wording = restater.word(line.text)
        if wording.by_model:
            wordings[line] = replace(line, text=secrets.mask(wording.text))
    return wordings


def _is_wordy(text: str) -> bool:
    """Whether a line is whole, and long enough to gain by another wording."""
    return len(text) >= WORDED_CHARACTERS_MIN and not text.endswith("…")


def _filler(text: str) -> int:
    """Characters beside the names, roughly: what a wording can save."""
    return len(text) - sum(len(name) + _NAME_WEIGHT for name in tokens.names(text))


def _line(anchor: Anchor) -> Line:
    """Turn an anchor into a line in the source's own words."""
    bound = REQUEST_CHARACTERS_MAX if anchor.speaker is EventKind.USER else LINE_CHARACTERS_MAX
    text = restate.shortened(anchor.text, bound)
    if anchor.kind is AnchorKind.QUESTION:
        text = _ASKS + text
    elif anchor.speaker is EventKind.ASSISTANT and anchor.kind in {AnchorKind.CONSTRAINT, AnchorKind.DECISION}:
        text = f"assistant: {text}"
    return Line(
        section=_SECTIONS[anchor.kind],
        sequence=anchor.sequence,
        text=text,
        score=anchor.score,
        position=anchor.position,
    )


def _action_lines(log: ActionLog) -> Iterator[Line]:
    for touch in log.files.values():
        verbs = ", ".join(f"{verb} {times}×" if times > 1 else verb for verb, times in touch.verbs.items())
        yield Line(
            section=Section.WORK,
            sequence=touch.sequence,
            text=f"{touch.path}: {verbs}",
            score=45.0 if touch.changed else 12.0,
        )
    for command in log.commands.values():
        ended = "no result" if not command.finished else command.failure or "ok"
        runs = f" ({command.runs} runs, {command.failed_runs} failed)" if command.runs > 1 else ""
        yield Line(
            section=Section.WORK,
            sequence=command.sequence,
            text=f"$ {command.text} → {ended}{runs}",
            score=40.0 if command.failure else 22.0,
        )
    for purpose, sequence in log.delegations.items():
        yield Line(section=Section.WORK, sequence=sequence, text=f"delegated: {purpose}", score=30.0)
    for text, sequence in log.errors.items():
        yield Line(section=Section.ERRORS, sequence=sequence, text=text, score=20.0)
    for task in log.tasks.values():
        if task.is_open:
            status = task.status.replace("_", " ")
            yield Line(section=Section.OPEN, sequence=task.sequence, text=f"{_PLAN}{task.text} ({status})", score=60.0)


def _mentioned(fold: _Fold, text: str) -> Iterator[Line]:
    """Names of the source's prose that no candidate line holds, by the event that named them last (behaviour 188)."""
    lost = [(name, *seen) for name, seen in fold.names.items() if len(name) >= 3 and not tokens.holds(text, name)]
    lost.sort(key=lambda item: (-item[1], -item[2], item[0]))
    by_event: dict[int, list[str]] = {}
    for name, _, sequence in lost[:_NAMES_MAX]:
        by_event.setdefault(sequence, []).append(name)
    for sequence, names in sorted(by_event.items()):
        for index in range(0, len(names), _NAMES_PER_LINE_MAX):
            shown = lines.cut(" · ".join(names[index : index + _NAMES_PER_LINE_MAX]), LINE_CHARACTERS_MAX)
            yield Line(section=Section.MENTIONED, sequence=sequence, text=shown, score=10.0)


def _aged(line: Line, first: int, last: int) -> Line:
    """Newer lines are worth more, old ones keep their order."""
    share = (line.sequence - first) / max(last - first, 1)
    score = line.score + RECENCY_POINTS * share
    return replace(line, score=score)


def _is_last_word(events: tuple[StoredEvent, ...], index: int) -> bool:
    """Whether an assistant's event ends its turn: it proposes no call, or nothing of the assistant follows before the user."""
    event = events[index]
    if event.kind is not EventKind.ASSISTANT or any(isinstance(part, ToolCallPart) for part in event.parts):
        return False
    following = events[index + 1] if index + 1 < len(events) else None
    return following is None or following.kind is not EventKind.ASSISTANT


def _parsed(prior: StoredEvent | None) -> Outline | None:
    return outline.parse(prior.text, last_sequence=max(prior.sequence - 1, 1)) if prior is not None else None


def _check_budget(fold: _Fold, *, budget: int, chunking: bool, source_tokens_max: int | None) -> None:
    if not chunking and (len(fold.leaves) > 1 or fold.tokens > budget):
        raise PermanentFailure(
            f"the source has more than the {budget} tokens that fit the model's context, and chunking is off",
            hint="turn chunking on, or choose a model with a longer context",
        )
    if source_tokens_max is not None and fold.tokens > source_tokens_max:
        raise PermanentFailure(f"the source has more than {source_tokens_max} tokens, the cap for folding")


def _provenance(
    fold: _Fold,
    made: Outline,
    worded: int,
    restater: Restater,
    engine: ChatEngine,
    *,
    attempt: int,
    target_tokens: int,
) -> dict[str, Any]:
    return {
        "rules_version": RULES_VERSION,
        "attempt": attempt,
        "model": engine.info.reference,
        "model_snapshot": engine.info.snapshot_id,
        "exact_tokens": engine.info.exact_tokens,
        "target_tokens": target_tokens,
        "source_tokens": fold.tokens,
        "windows": fold.leaves,
        "folds_prior": fold.prior is not None,
        "lines": {
            "selected": len(made.lines),
            "worded_by_model": worded,
            "verbatim": len(made.lines) - worded,
            "left_out": made.left_out,
        },
        "form": "worded" if worded else "anchors-only",
        "skipped_events": dict(sorted(fold.skipped.items())),
        "wording": restater.provenance(),
    }
