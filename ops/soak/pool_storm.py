"""A kill storm over the worker pool (issue 7): SIGKILL for workers, the scheduler and the parent, at random moments.

    python -P ops/soak/pool_storm.py [--jobs 200] [--kills 100] [--workers 2] [--in-flight 1] [--seed 1] [--hold-ms 200]

Around each kill the whole pool is stopped (SIGSTOP), so that the database can be asked which claims the dead have left
before anybody counts them. So the expected count of failures of every job is known exactly, not guessed. Afterwards:

- every job is settled once: completed with one record, or failed by its third death;
- each job's `failure_count` is the number of deaths that it was held in;
- SQLite finds the file whole, and no process of any pool is left.

Prints one JSON object; the exit code is 0 when all of this holds.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

# The helpers of the tests are found only now.
import psutil  # noqa: E402 - below the path

from emelex_core import MemoryStore, home  # noqa: E402 - below the path
from emelex_core.owners import Owners  # noqa: E402 - below the path
from pools import Pool, gone, kill, named, publish  # noqa: E402 - below the path
from stores import rows, sound  # noqa: E402 - below the path

LIMITS = {"BACKOFF_FIRST_MS": 10, "BACKOFF_MAX_MS": 20}
SECONDS_MAX = 600.0
TARGETS = ("worker", "worker", "worker", "scheduler", "parent")
HELD = "SELECT id, failure_count, lease_owner FROM jobs WHERE state = 'running'"
LEFT = "SELECT count(*) FROM jobs WHERE state IN ('pending', 'running')"


class Storm:
    """One storm on one Home."""

    def __init__(self, root: Path, *, jobs: int, workers: int, in_flight: int, seed: int, hold_ms: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self.workers = workers
        self.in_flight = in_flight
        self.home = home.locate(root / "home")
        self.expected: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.noted: set[tuple[str, int]] = set()
        self.pids: list[int] = []
        workspace = root / "workspace"
        workspace.mkdir()
        with MemoryStore.open(self.home, create=True) as store:
            publish(store, workspace, *[f"hold {hold_ms / 1000}"] * jobs)
        self.pool = self.start()

    def start(self) -> Pool:
        """Start a pool and wait until all its places are taken."""
        pool = Pool(
            self.home.root,
            options={
                "workers": self.workers,
                "in_flight": self.in_flight,
                "grace_seconds": 5.0,
                "nice": 0,
                "deaths_max": 1_000,
            },
            limits=LIMITS,
        )
        pool.wait_for(named("WorkerStarted"), count=self.workers + 1)
        return pool

    def strike(self) -> None:
        """Stop the pool, kill one of them, see whose jobs that left, and let the others go on."""
        target = self.random.choice(TARGETS)
        parent, scheduler = self.pool.process.pid, self.pool.pid_of("Scheduler")
        # The parent first: from then on nobody is added.
        _stop([parent])
        children = [child.pid for child in psutil.Process(parent).children()]
        _stop(children)
        everybody = [parent, *children]
        workers = sorted(set(children) - {scheduler}) or [scheduler]
        victim = {"parent": parent, "scheduler": scheduler}.get(target) or self.random.choice(workers)
        kill(victim)
        dying = [victim]
        if target == "parent":
            # One that was stopped before it had tied itself to its parent dies when it goes on.
            dying = everybody
            _go_on(everybody)
        left = gone(dying)
        if left:
            _go_on(everybody)
            raise SystemExit(f"processes outlived the kill of the {target}: {left}")
        self.kills[target] += 1
        self._note_orphans()
        _go_on(everybody)
        if target == "parent":
            self.pids += self.pool.pids()
            self.pool.__exit__()
            self.pool = self.start()

    def require_pool(self) -> None:
        """Raise when the pool has ended by itself: nothing that is done to it here is a reason."""
        if self.pool.process.poll() is not None:
            assert self.pool.process.stderr is not None
            said = [str(event) for event in self.pool.events[-8:]]
            raise SystemExit("\n".join(["the pool ended by itself:", *said, self.pool.process.stderr.read()]))

    def left(self) -> int:
        """Jobs that are not settled."""
        return int(rows(self.home.database, LEFT)[0][0])

    def finish(self) -> dict[str, Any]:
        """End the pool in peace and look at everything."""
        self.pool.signal(signal.SIGTERM)
        code = self.pool.exit_code()
        self.pids += self.pool.pids()
        self.pool.__exit__()
        path = self.home.database
        counted = rows(path, "SELECT id, failure_count, last_error FROM jobs")
        wrong = [
            {"job": job, "counted": count, "expected": self.expected[job], "last_error": error}
            for job, count, error in counted
            if count != self.expected[job]
        ]
        odd = rows(
            path,
            "SELECT id, state FROM jobs AS j WHERE state NOT IN ('completed', 'failed')"
            " OR (state = 'completed') <> EXISTS (SELECT 1 FROM job_records AS r WHERE r.job_id = j.id)"
            " OR (state = 'failed' AND failure_count <> 3)",
        )
        return {
            "jobs": len(counted),
            "completed": rows(path, "SELECT count(*) FROM jobs WHERE state = 'completed'")[0][0],
            "terminal": rows(path, "SELECT count(*) FROM jobs WHERE state = 'failed'")[0][0],
            "kills": dict(self.kills),
            "jobs_orphaned": sum(self.expected.values()),
            "exit_code": code,
            "wrong_counts": wrong,
            "odd_jobs": odd,
            "sound": sound(path),
            "processes_left": gone(self.pids),
        }

    def _note_orphans(self) -> None:
        """Expect one failure of each job whose owner is dead now: nobody else runs, so nobody has counted it yet."""
        owners = Owners(self.home.database)
        for job, failures, owner in rows(self.home.database, HELD):
            if (job, failures) not in self.noted and not owners.alive(owner):
                self.noted.add((job, failures))
                self.expected[job] += 1
        owners.close()


def _stop(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    for pid in pids:
        _await_stop(pid)


def _go_on(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGCONT)


def _await_stop(pid: int) -> None:
    """A stop signal takes effect when its process next enters the kernel."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.0005)
    raise SystemExit(f"process {pid} does not stop")


def run(storm: Storm, kills: int) -> dict[str, Any]:
    """Strike until enough were killed, then let the pool finish."""
    began = time.monotonic()
    while sum(storm.kills.values()) < kills and storm.left() and time.monotonic() - began < SECONDS_MAX:
        time.sleep(storm.random.uniform(0.005, 0.08))
        storm.require_pool()
        storm.strike()
    while storm.left() and time.monotonic() - began < SECONDS_MAX:
        storm.require_pool()
        time.sleep(0.02)
    return {**storm.finish(), "seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    """Run one storm and say whether everything held."""
    parser = argparse.ArgumentParser(description="Kill a worker pool's processes at random and check every job.")
    defaults = {"jobs": 200, "kills": 100, "workers": 2, "in-flight": 1, "seed": 1, "hold-ms": 200}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        storm = Storm(
            Path(root),
            jobs=asked.jobs,
            workers=asked.workers,
            in_flight=asked.in_flight,
            seed=asked.seed,
            hold_ms=asked.hold_ms,
        )
        try:
            report = run(storm, asked.kills)
        finally:
            storm.pool.__exit__()
    held = (
        report["completed"] + report["terminal"] == asked.jobs
        and report["exit_code"] == 143
        and report["sound"]
        and not (report["wrong_counts"] or report["odd_jobs"] or report["processes_left"])
    )
    sys.stdout.write(json.dumps({"seed": asked.seed, "held": held, **report}) + "\n")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
