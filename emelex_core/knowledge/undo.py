"""Undoing one run: its changes go back to what it had found, entry by entry (ADR 0018).

The module owns these invariants:

- An entry that anybody has changed since, pinned ones too, stays as it is and is named.
- Where nothing else changed, the active set is exactly that of before the run. A second undo does nothing.
- What the run only proposed is rejected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from emelex_core.db.database import Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import WorkspaceMismatch
from emelex_core.identity import Workspace
from emelex_core.knowledge import changes
from emelex_core.knowledge.records import Undone
from emelex_core.sessions import registry

SQL: Final = load("emelex_core", "knowledge_changes")
KNOWLEDGE: Final = load("emelex_core", "knowledge")
PROPOSALS: Final = load("emelex_core", "proposals")


def undo(transaction: Transaction, workspace: Workspace, prefix: str, *, now: int) -> Undone:
    """Undo a distillation by its job's id or a prefix of it.

    Raises: Invalid, NotFound, AmbiguousId, WorkspaceMismatch.
    """
    job_id = registry.resolve_prefix(transaction, SQL["runs_by_prefix"], prefix, what="distillation")
    rows = transaction.all(SQL["of_job"], {"job_id": job_id})
    _require_workspace(transaction, workspace, job_id, {cast(int, row[2]) for row in rows})
    restored: list[str] = []
    removed: list[str] = []
    kept: list[str] = []
    for row in rows:
        key, version_before = cast(str, row[3]), cast("int | None", row[4])
        if not row[7] or not _restorable(transaction, row):
            kept.append(key)
            continue
        _restore(transaction, row, now=now, job_id=job_id)
        (removed if version_before is None else restored).append(key)
    proposals = transaction.run(PROPOSALS["reject_of_job"], {"job_id": job_id, "now": now})
    return Undone(
        job_id=job_id, restored=tuple(restored), removed=tuple(removed), kept=tuple(kept), proposals=proposals
    )


def _require_workspace(transaction: Transaction, workspace: Workspace, job_id: str, found: set[int]) -> None:
    found |= {cast(int, row[0]) for row in transaction.all(PROPOSALS["workspaces_of_job"], {"job_id": job_id})}
    if found and found != {registry.find_workspace(transaction, workspace)}:
        raise WorkspaceMismatch(f"distillation {job_id} wrote Knowledge of another workspace", hint="use -C DIR")


def _restorable(transaction: Transaction, row: Row) -> bool:
    """Whether the version that was active before is still kept."""
    if row[4] is None:
        return True
    return transaction.one(KNOWLEDGE["version_exists"], {"row": row[1], "version": row[4]}) is not None


def _restore(transaction: Transaction, row: Row, *, now: int, job_id: str) -> None:
    state = changes.state(transaction, cast(int, row[2]), cast(str, row[3]))
    assert state is not None
    version, hidden_by, hidden_at = row[4], row[5], row[6]
    if version is None:
        after = replace(state, hidden_by="distillation", hidden_at=now)
    else:
        after = replace(
            state,
            version=cast(int, version),
            hidden_by=cast("str | None", hidden_by),
            hidden_at=cast("int | None", hidden_at),
        )
    transaction.run(
        KNOWLEDGE["restore_state"],
        {
            "row": state.row,
            "version": after.version,
            "hidden_at": after.hidden_at,
            "hidden_by": after.hidden_by,
            "now": now,
        },
    )
    changes.note(
        transaction,
        state.row,
        action="undone",
        actor="user",
        before=state,
        after=(after.version, after.active),
        now=now,
        job_id=job_id,
    )
