"""The pool against a bare loop, how fast it wakes up, and what it costs while it waits.

    python -P tests/bench/bench_pool.py

Prints one JSON line a benchmark. `pool_noop_jobs_N` is the rate of empty jobs through a pool of N workers (huey,
claims, heartbeat, settlement, events), as a ratio to N forked processes that run the same statements in the same
transactions, a settlement and the next claim in one, and nothing else. `apart` is the same loop with two commits a job.
All take turns, so that other load meets each. Two bare loops do nothing but wait for each other's lock, which a pool's
workers do less: there the ratio can exceed 1.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

# The helpers of the tests are found only now.
import psutil  # noqa: E402 - below the path

from emelex_core import MemoryStore, home  # noqa: E402 - below the path
from emelex_core.home import Home  # noqa: E402 - below the path
from emelex_core.jobs.records import JobState  # noqa: E402 - below the path
from emelex_queue.turns import Turns  # noqa: E402 - below the path
from pools import Pool, job_of, named, publish, settled  # noqa: E402 - below the path

WORKERS = 2
JOBS = 200
ROUNDS = 5
WAKES = 60
IDLE_SECONDS = 6.0


def bare(place: Home, workers: int, *, together: bool) -> float:
    """Seconds from the first claim to the last settlement in forked processes: claim, complete, nothing else.

    `together`: a settlement claims the next job in its own transaction.
    """
    context = multiprocessing.get_context("fork")
    spans: multiprocessing.SimpleQueue[tuple[float, float]] = context.SimpleQueue()

    def loop() -> None:
        with MemoryStore.open(place) as store:
            turns = Turns(store.database, clock=store.clock)
            began = time.monotonic()
            beside = turns.claim_beside if together else lambda transaction: lambda: None
            while (lease := turns.claim()) is not None:
                lease.complete(lambda transaction: None, record={"pid": os.getpid(), "attempt": 1}, beside=beside)
            spans.put((began, time.monotonic()))

    processes = [context.Process(target=loop) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    taken = [spans.get() for _ in processes]
    with MemoryStore.open(place) as store:
        assert settled(store)
    return max(ended for _, ended in taken) - min(began for began, _ in taken)


def pooled(place: Home, workers: int) -> float:
    """Seconds from the first job's start to the last one's end in a pool."""
    with Pool(place.root, options={"workers": workers, "nice": 0}, stop_after=JOBS, noop=True) as pool:
        pool.exit_code(120)
        return pool.of("JobEnded")[-1]["at"] - pool.of("JobStarted")[0]["at"]


def filled(root: Path, name: str) -> Home:
    """A Home with JOBS empty jobs."""
    place = home.locate(root / name)
    workspace = root / "workspace"
    workspace.mkdir(exist_ok=True)
    with MemoryStore.open(place, create=True) as store:
        publish(store, workspace, *["noop"] * JOBS)
    return place


def rates(root: Path, workers: int) -> None:
    """Empty jobs a second, each way."""
    seconds: dict[str, list[float]] = {"bare": [], "apart": [], "pool": []}
    for number in range(ROUNDS):
        seconds["bare"].append(bare(filled(root, f"bare-{workers}-{number}"), workers, together=True))
        seconds["pool"].append(pooled(filled(root, f"pool-{workers}-{number}"), workers))
        seconds["apart"].append(bare(filled(root, f"apart-{workers}-{number}"), workers, together=False))
    ratios = [bare / pool for bare, pool in zip(seconds["bare"], seconds["pool"], strict=True)]
    best = {name: min(taken) for name, taken in seconds.items()}
    report(
        f"pool_noop_jobs_{workers}",
        target=0.8,
        ratio=statistics.median(ratios),
        ratio_of_the_best=best["bare"] / best["pool"],
        jobs_per_second=JOBS / best["pool"],
        bare_jobs_per_second=JOBS / best["bare"],
        apart_jobs_per_second=JOBS / best["apart"],
        load=os.getloadavg()[0],
    )


def waking(root: Path) -> None:
    """From the commit that publishes a job to its start in an idle pool; then what the idle pool costs."""
    place = home.locate(root / "waking")
    workspace = root / "workspace"
    with (
        MemoryStore.open(place, create=True) as store,
        Pool(place.root, options={"workers": WORKERS, "nice": 0}, noop=True) as pool,
    ):
        # The model is loaded at the first job; what is measured is a pool that has worked before.
        for number in range(WORKERS * 2):
            publish(store, workspace, "noop")
            pool.wait_for(named("JobEnded"), count=number + 1)
        first = len(pool.of("JobStarted"))
        latencies = [latency(pool, store, workspace, first + number) for number in range(WAKES)]
        report(
            "pool_wake_up",
            target_milliseconds=50,
            milliseconds=statistics.median(latencies),
            milliseconds_95th=statistics.quantiles(latencies, n=20)[-1],
            milliseconds_max=max(latencies),
        )
        report("pool_idle", target_percent=3, **idle(pool))
        pool.signal(signal.SIGTERM)
        pool.exit_code()


def latency(pool: Pool, store: MemoryStore, workspace: Path, before: int) -> float:
    """Milliseconds from the publishing commit to the claimed job's start."""
    (session,) = publish(store, workspace, "noop")
    committed = time.monotonic()
    started = pool.wait_for(named("JobStarted"), count=before + 1)["at"]
    pool.wait_for(named("JobEnded"), count=before + 1)
    assert job_of(store, session).state is JobState.COMPLETED
    return 1_000 * (started - committed)


def idle(pool: Pool) -> dict[str, float]:
    """Per cent of one core that the whole idle pool takes, and the resident memory of a worker without a model."""
    everybody = [psutil.Process(pool.process.pid), *psutil.Process(pool.process.pid).children()]
    before = sum(sum(process.cpu_times()[:2]) for process in everybody)
    time.sleep(IDLE_SECONDS)
    used = sum(sum(process.cpu_times()[:2]) for process in everybody) - before
    return {
        "percent": 100 * used / IDLE_SECONDS,
        "processes": len(everybody),
        "worker_mib": everybody[-1].memory_info().rss / (1 << 20),
    }


def report(benchmark: str, **figures: float) -> None:
    rounded = {name: round(value, 3) for name, value in figures.items()}
    sys.stdout.write(json.dumps({"benchmark": benchmark, **rounded}) + "\n")
    sys.stdout.flush()


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        rates(Path(root), 1)
        rates(Path(root), WORKERS)
        waking(Path(root))


if __name__ == "__main__":
    main()
