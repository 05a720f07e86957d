"""`emelex memory top`: the queue and its workers, live on a terminal, one snapshot anywhere else.

The store is opened for reading, looked at, and closed at each look: nothing is held between two of them.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.output import counted, one_line
from emelex_cli.status_cmd import age
from emelex_core.clock import iso

if TYPE_CHECKING:
    from rich.console import RenderableType

    from emelex_core.jobs.records import Job, QueueDepth
    from emelex_core.store import MemoryStore, Totals
    from emelex_queue.pausing import Pause

JOBS_SHOWN: Final = 12
_STATES: Final = ("pending", "running", "waiting", "blocked", "failed", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one look saw. `maintained_at` is when a pool's schedule last ran, None for never."""

    at: int
    totals: Totals
    wal_bytes: int
    queues: dict[str, QueueDepth]
    running: list[Job]
    failed: list[Job]
    pauses: list[Pause]
    maintained_at: int | None


def top(call: Call, *, interval: float = 1.0, once: bool = False) -> int:
    """Show the queue until Ctrl-C; without a terminal, with `once` or with --json, show it one time."""
    if once or call.out.json or not _is_terminal():
        with call.reading() as store:
            seen = None if store is None else look(store)
        if seen is not None:
            _show_once(call, seen)
        return 0
    return _live(call, interval)


def look(store: MemoryStore) -> Snapshot:
    """Read a snapshot. Raises: Storage, Corrupt."""
    from emelex_core.jobs import reading
    from emelex_core.jobs.kinds import JobState
    from emelex_core.retention import slots
    from emelex_core.retention.upkeep import log_bytes
    from emelex_queue.pausing import pauses
    from emelex_workers.maintain import SCHEDULE_NAME

    now = store.clock()
    maintained = slots.last(store.database, SCHEDULE_NAME)
    return Snapshot(
        at=now,
        totals=store.totals(),
        wal_bytes=log_bytes(store.database.path),
        queues=reading.queue_depths(store.database, now=now),
        running=reading.list_jobs(store.database, state=JobState.RUNNING, limit=JOBS_SHOWN),
        failed=reading.failed_jobs(store.database, limit=JOBS_SHOWN),
        pauses=pauses(store.database),
        maintained_at=None if maintained is None else maintained[1],
    )


def record(seen: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON. Diagnostics are left to `jobs show`."""
    return {
        "type": "top",
        "at": iso(seen.at),
        "database_bytes": seen.totals.database_bytes,
        "wal_bytes": seen.wal_bytes,
        "asset_bytes": seen.totals.asset_bytes,
        "queues": {kind: asdict(depth) for kind, depth in seen.queues.items()},
        "running": [_job(job) for job in seen.running],
        "failed": [_job(job) for job in seen.failed],
        "paused": {pause.kind.value: iso(pause.paused_at) for pause in seen.pauses},
        "maintained_at": iso(seen.maintained_at),
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind.value,
        "session": job.session_id,
        "attempt": job.attempt if job.failed_at is None else job.failure_count,
        "lease_until": iso(job.lease_until),
        "failed_at": iso(job.failed_at),
    }


def _show_once(call: Call, seen: Snapshot) -> None:
    if call.out.json:
        call.out.record(record(seen))
        return
    call.out.line(_headline(seen))
    call.out.table(_queue_rows(seen), heading=("queue", *_STATES, "oldest"))
    call.out.table(_job_rows(seen), heading=("job", "kind", "session", "attempt", "state"))


def _live(call: Call, interval: float) -> int:
    from rich.console import Console
    from rich.live import Live

    from emelex_cli.signals import stopping

    # Signals end the view at once: it holds nothing that would have to be given back.
    with stopping() as stop, Live(console=Console(stderr=False), screen=True, auto_refresh=False) as view:
        while stop.exit_code is None:
            with call.reading() as store:
                if store is None:
                    return 0
                view.update(_page(look(store)), refresh=True)
            until = time.monotonic() + interval
            while stop.exit_code is None and time.monotonic() < until:
                stop.token.wait(min(0.1, interval))
    return 0


def _page(seen: Snapshot) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    queues = Table("queue", *_STATES, "oldest", box=None, pad_edge=False)
    for row in _queue_rows(seen):
        queues.add_row(*map(Text, row))
    jobs = Table("job", "kind", "session", "attempt", "state", box=None, pad_edge=False)
    for row in _job_rows(seen):
        jobs.add_row(*(Text(cell, style="red" if row[-1].startswith("failed") else "") for cell in row))
    return Group(Text(_headline(seen), style="bold"), Text(), queues, Text(), jobs, Text(), Text("Ctrl-C ends"))


def _headline(seen: Snapshot) -> str:
    paused = ", ".join(pause.kind.value for pause in seen.pauses)
    return (
        f"{shapes.moment(seen.at)} UTC: {counted(seen.totals.sessions, 'Session')}, "
        f"{counted(seen.totals.knowledge, 'Knowledge entry')}; "
        f"database {shapes.size(seen.totals.database_bytes)}, log {shapes.size(seen.wal_bytes)}; "
        f"maintained {shapes.moment(seen.maintained_at)}" + (f"; PAUSED: {paused}" if paused else "")
    )


def _queue_rows(seen: Snapshot) -> list[tuple[str, ...]]:
    return [
        (kind, *(str(getattr(depth, state)) for state in _STATES), age(depth.oldest_pending_seconds))
        for kind, depth in seen.queues.items()
    ]


def _job_rows(seen: Snapshot) -> list[tuple[str, ...]]:
    running = [
        (job, str(job.attempt), f"running, lease until {shapes.moment(job.lease_until)}") for job in seen.running
    ]
    failed = [(job, str(job.failure_count), f"failed {shapes.moment(job.failed_at)}") for job in seen.failed]
    return [
        (job.id[:8], job.kind.value, job.session_id[:8], attempt, one_line(state))
        for job, attempt, state in [*running, *failed][:JOBS_SHOWN]
    ]


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
