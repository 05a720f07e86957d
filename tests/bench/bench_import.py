"""Import throughput: Claude Code JSONL through the reader, the entry gate and the store.

Two files: the demo's own transcript, repeated under new ids (`dense`), and records of 500 bytes, since the cost is one
an event (`small`). One JSON line for each; medians of several runs in CPU seconds, with a ratio to a baseline of the
same run: reading the lines and parsing each with orjson. Load of other processes still shows where cores share caches.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson

from emelex_core import MemoryStore
from emelex_core.errors import EmelexError
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.report import ImportedSession

SAMPLE = Path(__file__).resolve().parents[2] / "ops" / "demo" / "claude-code.jsonl"
SESSION = "5f0d8c1e-7b52-4c0a-9d57-2f1f6f0e4a11"
MEGABYTES = 40
RUNS = 3


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


def grow_small(target: Path, megabytes: int) -> int:
    """Write turns of four records of about 500 bytes: a prompt, words, a call, its result; return the bytes."""
    common = {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/somewhere/else",
        "sessionId": SESSION,
        "version": "2.0.0",
        "gitBranch": "main",
    }
    number = 0
    with target.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "ls -la parcels"}}
            result = {
                "type": "tool_result",
                "tool_use_id": f"toolu_{number}",
                "content": "one parcel, two parcels\n" * 5,
            }
            for place, (kind, content) in enumerate(
                (
                    ("user", f"Question {number}: " + "which parcel is the heaviest of all? " * 4),
                    ("assistant", [{"type": "text", "text": "The heaviest parcel is the blue one. " * 4}]),
                    ("assistant", [call]),
                    ("user", [result]),
                )
            ):
                message = {"role": kind, "content": content} | ({"id": f"msg_{number}"} if kind == "assistant" else {})
                stamp = f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.{place:03}Z"
                row = {**common, "type": kind, "uuid": f"{number:08x}-0000-4000-8000-{place:012}", "timestamp": stamp}
                file.write(json.dumps({**row, "message": message}) + "\n")
            number += 1
        return file.tell()


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of one call: waiting for a shared machine does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(name: str, write: Callable[[Path, int], int]) -> dict[str, object]:
    """Import one kind of file into fresh stores, and once more into the last of them."""
    baselines: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{SESSION}.jsonl"
        size = write(source, MEGABYTES)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for run in range(RUNS):
            home = Path(folder) / f"home-{run}"
            baselines.append(timed(partial(parse, source)))
            ours.append(timed(partial(load, home, source)))
        again = timed(partial(load, home, source))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        records = source.read_bytes().count(b"\n")
        events = load(home, source, dry_run=True).events
    middle = statistics.median(ours)
    return {
        "benchmark": f"import_claude_code_{name}",
        "megabytes": size / 1e6,
        "bytes_per_record": size / records,
        "unknown_events_afterwards": events,
        "megabytes_per_second": size / 1e6 / middle,
        "megabytes_per_second_worst": size / 1e6 / max(ours),
        "microseconds_per_record": middle / records * 1e6,
        "again_megabytes_per_second": size / 1e6 / again,
        "ratio_to_orjson_lines": statistics.median(baselines) / middle,
        "memory_grown_megabytes": grown / 1024,
        "load_average": os.getloadavg()[0],
    }


def parse(source: Path) -> None:
    """The baseline."""
    with source.open("rb") as file:
        for line in file:
            orjson.loads(line)


def load(home: Path, source: Path, *, dry_run: bool = False) -> ImportedSession:
    """Import the file into the store of a Home."""
    sessions: list[ImportedSession] = []

    def fail(path: Path, error: EmelexError) -> None:
        sys.exit(f"{path}: {error}")

    with MemoryStore.open(home, create=True) as store:
        import_transcripts(
            store, [source], format="claude-code", workspace=home, dry_run=dry_run, distill=True,
            listen=sessions.append, problem=fail,
        )  # fmt: skip
    return sessions[0]


def main() -> None:
    """Print a JSON line for each kind of file."""
    for name, write in (("dense", grow), ("small", grow_small)):
        sys.stdout.write(json.dumps(measure(name, write)) + "\n")


if __name__ == "__main__":
    main()
