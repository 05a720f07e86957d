"""The llama.cpp engine against a bare loop over the bindings: same weights, prompt, batches and threads, in one run.

    python -P tests/bench/bench_engine.py [MODELS_DIR]

Prints one JSON line a benchmark. Ours and the bare loop take turns, so that other load on the machine meets both; a
ratio above 1 means that ours is faster, for `overhead` and `milliseconds` lower is better.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from emelex_core.engine import CancelToken, Message, Request, Role, native
from emelex_core.engine.llama_cpp import BATCH_TOKENS, LlamaEngine
from emelex_core.errors import Cancelled
from emelex_core.models import BUILTIN_REFERENCE, ResolvedFile, load_engine, resolve_model

ROUNDS = 7
CANCELLATIONS = 30
OUTPUT_TOKENS = 96
CONTEXT_TOKENS = 2_048
PROMPT = (
    Message(role=Role.SYSTEM, text="You continue a story. You never stop early."),
    Message(role=Role.USER, text="The keeper counted the ships that passed the light and wrote their names. " * 50),
)
LINES = 'root ::= line+\nline ::= "- " [A-Z] [^\\n]{20,80} "\\n"'


class BareLoop:
    """What the bindings reach: evaluate, pick greedily, join the pieces, nothing else."""

    def __init__(self, path: Path) -> None:
        self.library = native.bindings()
        self.weights = native.load_weights(path, vocabulary_only=False)
        self.context = native.open_context(
            self.weights, context_tokens=CONTEXT_TOKENS, batch_tokens=BATCH_TOKENS, threads=1
        )
        self.vocabulary = self.library.llama_model_get_vocab(self.weights.take())
        self.greedy = self.library.llama_sampler_init_greedy()
        self.piece = ctypes.create_string_buffer(256)

    def run(self, prompt: list[int], output_tokens: int) -> tuple[float, float]:
        """Return seconds of prompt evaluation and of decoding."""
        library, context = self.library, self.context.take()
        library.llama_memory_clear(library.llama_get_memory(context), False)
        began = time.perf_counter()
        for start in range(0, len(prompt), BATCH_TOKENS):
            self.decode(prompt[start : start + BATCH_TOKENS])
        token = library.llama_sampler_sample(self.greedy, context, -1)
        evaluated = time.perf_counter()
        text = b""
        for _ in range(output_tokens - 1):
            size = library.llama_token_to_piece(self.vocabulary, token, self.piece, 256, 0, False)
            text += self.piece.raw[:size]
            self.decode([token])
            token = library.llama_sampler_sample(self.greedy, context, -1)
        return evaluated - began, time.perf_counter() - evaluated

    def decode(self, tokens: list[int]) -> None:
        batch = (self.library.llama_token * len(tokens))(*tokens)
        code = self.library.llama_decode(self.context.take(), self.library.llama_batch_get_one(batch, len(tokens)))
        assert code == 0, code


def timed(engine: LlamaEngine, output_tokens: int, grammar: str | None = None, *, fresh: bool = True) -> float:
    """Return the seconds of one generation, which fills its bound."""
    if fresh:
        engine._prompt = []
    request = Request(messages=PROMPT, output_tokens_max=output_tokens, grammar=grammar)
    done = engine.generate(request, CancelToken())
    assert done.output_tokens == output_tokens, "the benchmark's prompt must not end by itself"
    return done.seconds


def compare(engine: LlamaEngine, bare: BareLoop) -> None:
    """Prompt evaluation, decoding, and both together, with and without a grammar."""
    prompt = engine._vocabulary.prompt(PROMPT)
    ours: dict[str, list[float]] = {"prefill": [], "decode": [], "grammar": [], "reused": []}
    theirs: dict[str, list[float]] = {"prefill": [], "decode": []}
    for _ in range(ROUNDS):
        ours["prefill"].append(timed(engine, 1))
        ours["decode"].append(timed(engine, OUTPUT_TOKENS, fresh=False))
        prefill, decode = bare.run(prompt, OUTPUT_TOKENS)
        theirs["prefill"].append(prefill)
        theirs["decode"].append(decode)
        ours["grammar"].append(timed(engine, OUTPUT_TOKENS, LINES, fresh=False))
        ours["reused"].append(timed(engine, 1, fresh=False))
    ours_median = {name: statistics.median(seconds) for name, seconds in ours.items()}
    bare_median = {name: statistics.median(seconds) for name, seconds in theirs.items()}
    tokens = {"prefill": len(prompt), "decode": OUTPUT_TOKENS - 1}
    for name, count in tokens.items():
        report(
            f"engine_{name}",
            target=0.9,
            ratio=bare_median[name] / ours_median[name],
            tokens_per_second=count / ours_median[name],
            bare_tokens_per_second=count / bare_median[name],
        )
    whole = sum(bare_median.values())
    report("engine_whole", target=0.9, ratio=whole / (ours_median["prefill"] + ours_median["decode"]))
    report(
        "engine_grammar",
        target=0.83,
        ratio=bare_median["decode"] / ours_median["grammar"],
        overhead_percent=100 * (ours_median["grammar"] / ours_median["decode"] - 1),
    )
    report("engine_prefix_reuse", ratio=ours_median["prefill"] / ours_median["reused"])


def cancel_latency(engine: LlamaEngine) -> None:
    """From the cancelling call to the raised Cancelled, in prompt evaluation and in decoding."""
    for name, text in (("prefill", PROMPT[1].text), ("decode", "Go on.")):
        request = Request(messages=(Message(role=Role.USER, text=text),), output_tokens_max=900, grammar=LINES)
        latencies = [cancelled_after(engine, request, 0.4 + 0.007 * step) for step in range(CANCELLATIONS)]
        report(
            f"engine_cancel_{name}",
            target_milliseconds=50,
            milliseconds=statistics.median(latencies),
            milliseconds_90th=statistics.quantiles(latencies, n=10)[-1],
            milliseconds_max=max(latencies),
        )


def cancelled_after(engine: LlamaEngine, request: Request, seconds: float) -> float:
    """Cancel a generation in its midst and return the milliseconds until it was over."""
    engine._prompt = []
    cancel = CancelToken()
    asked: list[float] = []

    def interrupt() -> None:
        asked.append(time.perf_counter())
        cancel.cancel()

    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        engine.generate(request, cancel)
    except Cancelled:
        return 1_000 * (time.perf_counter() - asked[0])
    finally:
        timer.join()
    raise AssertionError("the generation ended before it was cancelled")


def report(benchmark: str, **figures: float) -> None:
    rounded = {name: round(value, 3) for name, value in figures.items()}
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        models_dir = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(home) / "models"
        resolved = resolve_model(BUILTIN_REFERENCE, models_dir=models_dir, endpoints={})
        assert isinstance(resolved, ResolvedFile)
        with load_engine(resolved, context_tokens=CONTEXT_TOKENS) as engine:
            assert isinstance(engine, LlamaEngine)
            assert resolved.derived_directory is not None
            bare = BareLoop(next(resolved.derived_directory.glob("*.gguf")))
            compare(engine, bare)
            cancel_latency(engine)
            bare.context.close()
            bare.weights.close()


if __name__ == "__main__":
    main()
