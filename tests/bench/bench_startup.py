"""Start-up: wall time against `python -c 'import typer'` in the same run, and resident memory (issue 2, "Speed").

Run: `.venv/bin/python -P tests/bench/bench_startup.py [ROUNDS]`. One JSON line a command; `ratio` is to stay at or
below 1.6 for `memory status` and an empty `memory work`, `resident_mb` at or below 60. The commands take turns, so
that a busy moment of the machine meets all of them; the best of the rounds counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emelex_core import MemoryStore

BASELINE = "import typer"
PROGRAM = (sys.executable, "-P", "-c", "import sys; from emelex_cli.app import main; sys.exit(main())")
COMMANDS = {
    "memory status": ("memory", "status"),
    "memory work (empty)": ("memory", "work"),
    "memory sessions list": ("memory", "sessions", "list"),
    "memory sessions list --limit 3": ("memory", "sessions", "list", "--limit", "3"),
    "--help": ("--help",),
}
RATIO_MAX = 1.6
RESIDENT_MB_MAX = 60


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        with MemoryStore.open(home, create=True) as store:
            store.start_session(place, title="empty")
        environment = {**os.environ, "EMELEX_HOME": str(home)}
        baseline = (sys.executable, "-c", BASELINE)
        runs = {BASELINE: baseline, **{name: (*PROGRAM, *words) for name, words in COMMANDS.items()}}
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds):
            for name, command in runs.items():
                best[name] = min(best[name], _seconds(command, environment, place))
        for name in COMMANDS:
            _tell(name, best[name], best[BASELINE], _resident_mb(runs[name], environment, place))


def _seconds(command: tuple[str, ...], environment: dict[str, str], place: str) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=environment, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _resident_mb(command: tuple[str, ...], environment: dict[str, str], place: str) -> float:
    """The child's peak, measured by a child of its own: `ru_maxrss` keeps the largest of all."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    asked = (sys.executable, "-c", code, *command)
    kib = subprocess.run(asked, env=environment, cwd=place, check=True, capture_output=True, text=True).stdout
    return int(kib) / (1024 if sys.platform == "linux" else 1024 * 1024)


def _tell(name: str, seconds: float, baseline: float, resident_mb: float) -> None:
    line = {
        "benchmark": f"start-up: {name}",
        "milliseconds": round(seconds * 1000, 1),
        "baseline_milliseconds": round(baseline * 1000, 1),
        "ratio": round(seconds / baseline, 2),
        "ratio_max": RATIO_MAX,
        "resident_mb": round(resident_mb, 1),
        "resident_mb_max": RESIDENT_MB_MAX,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
