"""How many hosts and slots carry a fleet of Homes: a discrete simulation of one or more days, and a plan from it.

    python -P ops/fleet/simulate.py                        plan 10,000 Homes
    python -P ops/fleet/simulate.py --slots 4 homes=2000   one simulation of a given size

Prints one JSON document: the assumptions and what they lead to; for a plan with the fewest slots a host that keep 95 %
of the waits within bounds. Every assumption is a field of `Assumptions`; NAME=VALUE changes one.

The model: each Home belongs to one host. Finished Sessions arrive as a Poisson stream that follows the hour of the day,
more from busy Homes than from quiet ones. A job stands in its host's line, then takes one slot (a pool's workers times
their jobs in flight) and makes its model calls one after the other. A call takes `call_seconds` while the cluster has
no more than `cluster_slots` requests to batch, and in proportion longer beyond that. A worker's death costs the job's
time, one counted failure and a back-off; the third ends the job.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Final

HOUR: Final = 3_600.0
DAY: Final = 24 * HOUR
WORKING_DAY: Final = (1, 1, 1, 1, 1, 1, 2, 4, 8, 10, 10, 9, 7, 9, 10, 10, 9, 7, 5, 4, 3, 2, 2, 1)
"""Weights of the 24 hours: office hours of one time zone, which is the worst case."""
FAILURES_TERMINAL: Final = 3
BACKOFF_SECONDS: Final = (30.0, 60.0)
SLOTS_MAX: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is taken for granted. Figures marked "measured" come from this repository's benchmarks."""

    homes: int = 10_000
    hosts: int = 20
    slots: int = 16
    """Jobs that one host has in flight at once: pools × workers × `--in-flight`."""
    days: int = 1
    sessions_per_home: float = 6.0
    """Finished Sessions a day; each publishes one distillation."""
    spread: float = 1.0
    """Of the logarithm of a Home's rate: at 1.0 the busiest tenth of the Homes makes four tenths of the jobs."""
    compactions: float = 0.15
    """Compactions for each distillation."""
    calls: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 24)
    """Model calls of a job, each of these as likely."""
    call_seconds: float = 2.5
    cluster_slots: int = 512
    """Requests that the cluster batches without slowing each of them down."""
    settle_seconds: float = 0.1
    """Claiming and settling, two commits, beside others on one host (measured: 5 to 60 ms)."""
    deaths: float = 0.002
    """Of attempts: the worker, its host or the endpoint was lost."""
    wal_bytes_per_job: int = 260_000
    """Pages written by appending three turns, claiming and settling (measured: 93 and 167 kB, before compression)."""
    hours: tuple[int, ...] = WORKING_DAY
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. Waits are from publishing to the first start, in seconds."""

    jobs: int
    completed: int
    failed: int
    retries: int
    wait_mean: float
    wait_p50: float
    wait_p95: float
    wait_max: float
    in_flight_mean: float
    in_flight_peak: int
    slots_busy: float
    jobs_per_second_peak_hour: float
    replicated_kib_per_second_peak_hour: float


@dataclass(slots=True)
class Job:
    """One job on its way."""

    published: float
    host: int
    calls: int
    failures: int = 0
    started: float | None = None


@dataclass(slots=True)
class Host:
    """One host: who waits, and how many slots are free."""

    free: int
    line: deque[Job] = field(default_factory=deque)


class Simulation:
    """One run over the assumptions' days, until the last job has ended."""

    def __init__(self, given: Assumptions) -> None:
        self._given = given
        self._random = random.Random(given.seed)  # noqa: S311 - a simulation must be repeatable, not secret
        self._hosts = [Host(free=given.slots) for _ in range(given.hosts)]
        self._events: list[tuple[float, int, bool, Job]] = []
        self._order = count()
        self._in_flight = self._peak = self._retries = self._completed = self._failed = 0
        self._area = self._now = 0.0

    def run(self) -> Outcome:
        """Simulate and return what came of it."""
        jobs = self._publish()
        for job in jobs:
            self._at(job.published, job, ends=False)
        while self._events:
            now, _, ends, job = heapq.heappop(self._events)
            self._area += self._in_flight * (now - self._now)
            self._now = now
            host = self._hosts[job.host]
            if ends:
                self._end(job, host)
            else:
                host.line.append(job)
            while host.free and host.line:
                self._start(host.line.popleft(), host)
        return self._outcome(jobs)

    def _publish(self) -> list[Job]:
        """Every job of every Home, in no order."""
        given = self._given
        mean = given.sessions_per_home * given.days * (1.0 + given.compactions)
        found: list[Job] = []
        for home in range(given.homes):
            # A lognormal's mean is exp(sigma²/2), which is taken out.
            rate = mean * self._random.lognormvariate(-(given.spread**2) / 2, given.spread) if given.spread else mean
            due = self._random.expovariate(1.0)
            while due < rate:
                found.append(Job(self._moment(), home % given.hosts, self._random.choice(given.calls)))
                due += self._random.expovariate(1.0)
        return found

    def _moment(self) -> float:
        hour = self._random.choices(range(len(self._given.hours)), self._given.hours)[0]
        day = self._random.randrange(self._given.days)
        return day * DAY + (hour + self._random.random()) * (DAY / len(self._given.hours))

    def _at(self, when: float, job: Job, *, ends: bool) -> None:
        heapq.heappush(self._events, (when, next(self._order), ends, job))

    def _start(self, job: Job, host: Host) -> None:
        given = self._given
        host.free -= 1
        job.started = self._now if job.started is None else job.started
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        stretch = max(1.0, self._in_flight / given.cluster_slots)
        self._at(self._now + given.settle_seconds + job.calls * given.call_seconds * stretch, job, ends=True)

    def _end(self, job: Job, host: Host) -> None:
        host.free += 1
        self._in_flight -= 1
        if self._random.random() >= self._given.deaths:
            self._completed += 1
            return
        job.failures += 1
        if job.failures == FAILURES_TERMINAL:
            self._failed += 1
            return
        self._retries += 1
        self._at(self._now + BACKOFF_SECONDS[job.failures - 1], job, ends=False)

    def _outcome(self, jobs: list[Job]) -> Outcome:
        given = self._given
        waits = sorted((job.started or job.published) - job.published for job in jobs) or [0.0]
        hours = [0] * int(given.days * 24)
        for job in jobs:
            hours[int(job.published // HOUR)] += 1
        peak = max(hours) / HOUR
        return Outcome(
            jobs=len(jobs),
            completed=self._completed,
            failed=self._failed,
            retries=self._retries,
            wait_mean=sum(waits) / len(waits),
            wait_p50=waits[len(waits) // 2],
            wait_p95=waits[int(len(waits) * 0.95)],
            wait_max=waits[-1],
            in_flight_mean=self._area / self._now if self._now else 0.0,
            in_flight_peak=self._peak,
            slots_busy=self._area / (self._now * given.slots * given.hosts) if self._now else 0.0,
            jobs_per_second_peak_hour=peak,
            replicated_kib_per_second_peak_hour=peak * given.wal_bytes_per_job / 1_024,
        )


def simulate(given: Assumptions) -> Outcome:
    """Run one simulation. The same assumptions give the same outcome."""
    return Simulation(given).run()


def plan(given: Assumptions, *, wait_p95_max: float) -> Assumptions | None:
    """The assumptions with the fewest slots a host that keep the 95th percentile of waits, or None when none does.

    Beyond what the cluster batches, more slots only make each call slower; that is where None comes from.
    """
    high = 1
    while simulate(replace(given, slots=high)).wait_p95 > wait_p95_max:
        high *= 2
        if high > SLOTS_MAX:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        kept = simulate(replace(given, slots=middle)).wait_p95 <= wait_p95_max
        low, high = (low, middle) if kept else (middle, high)
    return replace(given, slots=high)


def main(arguments: Sequence[str]) -> int:
    """Plan, or simulate with `--slots`; return 1 when no number of slots is enough."""
    parser = argparse.ArgumentParser(description="Plan a fleet of Homes.")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds that 95 %% of the jobs may wait")
    parser.add_argument("--slots", type=int, help="simulate this many slots a host instead of planning")
    parser.add_argument("assumptions", nargs="*", metavar="NAME=VALUE", help="homes=2000, call_seconds=4.0, …")
    options = parser.parse_args(arguments)
    given = Assumptions(**dict(map(_assumption, options.assumptions)))
    chosen = plan(given, wait_p95_max=options.wait) if options.slots is None else replace(given, slots=options.slots)
    told = None if chosen is None else {name: _rounded(value) for name, value in asdict(simulate(chosen)).items()}
    document = {"planned": options.slots is None, "assumptions": asdict(chosen or given), "outcome": told}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 1 if chosen is None else 0


def _assumption(text: str) -> tuple[str, int | float]:
    name, _, value = text.partition("=")
    return name, float(value) if "." in value else int(value)


def _rounded(value: float) -> float:
    return round(value, 3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
