"""`emelex memory status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from emelex_cli import sqlite_release
from emelex_cli.call import Call
from emelex_cli.output import counted
from emelex_cli.shapes import pause_line, size

if TYPE_CHECKING:
    from emelex_core.store import MemoryStore

_TITLES: Final = ("pending", "running", "waiting", "blocked", "failed", "completed")


def status(call: Call) -> int:
    """Print totals, queues and coverage; all zero where nothing was ever stored."""
    with call.reading() as store:
        found = _empty() if store is None else _status(store)
        paused = [] if store is None else _paused(store)
    fault = sqlite_release.fault(found["sqlite_version"])
    if fault is not None:
        call.out.note(f"warning: {fault}")
    if call.out.json:
        call.out.record(found)
    else:
        _tell(call, found)
    for line in paused:
        call.out.note(line)
    return 0


def _status(store: MemoryStore) -> dict[str, Any]:
    from emelex_core.jobs import reading

    depths = reading.queue_depths(store.database, now=store.clock())
    return {
        **asdict(store.totals()),
        "queues": {kind: asdict(depth) for kind, depth in depths.items()},
        "coverage": asdict(reading.coverage(store.database)),
    }


def _paused(store: MemoryStore) -> list[str]:
    from emelex_queue.pausing import pauses

    return [f"{pause_line(found)}; `emelex memory resume` lets it go on" for found in pauses(store.database)]


def _empty() -> dict[str, Any]:
    import apsw

    from emelex_core.jobs.kinds import JobKind
    from emelex_core.jobs.records import Coverage, QueueDepth
    from emelex_core.store import Totals

    depth = {**{field.name: 0 for field in fields(QueueDepth)}, "oldest_pending_seconds": None}
    return {
        **{field.name: 0 for field in fields(Totals)},
        "sqlite_version": apsw.sqlite_lib_version(),
        "queues": {kind.value: dict(depth) for kind in JobKind},
        "coverage": {field.name: 0 for field in fields(Coverage)},
    }


def _tell(call: Call, found: Mapping[str, Any]) -> None:
    out, coverage = call.out, found["coverage"]
    out.line(
        f"{counted(found['sessions'], 'Session')}, {counted(found['events'], 'event')}; "
        f"{counted(found['knowledge'], 'Knowledge entry')} "
        f"({found['tombstoned_knowledge']} forgotten); "
        f"{counted(found['assets'], 'asset')} ({size(found['asset_bytes'])})"
    )
    out.line(
        f"database {size(found['database_bytes'])}, schema {found['schema_version']}, SQLite {found['sqlite_version']}"
    )
    out.line(
        f"{coverage['distilled']} of {counted(coverage['sessions'], 'Session')} distilled, "
        f"{coverage['pending']} pending, {coverage['failed']} failed"
    )
    out.line()
    rows = [
        (kind, *(str(depth[title]) for title in _TITLES), age(depth["oldest_pending_seconds"]))
        for kind, depth in found["queues"].items()
    ]
    out.table(rows, heading=("queue", *_TITLES, "oldest"))


def age(seconds: float | None) -> str:
    """A span for people, in its largest unit; a dash for none."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
