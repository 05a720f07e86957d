"""`emelex memory maintain`, its alias `gc`, and `memory removals`: what goes, why, and what went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from emelex_cli import shapes
from emelex_cli.call import Call, has_database
from emelex_cli.output import counted, path_text
from emelex_core import limits
from emelex_core.clock import iso
from emelex_core.errors import Cancelled, Storage

if TYPE_CHECKING:
    from emelex_core.retention.records import (
        FileReport,
        JournalledRemoval,
        MaintenanceReport,
        PhaseProblem,
        PhaseReport,
        Removal,
        RetentionPolicy,
        SessionsReport,
    )
    from emelex_workers.maintain import MaintenanceRun


def maintain(
    call: Call,
    *,
    dry_run: bool = False,
    vacuum: bool = False,
    days: int | None = None,
    rows: int = limits.MAINTAIN_ROWS,
) -> int:
    """Maintain the store once, or say what that would remove; return the exit code of what happened."""
    policy = _policy(call, days, rows)
    policy.check()
    if not has_database(call.home):
        call.out.note(f"nothing is stored yet in {path_text(call.home.root)}")
        return 0
    return _promise(call, policy) if dry_run else _run(call, policy, vacuum=vacuum)


def _policy(call: Call, days: int | None, rows: int) -> RetentionPolicy:
    """What `--days` says, else the configuration, else the command's own default (limits table, "CLI gc")."""
    from emelex_core.retention.records import RetentionPolicy

    default = RetentionPolicy.of_days(limits.RETENTION_DAYS if days is None else days, rows_max=rows)
    return default if days is not None else default.configured(call.config.retention)


def removals(call: Call, *, limit: int = 50) -> int:
    """Print what retention removed, the latest first."""
    from emelex_core.retention import journal

    with call.reading() as store:
        found = [] if store is None else journal.page(store.database, limit=limit)
    if call.out.json:
        for line in found:
            call.out.record(journalled(line))
        return 0
    rows = [(shapes.moment(line.removed_at), line.kind, line.id, line.reason) for line in found]
    call.out.table(rows, heading=("removed", "what", "id", "why"))
    return 0


def _promise(call: Call, policy: RetentionPolicy) -> int:
    from emelex_workers.maintain import maintain as run

    with call.must_read() as store:
        found = run(store, policy, dry_run=True)
    assert found is not None
    _tell(call, found)
    return 0


def _run(call: Call, policy: RetentionPolicy, *, vacuum: bool) -> int:
    from emelex_cli.signals import stopping
    from emelex_workers.maintain import maintain as run

    with call.writing() as store, stopping() as stop:
        try:
            found = run(store, policy, vacuum=vacuum, stopped=lambda: stop.exit_code is not None)
        except Cancelled:
            assert stop.exit_code is not None
            return stop.exit_code
    if found is None:
        if call.out.json:
            call.out.record({"type": "maintenance", "done": False, "reason": "another run is under way"})
        else:
            call.out.line("another maintenance run is under way; nothing was done")
        return 0
    _tell(call, found)
    return _exit_code(found.report)


def _exit_code(report: MaintenanceReport) -> int:
    """What a person must see to comes before what the next run may find gone: a lock, a full disk."""
    codes = {problem.exit_code for problem in report.problems}
    return min(codes - {Storage.exit_code}, default=Storage.exit_code) if codes else 0


# --- as JSON ----------------------------------------------------------------------------------------------------------


def run_record(found: MaintenanceRun) -> dict[str, Any]:
    """A whole run."""
    report = found.report
    return {
        "type": "maintenance",
        "done": True,
        "dry_run": report.dry_run,
        "counted_at": iso(report.counted_at),
        "clock_lag_seconds": report.clock_lag_ms // 1000,
        "lost_claims": found.lost_claims,
        "stale_leases": report.stale_leases,
        "sessions": None if report.sessions is None else _sessions_record(report.sessions),
        "phases": {phase.name: _phase_record(phase) for phase in report.phases},
        "assets": None if report.assets is None else asdict(report.assets),
        "file": None if report.file is None else asdict(report.file),
        "problems": [_problem_record(problem) for problem in report.problems],
    }


