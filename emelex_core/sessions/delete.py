"""Deleting a Session with everything that hangs on it (behaviours 29, 108, 155, 156).

One transaction removes the Session, by cascade its events, links, journals, snapshot and jobs, and the catalog rows of
assets that it alone linked; their files go right after it. Knowledge stays: its foreign key becomes null, and the
Session's uuid, range and digest remain for audit. It is no forensic erasure: free pages and the log may hold bytes
until maintenance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from emelex_core import faults
from emelex_core.assets import removal
from emelex_core.assets.records import AssetProblem, RemovedRow
from emelex_core.assets.removal import Removed
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import SessionBusy
from emelex_core.sessions import registry, removed
from emelex_core.sessions.records import Session

SQL: Final = load("emelex_core", "deletion")
ASSETS: Final = load("emelex_core", "assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSession:
    """What went. `assets` and `asset_bytes` are those that only this Session linked.

    `kept_assets` are of these, but stored again since or named by a turn under way elsewhere: their grace begins now.
    `knowledge` entries were distilled from it and stay.
    `problems` are files that could not be removed; they are cataloged still, as orphans.
    """

    id: str
    title: str
    events: int
    jobs: int
    assets: int
    asset_bytes: int
    kept_assets: int
    knowledge: int
    problems: tuple[AssetProblem, ...]


def delete(
    database: Database,
    assets_directory: Path,
    session_id: str,
    *,
    clock: Clock,
    guard: Callable[[Transaction, int], None] | None = None,
) -> DeletedSession:
    """Delete a Session that nobody holds. `guard` is asked inside the transaction; what it raises stops it.

    Raises: NotFound; SessionBusy with the deadline while a lease holds it or a worker has one of its jobs; Storage.
    """
    with database.write() as transaction:
        now = clock()
        session = registry.get(transaction, session_id, now=now)
        events, jobs, knowledge = transaction.all(SQL["contents"], {"session_id": session_id})[0]
        alone = [cast(str, row[0]) for row in transaction.all(ASSETS["only_of_session"], {"session_id": session_id})]
        _require_idle(transaction, session, now)
        if guard is not None:
            guard(transaction, now)
        if not transaction.run(SQL["delete"], {"id": session_id, "now": now}):
            raise _busy(session, session.held_until or now)
        if session.source_id is not None:
            removed.note(transaction, session.source, session.source_id, session.id, now=now)
        freed = list(_free(transaction, alone, now))
    faults.reach("session.deleted")
    tally = Removed()
    removal.remove_files(database, assets_directory, freed, tally)
    return DeletedSession(
        id=session.id,
        title=session.title,
        events=cast(int, events),
        jobs=cast(int, jobs),
        assets=tally.rows,
        asset_bytes=tally.bytes,
        kept_assets=len(alone) - len(freed),
        knowledge=cast(int, knowledge),
        problems=tuple(tally.problems.listed),
    )


def _require_idle(transaction: Transaction, session: Session, now: int) -> None:
    worker = transaction.one(SQL["worker"], {"session_id": session.id, "now": now})
    if worker is not None:
        raise _busy(session, cast(int, worker[0]))


def _busy(session: Session, held_until: int) -> SessionBusy:
    return SessionBusy(f"Session {session.id} is in use and was not deleted", held_until=held_until)


def _free(transaction: Transaction, alone: list[str], now: int) -> Iterator[RemovedRow]:
    """Remove the rows that nothing refers to any more; the others begin their grace."""
    journals = removal.journalled(transaction) if alone else set[str]()
    for sha256 in alone:
        journalled = sha256 in journals
        row = None if journalled else transaction.one(ASSETS["remove_freed"], {"sha256": sha256})
        if row is None:
            transaction.run(ASSETS["touch"], {"sha256": sha256, "now": now})
        else:
            yield removal.removed_row(sha256, row)
