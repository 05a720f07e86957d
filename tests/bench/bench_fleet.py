"""One pool, two workers, an endpoint that answers after a fixed delay: how many requests are in flight at once.

    python -P tests/bench/bench_fleet.py [WORKERS IN_FLIGHT JOBS SECONDS]

Prints one JSON line. `peak` and `mean` are the server's own counts of requests that it had not answered yet (issue 7,
item 8: at least 64 with two workers). `ratio` compares the pool with one that does nothing between two calls: the time
that `calls` take when the whole flight is always full, over the time that the pool took for its jobs.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

# The helpers of the tests are found only now.
import psutil  # noqa: E402 - below the path

from emelex_core import MemoryStore, home  # noqa: E402 - below the path
from emelex_queue import idle  # noqa: E402 - below the path
from scripted import turn  # noqa: E402 - below the path

SERVER = Path(__file__).with_name("slow_server.py")
CONFIG = """
[models]
default = "endpoint:slow"

[models.endpoint.slow]
base_url = "http://127.0.0.1:{port}/v1"
model = "slow"
context_tokens = 4096
"""


def main(workers: int = 2, in_flight: int = 40, jobs: int = 400, seconds: float = 1.0) -> None:
    """Run one pool over so many real distillations."""
    with tempfile.TemporaryDirectory() as root:
        place = home.locate(Path(root) / "home")
        workspace = Path(root) / "workspace"
        workspace.mkdir()
        server = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        with MemoryStore.open(place, create=True) as store:
            (place.root / "config.toml").write_text(CONFIG.format(port=int(server.stdout.readline())))
            (place.root / "config.toml").chmod(0o600)
            for number in range(jobs):
                publish(store, workspace, number)
            took, threads, mib = run(place.root, workspace, store, workers, in_flight)
        seen = json.loads(server.communicate(timeout=10)[0])
    ideal = seen["calls"] * seconds / (workers * in_flight)
    figures = {**seen, "seconds": took, "jobs_per_second": jobs / took, "ratio": ideal / took}
    figures |= {"worker_threads": threads, "worker_mib": mib}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    sys.stdout.write(json.dumps({"benchmark": "fleet_in_flight", "target_peak": 64, **rounded}) + "\n")


def publish(store: MemoryStore, workspace: Path, number: int) -> None:
    """Store a Session of three turns and publish its distillation."""
    session = store.start_session(workspace, title=f"bench {number}")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turns([turn(3 * number + place) for place in range(3)])
        lease.release(distill=True)


def run(root: Path, workspace: Path, store: MemoryStore, workers: int, in_flight: int) -> tuple[float, float, float]:
    """Seconds from the first claim to the last settlement; a worker's most threads, and MiB of memory."""
    options = ["--workers", str(workers), "--in-flight", str(in_flight), "--no-maintenance"]
    command = [sys.executable, "-P", "-m", "emelex_cli", "--home", str(root), "--json", "memory", "pool", *options]
    pool = subprocess.Popen(command, cwd=workspace, stdout=subprocess.DEVNULL)
    whole = idle.remaining_jobs(store.database)
    began: float | None = None
    threads = mib = 0.0
    while left := idle.remaining_jobs(store.database):
        for worker in psutil.Process(pool.pid).children():
            threads = max(threads, worker.num_threads())
            mib = max(mib, worker.memory_info().rss / (1 << 20))
        if began is None and (left < whole or threads > in_flight):
            began = time.monotonic()
        time.sleep(0.02)
    ended = time.monotonic()
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(30) == 143
    return ended - (began or ended), threads, mib


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    main(*[int(number) for number in given[:3]], *given[3:])
