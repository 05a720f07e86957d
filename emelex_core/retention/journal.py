"""The removal journal: what retention removed, when and why.

It holds ids, instants and reasons, and no text that anybody wrote: what is deleted must not live on in it. A line is
written in the transaction that removes.
"""

from __future__ import annotations

from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.retention.records import JournalledRemoval, Removal

SQL: Final = load("emelex_core", "retention")


def note(transaction: Transaction, removal: Removal, *, now: int) -> None:
    """Write one line."""
    transaction.run(
        SQL["note_removal"],
        {"kind": removal.kind, "id": removal.id, "reason": removal.reason, "dated_at": removal.dated_at, "now": now},
    )


def page(
    database: Database, *, limit: int = limits.MAINTAIN_ROWS, before: int | None = None
) -> list[JournalledRemoval]:
    """Lines, the newest first, after a row. Raises: Invalid for a limit out of range."""
    if not 1 <= limit <= limits.MAINTAIN_ROWS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.MAINTAIN_ROWS_MAX}")
    with database.read() as transaction:
        rows = transaction.all(SQL["removals"], {"limit": limit, "before": before})
    return [
        JournalledRemoval(
            row=cast(int, row),
            kind=cast(str, kind),
            id=cast(str, subject),
            reason=cast(str, reason),
            dated_at=cast(int, dated_at),
            removed_at=cast(int, removed_at),
        )
        for row, kind, subject, reason, dated_at, removed_at in rows
    ]


def forget(database: Database, *, cutoff: int, limit: int) -> int:
    """Drop lines, also of entries' records, and slots that are older than a cutoff; return how many lines.

    Raises: Storage.
    """
    with database.write() as transaction:
        transaction.run(SQL["forget_slots"], {"cutoff": cutoff})
        transaction.run(SQL["forget_changes"], {"cutoff": cutoff, "limit": limit})
        return transaction.run(SQL["forget_removals"], {"cutoff": cutoff, "limit": limit})