def journalled(line: JournalledRemoval) -> dict[str, Any]:
    """A line of the removal journal."""
    return {**asdict(line), "dated_at": iso(line.dated_at), "removed_at": iso(line.removed_at)}


def _problem_record(found: PhaseProblem) -> dict[str, Any]:
    return {"phase": found.phase, "kind": found.kind, "message": found.message}


def _sessions_record(found: SessionsReport) -> dict[str, Any]:
    return {
        **_phase_record(found.phase),
        "events": found.events,
        "assets": found.assets,
        "asset_bytes": found.asset_bytes,
        "kept": [{**asdict(kept), "updated_at": iso(kept.updated_at)} for kept in found.kept],
        "expiring": [_removal_record(removal) for removal in found.expiring],
    }


def _phase_record(found: PhaseReport) -> dict[str, Any]:
    return {"removed": [_removal_record(removal) for removal in found.removals], "more": found.more}


def _removal_record(found: Removal) -> dict[str, Any]:
    return {**asdict(found), "dated_at": iso(found.dated_at)}


# --- for people -------------------------------------------------------------------------------------------------------


def _tell(call: Call, found: MaintenanceRun) -> None:
    if call.out.json:
        call.out.record(run_record(found))
        return
    lines = list(_lines(found))
    for line in lines or ["nothing would go"]:
        call.out.line(line)
    report = found.report
    if report.clock_lag_ms > limits.DAY_MS:
        days = report.clock_lag_ms // limits.DAY_MS
        call.out.note(
            f"the clock went on by {days} days that this store has not seen pass; they count once it has been "
            f"maintained for {limits.CLOCK_BELIEF_MS // limits.DAY_MS} days"
        )
    for problem in report.problems:
        call.out.note(f"not finished: {problem.phase}: {problem.message}")


def _lines(found: MaintenanceRun) -> Iterator[str]:
    from emelex_core.retention.records import REASONS

    report = found.report
    verb = "would go" if report.dry_run else "gone"
    for removal in _all_removals(report):
        yield f"{verb}: {removal.kind} {removal.id}, {removal.reason} (since {shapes.moment(removal.dated_at)})"
    if report.sessions is not None:
        for removal in report.sessions.expiring:
            yield f"expiring: session {removal.id} (unused since {shapes.moment(removal.dated_at)}); using it keeps it"
        for kept in report.sessions.kept:
            yield f"kept: session {kept.id}, {REASONS[kept.reason]}"
    if found.lost_claims or report.stale_leases:
        yield f"{found.lost_claims} lost claims counted, {report.stale_leases} leases of dead holders taken off"
    if report.assets is not None:
        yield f"{counted(report.assets.rows, 'asset')} collected ({shapes.size(report.assets.bytes)})"
        for problem in report.assets.problems:
            yield f"asset {shapes.short(problem.name, 80)}: {shapes.short(problem.reason, 200)}"
    if report.file is not None:
        yield _file_line(report.file)
    if any(phase.more for phase in report.phases) or (report.sessions is not None and report.sessions.phase.more):
        yield "more is left: run it again"


def _all_removals(report: MaintenanceReport) -> Iterator[Removal]:
    if report.sessions is not None:
        yield from report.sessions.phase.removals
    for phase in report.phases:
        yield from phase.removals


def _file_line(found: FileReport) -> str:
    log = "; another reader keeps the log" if found.wal_busy else ""
    return (
        f"database {shapes.size(found.bytes_before)} -> {shapes.size(found.bytes_after)} "
        f"(vacuum: {found.vacuum}), log {shapes.size(found.wal_bytes)}{log}"
    )
