"""One maintenance run over a store: the phases in order, each bounded, each for itself (seed, "Knowledge and
retention").

    stale leases ─ Sessions ─ Knowledge: purge, tombstone, versions ─ jobs ─ journal ─ assets ─ the file

A phase that the disk or a lock stops is a problem in the report; the next ones run all the same (behaviour 112).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from emelex_core.assets import collect
from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.errors import Cancelled, Corrupt, Refused, Storage
from emelex_core.retention import journal, lived, overwrite, sessions, sweeps, upkeep
from emelex_core.retention.lived import LivedTime
from emelex_core.retention.records import MaintenanceReport, PhaseProblem, PhaseReport, RetentionPolicy, SessionsReport

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Run:
    """What every phase of one run needs, and the problems so far."""

    database: Database
    assets_directory: Path
    policy: RetentionPolicy
    clock: Clock
    dry_run: bool
    stopped: Callable[[], bool]
    problems: list[PhaseProblem] = field(default_factory=list[PhaseProblem])

    def attempt(self, name: str, phase: Callable[[], T]) -> T | None:
        """Run a phase; None when the disk, a lock, corruption or distrust stopped it. Raises: Cancelled."""
        if self.stopped():
            raise Cancelled("maintenance was asked to stop between two phases")
        try:
            return phase()
        except (Storage, Refused, Corrupt) as error:
            problem = PhaseProblem(phase=name, kind=error.kind, message=error.message, exit_code=error.exit_code)
            self.problems.append(problem)
            return None


def maintain(
    database: Database,
    assets_directory: Path,
    policy: RetentionPolicy,
    *,
    clock: Clock,
    vacuum: bool = False,
    dry_run: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> MaintenanceReport:
    """Run every phase once and report; a dry run changes nothing and says what would go.

    `stopped` is asked between phases. Raises: Invalid for a policy out of range, Cancelled, Storage when not
    even the clock could be noted.
    """
    policy.check()
    run = _Run(
        database=database,
        assets_directory=assets_directory,
        policy=policy,
        clock=clock,
        dry_run=dry_run,
        stopped=stopped,
    )
    now = clock()
    time = _time(run, now)
    leases = run.attempt("leases", lambda: _leases(run, time))
    kept = run.attempt("sessions", lambda: _sessions(run, time))
    phases = _sweep_all(run, time)
    assets = file = None
    if not dry_run:
        run.attempt("journal", lambda: _forget(run, time))
        grace_ms = policy.asset_ms + max(0, now - time.counted_at)
        assets = run.attempt(
            "assets", lambda: collect.collect(database, assets_directory, clock=clock, grace_ms=grace_ms)
        )
        file = run.attempt(
            "file", lambda: overwrite.finish(database) if vacuum else upkeep.tend(database, vacuum=False)
        )
    return MaintenanceReport(
        dry_run=dry_run,
        counted_at=time.counted_at,
        clock_lag_ms=now - time.counted_at,
        stale_leases=leases or 0,
        sessions=kept,
        phases=phases,
        assets=assets,
        file=file,
        problems=tuple(run.problems),
    )


def _time(run: _Run, now: int) -> LivedTime:
    if run.dry_run:
        with run.database.read() as transaction:
            return lived.read(transaction, now=now)
    with run.database.write() as transaction:
        return lived.see(transaction, now=now)


def _leases(run: _Run, time: LivedTime) -> int:
    return sessions.clear_stale_leases(
        run.database, counted_at=time.counted_at, limit=run.policy.rows_max, dry_run=run.dry_run
    )


def _sessions(run: _Run, time: LivedTime) -> SessionsReport:
    return sessions.retain(
        run.database,
        run.assets_directory,
        run.policy,
        counted_at=time.counted_at,
        clock=run.clock,
        dry_run=run.dry_run,
    )


def _sweep_all(run: _Run, time: LivedTime) -> tuple[PhaseReport, ...]:
    found = [
        run.attempt(sweep.name, partial(_sweep, run, sweep))
        for sweep in sweeps.sweeps(run.policy, counted_at=time.counted_at)
    ]
    return tuple(report for report in found if report is not None)


def _sweep(run: _Run, sweep: sweeps.Sweep) -> PhaseReport:
    return sweeps.run(run.database, sweep, rows_max=run.policy.rows_max, clock=run.clock, dry_run=run.dry_run)


def _forget(run: _Run, time: LivedTime) -> int:
    return journal.forget(run.database, cutoff=time.counted_at - run.policy.removal_ms, limit=run.policy.rows_max)
