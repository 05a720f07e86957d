"""How much of `memory work` is not inference: the wall time of all jobs against the time inside the engine.

Runs on ../shared/corpus where it is, else on the demo's transcript. One JSON line; the baseline is the engine's own
time in the same run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.imports.importer import import_transcripts
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.engines import ConfiguredEngines
from emelex_workers.progress import JobEnded, WorkEvent

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"


def main() -> None:
    """Print one JSON line."""
    sources = [CORPUS / "claude-code", CORPUS / "codex"] if CORPUS.is_dir() else [ROOT / "ops" / "demo"]
    with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "home", create=True) as store:
        import_transcripts(
            store, sources, format="auto", workspace=Path(folder), dry_run=False, distill=True,
            listen=lambda session: None, problem=lambda path, error: sys.exit(f"{path}: {error}"),
        )  # fmt: skip
        engines = ConfiguredEngines(
            reference="builtin:smollm2-135m", models_directory=Path(folder) / "models", endpoints={}, threads=1
        )
        events: list[WorkEvent] = []
        drain(store, DrainOptions(), engines=engines, listen=events.append, stop=CancelToken())
    ended = [event for event in events if isinstance(event, JobEnded)]
    whole, inside = sum(job.seconds for job in ended), sum(job.engine_seconds for job in ended)
    line = {
        "benchmark": "work_outside_engine",
        "jobs": len(ended),
        "seconds": round(whole, 3),
        "output_tokens": sum(job.output_tokens for job in ended),
        "outside_engine_share": round((whole - inside) / whole, 4),
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
