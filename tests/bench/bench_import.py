"""Import throughput: Claude Code JSONL through the reader, the entry gate and the store.

The file is the demo's own transcript, repeated under new ids until it is large. One JSON line; ratios to a baseline in
the same run: reading the lines and parsing each with orjson.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from emelex_core import MemoryStore
from emelex_core.errors import EmelexError
from emelex_core.imports.importer import ImportedSession, import_transcripts

SAMPLE = Path(__file__).resolve().parents[2] / "ops" / "demo" / "claude-code.jsonl"
MEGABYTES = 40


def grow(target: Path, megabytes: int) -> int:
    """Write the sample over and over, each time with ids of its own; return the bytes."""
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    round_number = 0
    with target.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            for row in rows:
                text = json.dumps(row, ensure_ascii=False)
                for name in ("uuid", "parentUuid"):
                    if row.get(name):
                        text = text.replace(row[name], f"{round_number:08x}{row[name][8:]}")
                file.write(
                    text.replace("toolu_", f"toolu_{round_number}_").replace("msg_", f"msg_{round_number}_") + "\n"
                )
            round_number += 1
        return file.tell()


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of one call: a shared machine's other load does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Print one JSON line."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "5f0d8c1e-7b52-4c0a-9d57-2f1f6f0e4a11.jsonl"
        size = grow(source, MEGABYTES)

        def parse() -> None:
            with source.open("rb") as file:
                for line in file:
                    orjson.loads(line)

        sessions: list[ImportedSession] = []

        def fail(path: Path, error: EmelexError) -> None:
            sys.exit(f"{path}: {error}")

        def load() -> None:
            with MemoryStore.open(Path(folder) / "home", create=True) as store:
                import_transcripts(
                    store, [source], format="claude-code", workspace=Path(folder), dry_run=False, distill=True,
                    listen=sessions.append, problem=fail,
                )  # fmt: skip

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        baseline, ours, again = timed(parse), timed(load), timed(load)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        line = {
            "benchmark": "import_claude_code",
            "megabytes": size / 1e6,
            "events": sessions[0].events,
            "megabytes_per_second": size / 1e6 / ours,
            "again_megabytes_per_second": size / 1e6 / again,
            "ratio_to_orjson_lines": baseline / ours,
            "memory_grown_megabytes": grown / 1024,
        }
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
