"""Eight processes compete for one store (issue 3): no error surfaces, sequences are contiguous, no turn is interleaved.

    .venv/bin/python -P ops/soak/contention.py [--seconds 60] [--processes 8] [--seed N]

Five writers append to four shared Sessions, two workers settle jobs of both kinds, one reader reads everything. Prints
one JSON line with counts, the share of the slowest writer, and the longest waits; exits 1 on any error or loss.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import crowd

SHARED_SESSIONS = 4


def main() -> int:
    """Let them compete, then look; return 1 when something was wrong."""
    parser = argparse.ArgumentParser(description="Let processes compete for one store.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "workspace"
        workspace.mkdir()
        line, wrong = compete(home, workspace, options.processes, options.seconds, options.seed)
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    for what in wrong[:20]:
        sys.stderr.write(what + "\n")
    return 1 if wrong else 0


def compete(
    home: Path, workspace: Path, processes: int, seconds: float, seed: int
) -> tuple[dict[str, object], list[str]]:
    """Run the crowd for so long; return what it did, and what was wrong."""
    sessions = crowd.make(home, workspace, SHARED_SESSIONS)
    until = time.monotonic() + seconds
    roles = ["worker", "worker", "reader"] + ["writer"] * max(1, processes - 3)
    children = [
        crowd.spawn(role, home, workspace, sessions, seed * 1_000 + number, until=until)
        for number, role in enumerate(roles[:processes])
    ]
    ledger = crowd.Ledger()
    shares: Counter[int] = Counter()
    while time.monotonic() < until:
        time.sleep(0.05)
        for child in children:
            _take(ledger, shares, child, child.hear())
    for child in children:
        _take(ledger, shares, child, child.wait())
    log = home / "memory" / "emelex.sqlite3-wal"
    wrong = ledger.errors + crowd.losses(home, ledger)
    writers = [shares[child.pid] for child in children if child.role == "writer"]
    line: dict[str, object] = {
        "soak": "contention",
        "processes": processes,
        "seconds": seconds,
        "seed": seed,
        **dict(sorted(ledger.counts.items())),
        "slowest_writer_share": round(min(writers) / max(writers), 2) if max(writers) else 0.0,
        "longest_seconds": {what: round(value, 3) for what, value in sorted(ledger.slowest.items())},
        "wal_bytes_left": log.stat().st_size if log.exists() else 0,
        "cores": len(os.sched_getaffinity(0)),
        "errors": len(ledger.errors),
        "wrong": len(wrong),
    }
    return line, wrong


def _take(ledger: crowd.Ledger, shares: Counter[int], child: crowd.Child, words: list[dict[str, object]]) -> None:
    ledger.take(words)
    shares[child.pid] += sum(word["what"] == "turn" for word in words)


if __name__ == "__main__":
    sys.exit(main())
