"""The full sweep: every fault at every operation of a store's life. Prints one JSON line a fault, exits 1 on any loss.

    .venv/bin/python -P ops/soak/fault_sweep.py [--every N]

See tests/faults/test_sweep.py for what must hold; it runs a sample of this in `make test`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import sweep
from sweep import Ending

MEMORY = Path("/dev/shm")  # noqa: S108 - a private directory is made in it


def main() -> int:
    """Run every sweep; return 1 when something was lost."""
    parser = argparse.ArgumentParser(description="Sweep every fault over every operation of a store's life.")
    parser.add_argument("--every", type=int, default=1, help="only every n-th operation")
    every = parser.parse_args().every
    wrong = 0
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        disk = Path(folder)
        whole = sweep.operations(disk / "whole")
        for kind, error in [
            ("write", "EIO"),
            ("write", "ENOSPC"),
            ("sync", "EIO"),
            ("truncate", "EIO"),
            ("truncate", "ENOSPC"),
            ("delete", "EIO"),
            ("open", "EIO"),
            ("read", "EIO"),
        ]:
            points = range(1, whole.counts[kind] + 1, every)
            wrong += run(
                f"{kind} {error}", points, lambda nth, k=kind, e=error: sweep.survives_error(disk / "x", k, nth, e)
            )
        writes = range(1, whole.counts["write"] + 1, every)
        wrong += run("disk full until freed", writes, lambda nth: sweep.survives_full_disk(disk / "x", nth))
        for call in ("mmap", "fcntl"):
            made = sweep.survives_call(disk / "x", call, None)[1]
            points = range(1, made + 1, every)
            wrong += run(f"{call} EIO", points, lambda nth, c=call: sweep.survives_call(disk / "x", c, nth)[0])
        for keep in ("none", "all", "some"):
            points = range(1, whole.total + 1, every)
            wrong += run(
                f"power cut, {keep} of the unsynced kept",
                points,
                lambda nth, k=keep: sweep.survives_power_cut(disk / "x", nth, keep=k, seed=nth),
            )
        late = range(whole.total // 2, whole.total + 1, 2 * every)
        for keep in ("none", "all", "some"):
            wrong += run(
                f"power cut, then a second one in the recovery, {keep} of the unsynced kept",
                late,
                lambda nth, k=keep: sweep.survives_power_cut(disk / "x", nth, keep=k, seed=nth, again=1 + nth % 60),
            )
    return 1 if wrong else 0


def run(name: str, points: Iterable[int], live: Callable[[int], Ending]) -> int:
    """Run one sweep and print its counts; return how many lives went wrong."""
    started = time.monotonic()
    endings = {nth: live(nth) for nth in points}
    wrong = {nth: ending.wrong for nth, ending in endings.items() if ending.wrong}
    line = {
        "fault": name,
        "lives": len(endings),
        "hit": sum(ending.hit for ending in endings.values()),
        "refused_a_step": sum(ending.refused for ending in endings.values()),
        "wrong": len(wrong),
        "seconds": round(time.monotonic() - started, 1),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    for nth, what in list(wrong.items())[:5]:
        sys.stderr.write(f"operation {nth}: {what}\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
