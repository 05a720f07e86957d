"""Sweeps over rows: Knowledge, its versions, and finished jobs (behaviours 150 to 152, 177).

A sweep reads its candidates, then removes them some at a time under the write lock; each removal asks in its own WHERE
whether it still holds, and writes its line of the journal in the same transaction.

Unpinned Knowledge that nothing has touched for long becomes a tombstone first: it is hidden and can be brought back.
Only a tombstone that has stood for the grace goes for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from emelex_core import limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.retention import journal
from emelex_core.retention.records import PhaseReport, Removal, RetentionPolicy

SQL: Final = load("emelex_core", "retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One phase: its candidates, how one is removed, and why. Every statement is asked with `cutoff`.

    `before` and `after` run around each removal, in its transaction: what goes with it, and its line elsewhere.
    """

    name: str
    kind: str
    candidates: str
    remove: str
    cutoff: int
    reason: str
    before: str | None = None
    after: str | None = None


def sweeps(policy: RetentionPolicy, *, counted_at: int) -> tuple[Sweep, ...]:
    """The phases in order. Purging comes before tombstoning, so that no run does both to one entry."""
    jobs = counted_at - policy.job_ms
    return (
        Sweep(
            name="purged_knowledge",
            kind="knowledge",
            candidates=SQL["knowledge_tombstoned"],
            remove=SQL["purge_knowledge"],
            cutoff=counted_at - policy.tombstone_ms,
            reason=f"forgotten {_days(policy.tombstone_ms)} days ago",
            before=SQL["purge_proposals_of_key"],
        ),
        Sweep(
            name="tombstoned_knowledge",
            kind="knowledge_tombstone",
            candidates=SQL["knowledge_old"],
            remove=SQL["tombstone_knowledge"],
            cutoff=counted_at - policy.knowledge_ms,
            reason=f"not touched for {_days(policy.knowledge_ms)} days",
            after=SQL["note_expired"],
        ),
        Sweep(
            name="knowledge_versions",
            kind="knowledge_version",
            candidates=SQL["versions_over"],
            remove=SQL["prune_version"],
            cutoff=policy.versions,
            reason=f"{policy.versions} newer versions are kept",
        ),
        Sweep(
            name="knowledge_proposals",
            kind="knowledge_proposal",
            candidates=SQL["proposals_old"],
            remove=SQL["drop_proposal"],
            cutoff=counted_at - policy.knowledge_ms,
            reason=f"proposed or decided {_days(policy.knowledge_ms)} days ago",
        ),
        Sweep(
            name="completed_jobs",
            kind="job",
            candidates=SQL["jobs_done"],
            remove=SQL["prune_job"],
            cutoff=jobs,
            reason=f"completed {_days(policy.job_ms)} days ago and overtaken",
        ),
        Sweep(
            name="failed_jobs",
            kind="job",
            candidates=SQL["jobs_overtaken"],
            remove=SQL["prune_failure"],
            cutoff=jobs,
            reason=f"failed {_days(policy.job_ms)} days ago and overtaken",
        ),
    )


def run(database: Database, sweep: Sweep, *, rows_max: int, clock: Clock, dry_run: bool) -> PhaseReport:
    """Run one phase and say what went, or in a dry run what would go. Raises: Storage."""
    with database.read() as transaction:
        rows = transaction.all(sweep.candidates, {"cutoff": sweep.cutoff, "limit": rows_max})
    removals = [_removal(sweep, row) for row in rows]
    if not dry_run:
        removals = list(_remove_all(database, sweep, rows, clock))
    return PhaseReport(name=sweep.name, removals=tuple(removals), more=len(rows) == rows_max)


def _remove_all(database: Database, sweep: Sweep, rows: list[Row], clock: Clock) -> Iterator[Removal]:
    for start in range(0, len(rows), limits.MAINTAIN_BATCH_ROWS):
        with database.write() as transaction:
            gone = [
                removal
                for row in rows[start : start + limits.MAINTAIN_BATCH_ROWS]
                if (removal := _remove(transaction, sweep, row, now=clock())) is not None
            ]
        yield from gone


def _remove(transaction: Transaction, sweep: Sweep, row: Row, *, now: int) -> Removal | None:
    """Remove one candidate; None when it no longer is one."""
    parameters: dict[str, Value] = {"key": row[0], "version": row[1], "cutoff": sweep.cutoff, "now": now}
    if sweep.before is not None:
        transaction.run(sweep.before, parameters)
    if not transaction.run(sweep.remove, parameters):
        return None
    if sweep.after is not None:
        transaction.run(sweep.after, {**parameters, "reason": sweep.reason})
    removal = _removal(sweep, row)
    journal.note(transaction, removal, now=now)
    return removal


def _removal(sweep: Sweep, row: Row) -> Removal:
    return Removal(kind=sweep.kind, id=cast(str, row[2]), reason=sweep.reason, dated_at=cast(int, row[3]))


def _days(span_ms: int) -> str:
    return f"{span_ms / limits.DAY_MS:g}"
