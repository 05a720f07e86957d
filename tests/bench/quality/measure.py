"""The measures of the page, over many transcripts: each a share with its interval, or a count that must be 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import score
import support  # noqa: F401 - tests/support is reached through it
from generate import Kind, Transcript, transcript
from score import Share
from systems import BASELINES, one_prompt
from wording import LANGUAGES

from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.events import Event, EventKind, TextPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.distil import Distillation, distil
from emelex_workers.summarise import SummaryDraft, summarise
from emelex_workers.text import restate, secrets
from stored_events import stored

FOLDS = 5
TARGET_TOKENS = 1_024
"""What the policy reserves for a Summary at the contexts in use (emelex_core/compaction_policy.py)."""
BASELINE_KNOWLEDGE = 24


@dataclass(slots=True)
class Figures:
    """Everything that was measured of one way of working."""

    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    counts: Counter[str] = field(default_factory=Counter[str])
    forms: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    def share(self, name: str, part: tuple[int, int]) -> None:
        """Add one transcript's part to a share."""
        self.shares.setdefault(name, Share()).add(*part)

    def none(self, name: str, found: Iterable[object]) -> None:
        """Count what must not be."""
        self.counts[name] += sum(1 for _ in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One way of working: an engine and how many calls a job may make."""

    engine: ChatEngine
    calls_max: int

    def summary(self, events: Sequence[StoredEvent], prior: StoredEvent | None = None) -> SummaryDraft:
        """Make a Summary."""
        return summarise(
            iter(events),
            prior_summary=prior,
            engine=self.engine,
            target_tokens=TARGET_TOKENS,
            cancel=CancelToken(),
            calls_max=self.calls_max,
        )

    def knowledge(self, events: Sequence[StoredEvent], existing: dict[str, str]) -> Distillation:
        """Distil Knowledge."""
        return distil(
            iter(events), engine=self.engine, existing=existing, cancel=CancelToken(), calls_max=self.calls_max
        )


def measure(seeds: Sequence[int], per_seed: int, run: Run, *, tell: Callable[[str], None]) -> Figures:
    """Measure the product over transcripts of several seeds."""
    figures = Figures()
    for seed in seeds:
        for index in range(per_seed):
            made = transcript(seed, index)
            _summaries(figures, made, seed, index, run)
            _knowledge(figures, made, seed, index, run)
            tell(made.name)
    return figures


def measure_baselines(seeds: Sequence[int], per_seed: int, engine: ChatEngine, *, model: bool) -> dict[str, Figures]:
    """Measure the baselines, at the product's budget."""
    found: dict[str, Figures] = {}
    systems = {**BASELINES, **({"one prompt": one_prompt} if model else {})}
    for seed in seeds:
        for index in range(per_seed):
            made = transcript(seed, index)
            for name, system in systems.items():
                _compare(found.setdefault(name, Figures()), made, system(stored(made.events), engine, TARGET_TOKENS))
    return found


def _compare(figures: Figures, made: Transcript, text: str) -> None:
    figures.share("anchors kept after one fold", score.kept(text, score.anchors(made)))
    figures.share("constraints kept with polarity", score.polarity(text, made, LANGUAGES[made.language].negations))
    figures.none("names that the source lacks", score.invented(text, score.source_text(made.events)))
    figures.none("poison in a Summary", score.leaked(text, made, Kind.POISON))


def _summaries(figures: Figures, made: Transcript, seed: int, index: int, run: Run) -> None:
    """One fold, and then four more over what goes on."""
    events = stored(made.events)
    draft = run.summary(events)
    _compare(figures, made, draft.text)
    figures.forms[draft.provenance["form"]] += 1
    figures.none("secrets in derived text", score.leaked(draft.text, made, Kind.SECRET))
    figures.none("Summaries over their target", [1] * (draft.tokens > TARGET_TOKENS))
    if index % 10 == 0:
        figures.share("same record, same bytes", (int(run.summary(events).text == draft.text), 1))
    wanted, source = score.anchors(made), score.source_text(made.events)
    for fold in range(1, FOLDS):
        further = transcript(seed, 1_000 * fold + index, turns=8, plain=True, poisoned=False)
        prior = _summary_event(draft.text, events[-1].sequence + 1)
        events = stored(further.events, first_sequence=prior.sequence + 1)
        draft = run.summary(events, prior)
        wanted += score.anchors(further)
        source += score.source_text(further.events)
    figures.share("anchors kept after five folds", score.kept(draft.text, wanted))
    figures.none("names that the source lacks", score.invented(draft.text, source))
    figures.none("Summaries over their target", [1] * (draft.tokens > TARGET_TOKENS))


def _knowledge(figures: Figures, made: Transcript, seed: int, index: int, run: Run) -> None:
    """One distillation of the whole, and one of each half, the second beside what the first left active."""
    events = stored(made.events)
    whole = run.knowledge(events, {})
    contents = [candidate.content for candidate in whole.candidates if not candidate.quarantined]
    wanted = score.durable(made)
    hits = [any(score.holds(content, plant) for content in contents) for plant in wanted]
    figures.share("Knowledge recall", (sum(hits), len(hits)))
    right = [*wanted, *made.of(Kind.FINDING)]
    good = [content for content in contents if any(score.holds(content, plant) for plant in right)]
    figures.share("Knowledge precision", (len(good), len(contents)))
    _evidence(figures, events, whole)
    derived = "\n".join(f"{candidate.content}\n{candidate.quote}" for candidate in whole.candidates)
    figures.none("secrets in derived text", score.leaked(derived, made, Kind.SECRET))
    figures.none("poison in active Knowledge", score.leaked("\n".join(contents), made, Kind.POISON, Kind.CLAIM))
    clean = transcript(seed, index, poisoned=False)
    unharmed = [candidate.content for candidate in run.knowledge(stored(clean.events), {}).candidates]
    before = [plant for plant in wanted if any(score.holds(content, plant) for content in unharmed)]
    figures.share("benign facts kept beside poison", score.kept("\n".join(contents), before))
    _updates(figures, made, events, run)


def _updates(figures: Figures, made: Transcript, events: list[StoredEvent], run: Run) -> None:
    half = next(place for place in range(len(events) // 2, len(events)) if events[place].kind is EventKind.USER)
    active = {
        candidate.key: candidate.content
        for candidate in run.knowledge(events[:half], {}).candidates
        if not candidate.quarantined
    }
    before = dict(active)
    second = run.knowledge(events[half:], active)
    for candidate in second.candidates:
        if candidate.quarantined:
            continue
        if candidate.operation == "tombstone":
            active.pop(candidate.key, None)
        else:
            active[candidate.key] = candidate.content
    news = made.of(Kind.NEW)
    right = [
        any(score.holds(content, plant) for content in active.values())
        and not any(plant.old in content for content in active.values())
        for plant in news
    ]
    figures.share("newest value active after an update", (sum(right), len(right)))
    olds = {plant.old for plant in news}
    touched = [key for key, content in before.items() if active.get(key) != content]
    figures.none("unrelated entries touched", [key for key in touched if not any(old in before[key] for old in olds)])


def _evidence(figures: Figures, events: list[StoredEvent], made: Distillation) -> None:
    by_id = {event.id: event for event in events}
    exact = [candidate.quote.encode() in by_id[candidate.event_id].text.encode() for candidate in made.candidates]
    figures.share("evidence that resolves byte for byte", (sum(exact), len(exact)))


def _summary_event(text: str, sequence: int) -> StoredEvent:
    return stored([Event(kind=EventKind.SUMMARY, parts=(TextPart(text=text),))], first_sequence=sequence)[0]


def secret_shapes(trials: int) -> list[str]:
    """Names of the shapes of which a trial's secret outlived masking, alone or in a sentence."""
    import random

    from shapes import SHAPES, secret

    failed: list[str] = []
    for name in SHAPES:
        for trial in range(trials):
            shape, value = secret(random.Random(f"{name}/{trial}"), name)
            texts = (shape, f"Please use {shape} for it.", f"Error: refused ({shape})", f'{{"log": "{shape}"}}')
            if any(value in secrets.mask(text) for text in texts):
                failed.append(name)
                break
    return failed


def full_calls() -> int:
    """How many calls a job may make in the product."""
    return restate.CALLS_MAX
