"""The record of changes, and the state of an entry that every change starts from.

The module owns these invariants:

- Each change of an entry writes one line in the transaction that makes it: who, why, which run, and what was before.
- Lines are never changed, and go with their entry: a reason may repeat what somebody wrote.
- What a person has forgotten is also kept as a digest of its key, which outlives the entry (behaviour 140).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, cast

from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.knowledge.records import ChangeRecord

SQL: Final = load("emelex_core", "knowledge")
CHANGES: Final = load("emelex_core", "knowledge_changes")
_KEY_DOMAIN: Final = b"emelex.forgotten.v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An entry as it stands: `hidden_by` and `hidden_at` are its tombstone, `newest` its highest version number."""

    row: int
    key: str
    version: int
    pinned: bool
    hidden_by: str | None
    hidden_at: int | None
    content: str
    origin: str
    newest: int

    @property
    def active(self) -> bool:
        """Whether it is in use."""
        return self.hidden_by is None


def state(transaction: Transaction, workspace_id: int, key: str) -> State | None:
    """An entry by its exact key, or None."""
    found = transaction.one(SQL["find"], {"workspace_id": workspace_id, "key": key})
    if found is None:
        return None
    return State(
        row=cast(int, found[0]),
        key=key,
        version=cast(int, found[1]),
        pinned=bool(found[2]),
        hidden_by=cast("str | None", found[3]),
        hidden_at=cast("int | None", found[4]),
        content=cast(str, found[5]),
        origin=cast(str, found[6]),
        newest=cast(int, found[7]),
    )


def note(
    transaction: Transaction,
    row: int,
    *,
    action: str,
    actor: str,
    before: State | None,
    after: tuple[int, bool],
    now: int,
    effective_at: int | None = None,
    job_id: str | None = None,
    session_id: str | None = None,
    reason: str | None = None,
) -> None:
    """Write one line. `after` is the version then, and whether it is active; `effective_at` is `now` unless given."""
    transaction.run(
        CHANGES["note"],
        {
            "row": row,
            "action": action,
            "actor": actor,
            "job_id": job_id,
            "session_id": session_id,
            "reason": reason,
            "version_before": None if before is None else before.version,
            "hidden_by_before": None if before is None else before.hidden_by,
            "hidden_at_before": None if before is None else before.hidden_at,
            "version_after": after[0],
            "active_after": after[1],
            "effective_at": now if effective_at is None else effective_at,
            "now": now,
        },
    )


def page(transaction: Transaction, row: int, *, limit: int) -> list[ChangeRecord]:
    """The newest lines of an entry, the newest first."""
    return [
        ChangeRecord(
            row=cast(int, found[0]),
            action=cast(str, found[1]),
            actor=cast(str, found[2]),
            job_id=cast("str | None", found[3]),
            session_id=cast("str | None", found[4]),
            reason=cast("str | None", found[5]),
            version_before=cast("int | None", found[6]),
            version_after=cast(int, found[7]),
            active_after=bool(found[8]),
            effective_at=cast(int, found[9]),
            changed_at=cast(int, found[10]),
        )
        for found in transaction.all(CHANGES["of_entry"], {"row": row, "limit": limit})
    ]


def remember_forgotten(transaction: Transaction, workspace_id: int, key: str, *, now: int) -> None:
    """Keep that a person has forgotten a key."""
    transaction.run(CHANGES["keep_forgotten"], {"workspace_id": workspace_id, "digest": _digest(key), "now": now})


def drop_forgotten(transaction: Transaction, workspace_id: int, key: str) -> None:
    """A person wants the key again."""
    transaction.run(CHANGES["drop_forgotten"], {"workspace_id": workspace_id, "digest": _digest(key)})


def is_forgotten(transaction: Transaction, workspace_id: int, key: str) -> bool:
    """Whether a person has forgotten the key, even if nothing of it is stored any more."""
    found = transaction.one(CHANGES["is_forgotten"], {"workspace_id": workspace_id, "digest": _digest(key)})
    return found is not None


def _digest(key: str) -> bytes:
    return hashlib.sha256(_KEY_DOMAIN + key.encode("utf-8")).digest()
