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
- The same events, engine and settings give the same bytes, whether or not earlier attempts were killed on the way.
- Nothing leaves that the gate has not passed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from emelex_core import faults, limits
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Cancelled, OutputRejected, PermanentFailure
from emelex_core.sessions.records import StoredEvent
from emelex_workers.keeping import Keeper, NowhereKeeper
from emelex_workers.text import fold_state, gate, outline, restate, secrets, tokens
from emelex_workers.text.fold import Fold
from emelex_workers.text.outline import Line, Outline, Section
from emelex_workers.text.restate import FIRST_TRY, Restater, Try, Usage
from emelex_workers.text.selection import select
from emelex_workers.text.windows import Window, windows

WINDOWS_STATED_MAX: Final = 64
"""Windows that the provenance spells out; their digest binds all of them, so that its size does not grow."""
RULES_VERSION: Final = "summary-3"
WORDED_CHARACTERS_MIN: Final = 60
"""Shorter lines gain nothing from another wording."""
RECENCY_POINTS: Final = 12.0
"""How much the newest line is worth more than the oldest."""

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
    this: Try = FIRST_TRY,
    chunking: bool = True,
    source_tokens_max: int | None = None,
    calls_max: int = restate.CALLS_MAX,
    keeper: Keeper | None = None,
) -> SummaryDraft:
    """Fold a stream of events, and the Summary before it, into one Summary of at most `target_tokens`.

    `this` says which attempt it is; after a refusal each differs in a stated way. `chunking` off refuses a source that
    does not fit one window; `source_tokens_max` caps the whole source. Events are consumed once; those that `keeper`
    has the leaves of are passed over.

    Raises: Cancelled; PermanentFailure for a source over its budget, an empty one, or a target that holds no line;
    OutputRejected when no call of the engine gave usable text, or when the gate refuses the whole; EngineFailure.
    """
    budget = restate.source_tokens_max(engine, limits.OUTPUT_TOKENS_MAX)
    window_tokens = max(budget // this.variation, 1) if chunking else budget
    fold = _resumed(keeper or NowhereKeeper(), _parsed(prior_summary), engine, window_tokens)
    for window in _windows(events, fold, keeper or NowhereKeeper(), engine, window_tokens):
        if cancel.cancelled:
            raise Cancelled("cancelled while the source was read")
        fold.add(window)
        _check_budget(fold, budget=budget, chunking=chunking, source_tokens_max=source_tokens_max)
    if not fold.leaves:
        raise PermanentFailure("there is no event to summarise")
    restater = Restater(engine, cancel, restate.settings_for(this, calls_max=calls_max))
    source_tokens = fold.tokens + fold.prior_tokens(engine)
    text, made, worded = _compose(fold, restater, min(target_tokens, source_tokens - 1))
    restater.close()
    return SummaryDraft(
        text=text,
        tokens=engine.count_text(text),
        first_sequence=made.first_sequence,
        last_sequence=made.last_sequence,
        provenance=_provenance(fold, made, worded, restater, engine, this=this, target_tokens=target_tokens),
        usage=restater.usage,
    )


def _resumed(keeper: Keeper, prior: Outline | None, engine: ChatEngine, window_tokens: int) -> Fold:
    """The fold as an earlier attempt left it, or a new one; what decides its leaves stands in the settings."""
    info = engine.info
    shown = "" if prior is None else outline.render(prior)
    decided_by = [fold_state.VERSION, RULES_VERSION, info.snapshot_id, info.exact_tokens, window_tokens, shown]
    found = keeper.resume(hashlib.sha256(orjson.dumps(decided_by)).hexdigest())
    return Fold(prior=prior) if found is None else fold_state.restored(found.state, found.leaves, prior)


def _windows(
    events: Iterable[StoredEvent], fold: Fold, keeper: Keeper, engine: ChatEngine, window_tokens: int
) -> Iterator[Window]:
    """Yield the windows that the fold has not read; each is a finished leaf when the next one is asked for."""
    done = fold.leaves[-1].last_sequence if fold.leaves else 0
    further = (event for event in events if event.sequence > done)
    for window in windows(further, tokens_max=window_tokens, count=engine.count_text):
        yield window
        keeper.finished(
            fold.leaves,
            read_bytes=sum(event.payload_bytes for event in window.events),
            chain=window.events[-1].chain,
            state=lambda: fold_state.saved(fold),
        )
        faults.reach("fold.leaf")


def _compose(fold: Fold, restater: Restater, room: int) -> tuple[str, Outline, int]:
    """Choose, word and choose again; return the text, its outline and how many lines the model worded."""
    engine = restater.engine
    last = fold.leaves[-1].last_sequence
    first = fold.prior.first_sequence if fold.prior else fold.leaves[0].first_sequence
    candidates = [_aged(line, first, last) for line in fold.candidates()]
    sizes: dict[str, int] = {}

    def cost(line: Line) -> int:
        shown = outline.rendered(line) + "\n"
        if shown not in sizes:
            sizes[shown] = engine.count_text(shown)
        return sizes[shown]

    wordings = _worded(select(fold, candidates, room, cost).lines, restater)
    selected = frozenset(candidates)
    candidates = [wordings.get(line, line) for line in candidates]
    left_before = (fold.prior.left_out if fold.prior else 0) + fold.dropped
    margin = 0
    while True:
        found = select(fold, candidates, room - margin, cost)
        made = Outline(
            first_sequence=first,
            last_sequence=last,
            lines=tuple(found.lines),
            left_out=left_before + found.left_out,
        )
        text = outline.render(made)
        excess = engine.count_text(text) - room
        if found.lines and excess <= 0:
            _pass_gate(fold, made, text, selected=selected | found.offered, wordings=wordings, engine=engine, room=room)
            return text, made, sum(line in found.lines for line in wordings.values())
        if not found.lines:
            raise PermanentFailure(f"a Summary of {room} tokens has no room for a line")
        margin += max(excess, 1)


def _pass_gate(
    fold: Fold,
    made: Outline,
    text: str,
    *,
    selected: frozenset[Line],
    wordings: dict[Line, Line],
    engine: ChatEngine,
    room: int,
) -> None:
    """Raise OutputRejected when the gate refuses the Summary."""
    found = gate.fault(
        text,
        made,
        selected=selected,
        wordings=wordings,
        tokens=engine.count_text(text),
        target_tokens=room,
        source_tokens=fold.tokens + fold.prior_tokens(engine),
    )
    if found is not None:
        raise OutputRejected(f"the Summary may not be committed: {found.value}")


def _worded(chosen: list[Line], restater: Restater) -> dict[Line, Line]:
    """Ask the model for the longest statements among the chosen lines; return those that passed.

    It is asked for one line at least, so that a model which does not work is noticed by every job.
    """
    statements = [line for line in chosen if line.section is Section.STATEMENTS]
    asked = [line for line in statements if _is_wordy(line.text)]
    asked.sort(key=lambda line: (-_filler(line.text), line.sequence, line.text))
    asked = asked or sorted(statements or chosen, key=lambda line: (-len(line.text), line.sequence, line.text))[:1]
    wordings: dict[Line, Line] = {}
    for line in asked:
        wording = restater.word(line.text)
        if wording.by_model and line.section is Section.STATEMENTS and _is_wordy(line.text):
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
    this: Try,
    target_tokens: int,
) -> dict[str, Any]:
    return {
        "rules_version": RULES_VERSION,
        "attempt": this.attempt,
        "refusals": this.refusals,
        "abilities": this.able.stated(),
        "model": engine.info.reference,
        "model_snapshot": engine.info.snapshot_id,
        "exact_tokens": engine.info.exact_tokens,
        "target_tokens": target_tokens,
        "source_tokens": fold.tokens,
        "window_count": len(fold.leaves),
        "windows": [asdict(leaf) for leaf in fold.leaves[:WINDOWS_STATED_MAX]],
        "windows_sha256": hashlib.sha256(orjson.dumps([asdict(leaf) for leaf in fold.leaves])).hexdigest(),
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
