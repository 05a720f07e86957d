"""Measures the quality of Summaries and Knowledge, and prints or writes the page: `make quality`.

    python -P tests/bench/quality [--model REF] [--per-seed N] [--model-per-seed N] [--prompts-per-seed N]
        [--write docs/quality.md]

Runs the rules alone over held-out seeds, and the product with a model over fewer transcripts of the same seeds. One
process, one thread; the seeds are fixed, so that two runs of one release give the same shares.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from generate import HELD_OUT_FROM
from measure import Figures, Run, full_calls, measure, measure_baselines, secret_shapes
from page import Table, page
from shapes import SHAPES

from emelex_core.engine.ports import ChatEngine
from emelex_core.models.load import load_engine
from emelex_core.models.resolve import resolve_model

SEEDS = range(HELD_OUT_FROM + 1, HELD_OUT_FROM + 6)
TUNED = range(1, 6)
NOTES = Path(__file__).with_name("notes.md")


def main() -> None:
    """Run, and print the page or write it."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(options.models or folder)
        resolved = resolve_model(options.model, models_dir=models, endpoints={})
        with load_engine(resolved, threads=1) as engine:
            text = _page(engine, options)
    if options.write:
        Path(options.write).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def _page(engine: ChatEngine, options: argparse.Namespace) -> str:
    tables: list[Table] = []
    for title, seeds, count, calls in (
        ("rules alone", SEEDS, options.per_seed, 0),
        ("rules alone, on the seeds that they were tuned on", TUNED, options.per_seed, 0),
        (f"rules and {engine.info.reference}", SEEDS, options.model_per_seed, full_calls()),
    ):
        if count:
            figures = _measured(engine, seeds, count, calls)
            tables.append(
                Table(title=title, transcripts=len(seeds) * count, seeds=f"{seeds[0]} to {seeds[-1]}", figures=figures)
            )
    baselines = measure_baselines(SEEDS, options.per_seed, engine, model=False)
    if options.prompts_per_seed:
        free = measure_baselines(SEEDS, options.prompts_per_seed, engine, model=True)["one prompt"]
        baselines[f"one prompt, {engine.info.reference}, {len(SEEDS) * options.prompts_per_seed} transcripts"] = free
    shapes = secret_shapes(20)
    return page(tables, baselines, (len(SHAPES), shapes), NOTES.read_text("utf-8"))


def _measured(engine: ChatEngine, seeds: range, count: int, calls: int) -> Figures:
    started = time.monotonic()
    figures = measure(seeds, count, Run(engine=engine, calls_max=calls), tell=_tell)
    figures.seconds = time.monotonic() - started
    return figures


def _tell(name: str) -> None:
    sys.stderr.write(f"{name}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the quality of Summaries and Knowledge.")
    parser.add_argument("--model", default="builtin:smollm2-135m", help="reference of the model")
    parser.add_argument("--models", help="a folder for derived models; a temporary one without it")
    parser.add_argument("--per-seed", type=int, default=40, help="transcripts a seed for the rules")
    parser.add_argument("--model-per-seed", type=int, default=20, help="transcripts a seed with the model; 0 for none")
    parser.add_argument("--prompts-per-seed", type=int, default=4, help="transcripts a seed in one free prompt")
    parser.add_argument("--write", help="write the page there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
