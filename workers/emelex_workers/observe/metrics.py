"""Metrics in the text format of Prometheus (names: measured.md, "Running under supervisors").

    events ──▶ Counters ──┐
                          ├──▶ render ──▶ HTTP on loopback, or a file that is replaced whole
    store  ──▶ Gauges   ──┘

The module owns these invariants:

- Labels are kinds, states and outcomes: never an id, a path or a word of anybody's.
- A file is written beside its place and renamed into it, so that a reader sees the old one or the new one. Its counters
  go on from what it held before, so that one-shot drains add up.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emelex_core.errors import Storage
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_core.jobs.records import QueueDepth
from emelex_core.retention.upkeep import log_bytes
from emelex_core.store import MemoryStore
from emelex_workers.pool.events import JobLost, PoolEvent
from emelex_workers.progress import JobEnded

OUTCOMES: Final = ("completed", "retry", "failed", "released", "lost")
STATES: Final = ("pending", "running", "waiting", "blocked", "failed", "completed")
WAIT_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
RUN_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FILE_MODE: Final = 0o644
"""A collector of text files runs as another user; there is nothing private in it."""

_HELP: Final = {
    "emelex_jobs": ("gauge", "Jobs by kind and state."),
    "emelex_job_oldest_seconds": ("gauge", "Age of the oldest job that could be claimed now; 0 for none."),
    "emelex_db_bytes": ("gauge", "Size of the database."),
    "emelex_wal_bytes": ("gauge", "Size of the write-ahead log."),
    "emelex_assets_bytes": ("gauge", "Bytes of cataloged assets."),
    "emelex_store_readable": ("gauge", "Whether the store could be read just now."),
    "emelex_job_attempts_total": ("counter", "Attempts that ended, by kind and outcome."),
    "emelex_lease_expirations_total": ("counter", "Claims that nobody held any more, counted as failures."),
    "emelex_job_wait_seconds": ("histogram", "From when a job was due to its claim."),
    "emelex_job_run_seconds": ("histogram", "From a job's claim to the end of its attempt."),
}
_SAMPLE: Final = re.compile(r"(emelex_\w+)(?:\{([^}]*)\})? ([0-9.e+-]+)")


@dataclass(slots=True)
class Histogram:
    """Counts of what was observed, in buckets with upper bounds; the last of `counts` lies beyond all of them."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0

    def __post_init__(self) -> None:
        """Begin empty."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one observation; a clock that was set back counts as nothing waited."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What a store holds now; sizes in bytes."""

    queues: dict[str, QueueDepth]
    database_bytes: int
    wal_bytes: int
    asset_bytes: int


class Counters:
    """What has happened since the counters began."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, str], int] = {(kind, outcome): 0 for kind in JobKind for outcome in OUTCOMES}
        self.expirations = 0
        self.wait = Histogram(WAIT_SECONDS)
        self.run = Histogram(RUN_SECONDS)

    def hear(self, event: PoolEvent) -> None:
        """Count one event."""
        match event:
            case JobEnded():
                self._attempt(event.kind, event.outcome)
                if event.lost:
                    self.expirations += 1
                else:
                    self.run.observe(event.seconds)
            case JobLost():
                self._attempt(event.kind, "lost")
            case _:
                return

    def waited(self, seconds: float) -> None:
        """Count how long a claimed job had been due."""
        self.wait.observe(seconds)

    def go_on_from(self, text: str) -> None:
        """Add what an earlier run left in its file. Lines that are not ours are passed over."""
        found = {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)}
        for kind, outcome in self.attempts:
            before = found.get(("emelex_job_attempts_total", f'kind="{kind}",outcome="{outcome}"'), 0)
            self.attempts[kind, outcome] += int(before)
        self.expirations += int(found.get(("emelex_lease_expirations_total", ""), 0))
        for name, histogram in (("emelex_job_wait_seconds", self.wait), ("emelex_job_run_seconds", self.run)):
            below = 0
            for place, bound in enumerate([*map(_number, histogram.bounds), "+Inf"]):
                reached = int(found.get((f"{name}_bucket", f'le="{bound}"'), below))
                histogram.counts[place] += max(0, reached - below)
                below = max(below, reached)
            histogram.total += found.get((f"{name}_sum", ""), 0.0)

    def _attempt(self, kind: str, outcome: str) -> None:
        self.attempts[kind, outcome] = self.attempts.get((kind, outcome), 0) + 1


def look(store: MemoryStore) -> Gauges:
    """Read what the gauges show. Raises: Storage, Corrupt."""
    totals = store.totals()
    return Gauges(
        queues=reading.queue_depths(store.database, now=store.clock()),
        database_bytes=totals.database_bytes,
        wal_bytes=log_bytes(store.database.path),
        asset_bytes=totals.asset_bytes,
    )


def render(counters: Counters, gauges: Gauges | None) -> str:
    """The whole text. Without gauges the store could not be read, and that is said."""
    lines: list[str] = []
    if gauges is not None:
        _family(lines, "emelex_jobs", _queue_samples(gauges))
        oldest = {kind: depth.oldest_pending_seconds or 0 for kind, depth in gauges.queues.items()}
        _family(lines, "emelex_job_oldest_seconds", [(f'{{kind="{kind}"}}', age) for kind, age in oldest.items()])
        _family(lines, "emelex_db_bytes", [("", gauges.database_bytes)])
        _family(lines, "emelex_wal_bytes", [("", gauges.wal_bytes)])
        _family(lines, "emelex_assets_bytes", [("", gauges.asset_bytes)])
    _family(lines, "emelex_store_readable", [("", int(gauges is not None))])
    attempts = [(f'{{kind="{kind}",outcome="{outcome}"}}', n) for (kind, outcome), n in counters.attempts.items()]
    _family(lines, "emelex_job_attempts_total", attempts)
    _family(lines, "emelex_lease_expirations_total", [("", counters.expirations)])
    _histogram(lines, "emelex_job_wait_seconds", counters.wait)
    _histogram(lines, "emelex_job_run_seconds", counters.run)
    return "\n".join(lines) + "\n"


def write_file(path: Path, text: str) -> None:
    """Replace a file by a new one, whole. Raises: Storage."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), FILE_MODE)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, path)  # noqa: PTH104 - both names are plain texts here
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # noqa: PTH108 - a plain text
            raise
    except OSError as error:
        raise Storage(f"cannot write metrics to {path}: {error.strerror}") from error


def _queue_samples(gauges: Gauges) -> list[tuple[str, float]]:
    return [
        (f'{{kind="{kind}",state="{state}"}}', int(getattr(depth, state)))
        for kind, depth in gauges.queues.items()
        for state in STATES
    ]


def _family(lines: list[str], name: str, samples: Sequence[tuple[str, float]]) -> None:
    kind, text = _HELP[name]
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labels} {_number(value)}" for labels, value in samples]


def _histogram(lines: list[str], name: str, histogram: Histogram) -> None:
    kind, text = _HELP[name]
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    reached = 0
    for bound, count in zip([*map(_number, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        reached += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {reached}')
    lines += [f"{name}_sum {_number(histogram.total)}", f"{name}_count {reached}"]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))
