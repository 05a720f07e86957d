"""Jobs a minute of the product against a straightforward loop over the same transcripts, with the same model.

The loop is what one writes first: one process with a thread a core, one free prompt a job, the transcript cut to the
context, no reuse of a prefix. The product runs one process a core with one thread each (measured.md, "Speed").
Runs on ../shared/corpus where it is, else on the demo's transcript; `--jobs N` bounds both. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken, ChatEngine, Message, Request, Role
from emelex_core.events import EVIDENCE_KINDS
from emelex_core.imports.importer import import_transcripts
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.models.load import load_engine
from emelex_core.models.resolve import resolve_model

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
CORES = os.cpu_count() or 1
OUTPUT_TOKENS = 256
SYSTEM = "List the lasting facts, rules and decisions of the conversation, one a line."
WORKER = """
import json, sys
from pathlib import Path
from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.jobs.kinds import JobKind
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.engines import ConfiguredEngines
from emelex_workers.progress import JobEnded
ended = []
with MemoryStore.open(Path(sys.argv[1])) as store:
    engines = ConfiguredEngines(reference=sys.argv[2], models_directory=Path(sys.argv[3]), endpoints={}, threads=1)
    drain(store, DrainOptions(kind=JobKind.DISTILLATION), engines=engines, listen=ended.append, stop=CancelToken())
done = [event for event in ended if isinstance(event, JobEnded) and event.outcome == "completed"]
print(json.dumps([len(done), sum(job.output_tokens for job in done), sum(job.engine_seconds for job in done)]))
"""


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description="Jobs a minute beside a straightforward loop.")
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        resolved = resolve_model(options.model, models_dir=models, endpoints={})
        with load_engine(resolved, threads=CORES) as engine, _store(Path(folder), options.jobs) as store:
            sources = _sources(store)
            source_tokens = sum(engine.count_text(text) for text in sources)
            loop = _loop(engine, sources)
        product = _product(Path(folder) / "home", options.model, models)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    line = {
        "benchmark": "jobs_a_minute",
        "jobs": len(sources),
        "model": options.model,
        "loop_jobs_a_minute": round(60 * len(sources) / loop["seconds"], 2),
        "product_jobs_a_minute": round(60 * product["jobs"] / product["seconds"], 2),
        "ratio": round(product["jobs"] / product["seconds"] * loop["seconds"] / len(sources), 2),
        "product_seconds_per_1000_source_tokens": round(1000 * product["seconds"] / source_tokens, 3),
        "product_output_tokens_per_1000_source_tokens": round(1000 * product["output_tokens"] / source_tokens, 1),
        "product_engine_share": round(product["engine_seconds"] / (product["seconds"] * CORES), 3),
        "peak_mb_of_a_worker": round(peak / 1024),
    }
    sys.stdout.write(json.dumps(line) + "\n")


def _store(folder: Path, jobs: int) -> MemoryStore:
    """A Home with at most so many distillations to do."""
    store = MemoryStore.open(folder / "home", create=True)
    sources = [CORPUS / "claude-code", CORPUS / "codex"] if CORPUS.is_dir() else [ROOT / "ops" / "demo"]
    import_transcripts(
        store, sources, format="auto", workspace=folder, dry_run=False, distill=True,
        listen=lambda session: None, problem=lambda path, error: None,
    )  # fmt: skip
    published = reading.list_jobs(store.database, state=JobState.PENDING, kind=JobKind.DISTILLATION)
    for job in published[jobs:]:
        with store.database.write() as transaction:
            transaction.run("DELETE FROM jobs WHERE id = :id", {"id": job.id})
    return store


def _sources(store: MemoryStore) -> list[str]:
    """What people and agent said in each Session that has a job."""
    texts: list[str] = []
    for job in reading.list_jobs(store.database, state=JobState.PENDING, kind=JobKind.DISTILLATION):
        said: list[str] = []
        after = 0
        while events := store.read_events(job.session_id, after=after):
            said += [event.text for event in events if event.kind in EVIDENCE_KINDS]
            after = events[-1].sequence
        texts.append("\n".join(said))
    return texts


def _loop(engine: ChatEngine, sources: list[str]) -> dict[str, Any]:
    started = time.monotonic()
    for text in sources:
        room = engine.info.context_tokens - OUTPUT_TOKENS - engine.count_prompt(_prompt("")) - 8
        while engine.count_text(text) > room:
            text = text[: len(text) * room // max(engine.count_text(text), 1) - 1]
        engine.generate(Request(messages=_prompt(text), output_tokens_max=OUTPUT_TOKENS), CancelToken())
    return {"seconds": time.monotonic() - started}


def _prompt(text: str) -> tuple[Message, ...]:
    return Message(role=Role.SYSTEM, text=SYSTEM), Message(role=Role.USER, text=text)


def _product(home: Path, model: str, models: Path) -> dict[str, Any]:
    """Drain the Home with a process a core; loading the model is part of the time."""
    started = time.monotonic()
    command = [sys.executable, "-P", "-c", WORKER, str(home), model, str(models)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(CORES)]
    found = [json.loads(worker.communicate()[0]) for worker in workers]
    return {
        "seconds": time.monotonic() - started,
        "jobs": sum(jobs for jobs, _, _ in found),
        "output_tokens": sum(tokens for _, tokens, _ in found),
        "engine_seconds": sum(seconds for _, _, seconds in found),
    }


if __name__ == "__main__":
    main()
