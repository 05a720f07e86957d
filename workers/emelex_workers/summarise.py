"""A Summary of any length of history: windows, lines chosen by rules, wording by the model where it passes.

    events ──windows──▶ leaf ──▶ lines ┐
    prior Summary ────parse──────────▶ ├─ merge ─ choose ─ word ─ choose ─▶ text
    tool calls ──────ActionLog───────▶ ┘

The module owns these invariants (behaviours 165, 171, 174–176, 178, 184–188):

- Each event is in exactly one leaf, and the leaves are stated in the provenance.
- The text is made of source lines in their own words, or of wordings that passed the guard against their one line;
  every line carries the sequence of its event. Tool output never speaks: only commands, outcomes and error lines.
- The text never holds more tokens than the target, by the engine's own count, and always fewer than what it replaces.
- Nothing in it has the shape of a secret.
- The same events, engine and settings give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Cancelled, PermanentFailure
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import outline, restate, secrets, tokens
from emelex_workers.text.fold import Fold, mentioned
from emelex_workers.text.outline import Line, Outline, Section
from emelex_workers.text.restate import Restater, Usage
from emelex_workers.text.windows import windows

WINDOWS_STATED_MAX: Final = 64
"""Windows that the provenance spells out; their digest binds all of them, so that its size does not grow."""
RULES_VERSION: Final = "summary-1"
WORDED_CHARACTERS_MIN: Final = 60
"""Shorter lines gain nothing from another wording."""
RECENCY_POINTS: Final = 12.0
"""How much the newest line is worth more than the oldest."""

NAMES_SHARE: Final = 0.15
"""Share of the room that is held for names which the chosen lines do not hold."""
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
    fold = Fold(prior=_parsed(prior_summary))
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


def _compose(fold: Fold, restater: Restater, room: int) -> tuple[str, Outline, int]:
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
    left_before = (fold.prior.left_out if fold.prior else 0) + fold.dropped
    margin = 0
    while True:
        chosen, left_out = _selected(fold, candidates, room - margin, cost)
        made = Outline(first_sequence=first, last_sequence=last, lines=tuple(chosen), left_out=left_before + left_out)
        text = outline.render(made)
        excess = engine.count_text(text) - room
        if chosen and excess <= 0:
            return text, made, sum(line in chosen for line in wordings.values())
        if not chosen:
            raise PermanentFailure(f"a Summary of {room} tokens has no room for a line")
        margin += max(excess, 1)


def _selected(fold: Fold, candidates: list[Line], room: int, cost: Callable[[Line], int]) -> tuple[list[Line], int]:
    """Choose lines, then the names that those lines lost, then more lines into what room is left (behaviour 188)."""
    chosen, _ = outline.choose(candidates, room - int(room * NAMES_SHARE), cost)
    names = list(mentioned(fold, "\n".join(line.text for line in chosen)))
    rest = [line for line in candidates if line not in set(chosen)]
    for further in (names, rest):
        more, _ = outline.choose(further, room - sum(map(cost, chosen)), cost)
        chosen = [*chosen, *more]
    return chosen, len(candidates) + len(names) - len(chosen)


def _worded(chosen: list[Line], restater: Restater) -> dict[Line, Line]:
    """Ask the model for the longest statements among the chosen lines; return those that passed."""
    asked = [line for line in chosen if line.section is Section.STATEMENTS and _is_wordy(line.text)]
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


def _aged(line: Line, first: int, last: int) -> Line:
    """Newer lines are worth more, old ones keep their order."""
    share = (line.sequence - first) / max(last - first, 1)
    score = line.score + RECENCY_POINTS * share
    return replace(line, score=score)


def _parsed(prior: StoredEvent | None) -> Outline | None:
    return outline.parse(prior.text, last_sequence=max(prior.sequence - 1, 1)) if prior is not None else None


def _check_budget(fold: Fold, *, budget: int, chunking: bool, source_tokens_max: int | None) -> None:
    if not chunking and (len(fold.leaves) > 1 or fold.tokens > budget):
        raise PermanentFailure(
            f"the source has more than the {budget} tokens that fit the model's context, and chunking is off",
            hint="turn chunking on, or choose a model with a longer context",
        )
    if source_tokens_max is not None and fold.tokens > source_tokens_max:
        raise PermanentFailure(f"the source has more than {source_tokens_max} tokens, the cap for folding")


def _provenance(
    fold: Fold,
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
        "window_count": len(fold.leaves),
        "windows": fold.leaves[:WINDOWS_STATED_MAX],
        "windows_sha256": hashlib.sha256(orjson.dumps(fold.leaves)).hexdigest(),
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
