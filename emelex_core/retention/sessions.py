"""Retention of Sessions by age (behaviours 150, 155, 156, 179).

The module owns these invariants:

- Age is counted from recorded activity, in time that the store has seen pass; file times are never asked.
- A Session that is live, has a turn under way or unreconciled, or a job pending or running, is never removed. That is
  asked again in the transaction that deletes it, together with whether it was used since it was chosen.
- A lease is taken from nobody who lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from emelex_core import limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import NotFound, SessionBusy
from emelex_core.retention import journal
from emelex_core.retention.records import KeptSession, PhaseReport, Removal, RetentionPolicy, SessionsReport
from emelex_core.sessions import delete

SQL: Final = load("emelex_core", "retention")
DELETION: Final = load("emelex_core", "deletion")
ASSETS: Final = load("emelex_core", "assets")
_CLOCK_TOLERANCE_MS: Final = limits.DAY_MS
"""Clocks are put right by minutes all the time; a day is no such correction."""
_ABANDONED_MS: Final = limits.CLOCK_BELIEF_MS
"""Where nobody can tell whether an owner lives, a lease that was not renewed for so long has none."""


class _StillWanted(Exception):
    """The Session was used, or got work, after it was chosen."""


def clear_stale_leases(database: Database, *, counted_at: int, limit: int, dry_run: bool) -> int:
    """Take leases off Sessions whose holder is dead, or has not come back for a week; return how many."""
    parameters = {"abandoned": counted_at - _ABANDONED_MS}
    with database.read() as transaction:
        rows = transaction.all(SQL["stale_leases"], {**parameters, "limit": limit})
    if dry_run or not rows:
        return len(rows)
    with database.write() as transaction:
        return sum(transaction.run(SQL["clear_lease"], {**parameters, "id": row[0]}) for row in rows)


def retain(
    database: Database, assets_directory: Path, policy: RetentionPolicy, *, counted_at: int, clock: Clock, dry_run: bool
) -> SessionsReport:
    """Remove Sessions that were not used for too long, the longest unused first. Raises: Storage."""
    cutoff = counted_at - policy.session_ms
    with database.read() as transaction:
        due, kept, more = _over_age(transaction, policy, counted_at)
        expiring = _expiring(transaction, policy, counted_at)
        freed = [_contents(transaction, removal.id) for removal in due] if dry_run else []
    if not dry_run:
        gone = list(_delete_all(database, assets_directory, due, cutoff, clock))
        due = [removal for removal, _ in gone]
        freed = [(report.events, report.assets, report.asset_bytes) for _, report in gone]
    return SessionsReport(
        phase=PhaseReport(name="sessions", removals=tuple(due), more=more),
        kept=tuple(kept),
        expiring=tuple(expiring),
        events=sum(events for events, _, _ in freed),
        assets=sum(assets for _, assets, _ in freed),
        asset_bytes=sum(size for _, _, size in freed),
    )


def _over_age(
    transaction: Transaction, policy: RetentionPolicy, counted_at: int
) -> tuple[list[Removal], list[KeptSession], bool]:
    rows = transaction.all(
        SQL["sessions_over_age"],
        {
            "counted_at": counted_at,
            "cutoff": counted_at - policy.session_ms,
            "tolerance": _CLOCK_TOLERANCE_MS,
            "limit": policy.rows_max,
        },
    )
    due: list[Removal] = []
    kept: list[KeptSession] = []
    for session_id, updated_at, keep in rows:
        if keep is None:
            due.append(_removal(session_id, updated_at, policy))
        else:
            kept.append(KeptSession(id=cast(str, session_id), updated_at=cast(int, updated_at), reason=cast(str, keep)))
    return due, kept, len(due) == policy.rows_max


def _expiring(transaction: Transaction, policy: RetentionPolicy, counted_at: int) -> list[Removal]:
    cutoff = counted_at - policy.session_ms
    rows = transaction.all(
        SQL["sessions_expiring"],
        {"cutoff": cutoff, "soon": cutoff + limits.RETENTION_NOTICE_MS, "limit": policy.rows_max},
    )
    return [_removal(session_id, updated_at, policy) for session_id, updated_at in rows]


def _removal(session_id: object, updated_at: object, policy: RetentionPolicy) -> Removal:
    days = policy.session_ms / limits.DAY_MS
    return Removal(
        kind="session",
        id=cast(str, session_id),
        reason=f"not used for {days:g} days",
        dated_at=cast(int, updated_at),
    )


def _delete_all(
    database: Database, assets_directory: Path, due: list[Removal], cutoff: int, clock: Clock
) -> Iterator[tuple[Removal, delete.DeletedSession]]:
    for removal in due:

        def guard(transaction: Transaction, now: int, removal: Removal = removal) -> None:
            wanted: dict[str, Value] = {"id": removal.id, "updated_at": removal.dated_at, "cutoff": cutoff}
            if transaction.one(SQL["session_still_due"], wanted) is None:
                raise _StillWanted
            journal.note(transaction, removal, now=now)

        try:
            yield removal, delete.delete(database, assets_directory, removal.id, clock=clock, guard=guard)
        except (_StillWanted, SessionBusy, NotFound):
            # Somebody was quicker: it is in use again, or gone already.
            continue


def _contents(transaction: Transaction, session_id: str) -> tuple[int, int, int]:
    """Events, and the assets that no other Session links with their bytes: what would go with a Session."""
    row = transaction.one(DELETION["contents"], {"session_id": session_id})
    alone = [cast(str, found[0]) for found in transaction.all(ASSETS["only_of_session"], {"session_id": session_id})]
    sizes = [transaction.one(ASSETS["size"], {"sha256": sha256}) for sha256 in alone]
    return cast(int, row[0]) if row else 0, len(alone), sum(cast(int, size[0]) for size in sizes if size)
