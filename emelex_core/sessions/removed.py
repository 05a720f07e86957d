"""Foreign Sessions that were removed: the next import of their transcripts must not bring them back unasked.

Only a digest of the source and its id is kept: what was erased leaves no name behind.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, cast

from emelex_core.db.database import Transaction
from emelex_core.db.statements import load

SQL: Final = load("emelex_core", "removed_sources")
_DOMAIN: Final = b"emelex.removed.v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSource:
    """Which Session it was, and when it was removed."""

    session_id: str
    removed_at: int


def note(transaction: Transaction, source: str, source_id: str, session_id: str, *, now: int) -> None:
    """Keep that a foreign Session was removed; in the transaction that removes it."""
    transaction.run(SQL["note"], {"digest": _digest(source, source_id), "session_id": session_id, "now": now})


def find(transaction: Transaction, source: str, source_id: str) -> RemovedSource | None:
    """Whether a foreign Session was here and was removed. An import asks before it makes one."""
    row = transaction.one(SQL["find"], {"digest": _digest(source, source_id)})
    return None if row is None else RemovedSource(session_id=cast(str, row[0]), removed_at=cast(int, row[1]))


def clear(transaction: Transaction, source: str, source_id: str) -> bool:
    """A person wants it again; return whether it had been removed."""
    return transaction.run(SQL["clear"], {"digest": _digest(source, source_id)}) > 0


def _digest(source: str, source_id: str) -> bytes:
    return hashlib.sha256(_DOMAIN + source.encode() + b"\0" + source_id.encode()).digest()
