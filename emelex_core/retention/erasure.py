"""Erasing a Session with what was derived from it (issue 8, item 9; reports, K12; ADR 0018).

The module owns these invariants:

- The derivation graph is followed in the transaction that deletes the Session: versions that rest on nothing else, with
  entries that are then empty, further evidence, proposals, lines of records. Summaries, jobs, diagnostics and links go
  with the Session itself.
- A version that another Session bears out stays and rests on that one. What a person typed is theirs and stays.
- Where an entry loses its active version, the newest that is left is in use, as if the Session had never been.
- Then the bytes go: freed pages are zeroed, indexes merged, the file rewritten, the log emptied. The receipt says so,
  and says where that could not be done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import NotFound
from emelex_core.retention import overwrite
from emelex_core.retention.records import FileReport
from emelex_core.sessions import delete
from emelex_core.sessions.delete import DeletedSession

SQL: Final = load("emelex_core", "erasure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What is derived from a Session and stored beside it; `lines` are further evidence and lines of records."""

    knowledge: int
    versions: int
    proposals: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedDerived:
    """What went: entries as a whole, versions, proposals; `kept` versions rest on other Sessions now."""

    knowledge: int
    versions: int
    kept: int
    proposals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The end of an erasure. `deleted` is None for a Session that was deleted before.

    `clean` says that the database file and its log hold none of it any more; `file` says why not.
    """

    session_id: str
    deleted: DeletedSession | None
    derived: ErasedDerived
    file: FileReport
    clean: bool


def remaining(transaction: Transaction, session_id: str) -> Derived:
    """What is still derived from a Session, by its full id; it may be deleted."""
    row = transaction.one(SQL["remaining"], {"session_id": session_id})
    assert row is not None
    knowledge, versions, proposals, lines = (cast(int, value) for value in row)
    return Derived(knowledge=knowledge, versions=versions, proposals=proposals, lines=lines)


def erase(database: Database, assets_directory: Path, session_id: str, *, clock: Clock) -> Receipt:
    """Erase a Session and what was derived from it, by its full id; one that was deleted before leaves the rest.

    Raises: NotFound when neither is there; SessionBusy with the deadline while somebody uses it; Storage.
    """
    gone: list[ErasedDerived] = []

    def guard(transaction: Transaction, now: int) -> None:
        gone.append(_erase_derived(transaction, session_id, now=now))

    with overwrite.overwriting(database):
        try:
            deleted = delete.delete(database, assets_directory, session_id, clock=clock, guard=guard)
            deleted = replace(deleted, knowledge=0)
        except NotFound:
            deleted = None
            with database.write() as transaction:
                left = remaining(transaction, session_id)
                if not (left.versions or left.proposals or left.lines):
                    raise
                gone.append(_erase_derived(transaction, session_id, now=clock()))
        report = overwrite.finish(database)
    return Receipt(
        session_id=session_id, deleted=deleted, derived=gone[-1], file=report, clean=overwrite.is_clean(report)
    )


def _erase_derived(transaction: Transaction, session_id: str, *, now: int) -> ErasedDerived:
    transaction.run(SQL["drop_evidence"], {"session_id": session_id})
    rows = transaction.all(SQL["versions"], {"session_id": session_id})
    kept = 0
    for row, version, other in rows:
        place = {"row": row, "version": version}
        if other is None:
            transaction.run(SQL["drop_version"], place)
        else:
            transaction.run(SQL["rest_on"], {**place, "other": other})
            transaction.run(SQL["drop_used_evidence"], {**place, "other": other})
            kept += 1
    changed = transaction.all(SQL["changed_entries"], {"session_id": session_id})
    transaction.run(SQL["drop_changes"], {"session_id": session_id})
    touched = dict.fromkeys(cast(int, row[0]) for row in [*rows, *changed])
    entries = sum(settle_entry(transaction, row, now=now) for row in touched)
    proposals = transaction.run(SQL["drop_proposals"], {"session_id": session_id})
    return ErasedDerived(knowledge=entries, versions=len(rows) - kept, kept=kept, proposals=proposals)


def settle_entry(transaction: Transaction, row: int, *, now: int) -> bool:
    """Bring an entry in order after versions or lines of it went; return whether it went as a whole."""
    found = transaction.one(SQL["newest_left"], {"row": row})
    assert found is not None
    active, newest, stands, told = found
    if newest is None:
        transaction.run(SQL["drop_entry"], {"row": row})
        return True
    if not stands:
        transaction.run(SQL["use_version"], {"row": row, "version": newest})
    if not stands or not told:
        transaction.run(SQL["note_erased"], {"row": row, "version_before": active, "now": now})
    return False
