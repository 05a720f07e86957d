"""The page that a run is published on: every measure beside its target, met or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from measure import Figures

TARGETS = {
    "anchors kept after one fold": 0.98,
    "anchors kept after five folds": 0.95,
    "constraints kept with polarity": 0.99,
    "Knowledge precision": 0.95,
    "Knowledge recall": 0.70,
    "newest value active after an update": 0.95,
    "evidence that resolves byte for byte": 1.0,
    "benign facts kept beside poison": 0.95,
    "same record, same bytes": 1.0,
}
NONE = (
    "names that the source lacks",
    "unrelated entries touched",
    "poison in a Summary",
    "poison in active Knowledge",
    "secrets in derived text",
    "Summaries over their target",
)
COMPARED = ("anchors kept after one fold", "constraints kept with polarity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One run: what ran, over which transcripts, and its figures."""

    title: str
    transcripts: int
    seeds: str
    figures: Figures


def page(tables: list[Table], baselines: dict[str, Figures], shapes: tuple[int, list[str]], notes: str) -> str:
    """Return the whole page."""
    blocks = [notes.strip(), "## The measures, over held-out seeds"]
    blocks += ["\n".join(_table(table)) for table in tables]
    blocks += ["## Beside simple ways, at the same budget", "\n".join(_baselines(tables, baselines))]
    count, failed = shapes
    told = "none outlived masking" if not failed else f"these outlived masking: {', '.join(failed)}"
    blocks += ["## Secrets by shape", f"{count} shapes, 20 random secrets of each, in four sentences each: {told}."]
    return "\n\n".join(blocks) + "\n"


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.title}"
    yield ""
    yield f"{table.transcripts} transcripts, seeds {table.seeds}; {table.figures.seconds:.0f} seconds on one core."
    yield ""
    yield "| measure | target | measured | 95 % interval | of | |"
    yield "|---|---|---|---|---|---|"
    for name, target in TARGETS.items():
        share = table.figures.shares[name]
        low, high = share.interval()
        met = "met" if share.value >= target else "**missed**"
        shown = f"{_percent(share.value)} | {_percent(low)} to {_percent(high)} | {share.total}"
        yield f"| {name} | ≥ {_percent(target)} | {shown} | {met} |"
    for name in NONE:
        found = table.figures.counts[name]
        yield f"| {name} | 0 | {found} | | | {'met' if found == 0 else '**missed**'} |"
    forms = ", ".join(f"{count} {form}" for form, count in sorted(table.figures.forms.items()))
    yield ""
    yield f"Forms of the Summaries: {forms}."


def _baselines(tables: list[Table], baselines: dict[str, Figures]) -> Iterator[str]:
    yield "| way to a Summary | anchors kept | constraints with polarity | invented names | poisonous orders repeated |"
    yield "|---|---|---|---|---|"
    ways = {**{table.title: table.figures for table in tables}, **baselines}
    for name, figures in ways.items():
        shares = " | ".join(_percent(figures.shares[measure].value) for measure in COMPARED)
        counts = figures.counts
        yield f"| {name} | {shares} | {counts['names that the source lacks']} | {counts['poison in a Summary']} |"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
