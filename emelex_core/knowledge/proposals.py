"""Proposals: what a run may not change by itself waits here for a person (behaviours 138, 140, 186).

The module owns these invariants:

- A proposal is decided once, from its own workspace. Accepting writes the change in the same transaction.
- A person stands behind what was accepted: the version is theirs from then on, with the run's evidence.
"""

from __future__ import annotations

from typing import Final, cast

from emelex_core.db.database import Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound, WorkspaceMismatch
from emelex_core.identity import Workspace
from emelex_core.knowledge import apply, changes, recall
from emelex_core.knowledge.changes import State
from emelex_core.knowledge.records import Proposal
from emelex_core.sessions import registry

SQL: Final = load("emelex_core", "proposals")
KNOWLEDGE: Final = load("emelex_core", "knowledge")


def page(transaction: Transaction, *, workspace_id: int | None, limit: int, after: int = 0) -> list[Proposal]:
    """Proposals that wait, the oldest first, after a row. Raises: Invalid for a limit out of range."""
    recall.check_limit(limit)
    rows = transaction.all(SQL["page"], {"workspace_id": workspace_id, "after": after, "limit": limit})
    return [_proposal(row) for row in rows]


def get(transaction: Transaction, prefix: str) -> Proposal:
    """A proposal by its id or a prefix of 8 or more characters. Raises: Invalid, NotFound, AmbiguousId."""
    found = registry.resolve_prefix(transaction, SQL["ids_by_prefix"], prefix, what="proposal")
    row = transaction.one(SQL["get"], {"id": found})
    assert row is not None
    return _proposal(row)


def accept(transaction: Transaction, workspace: Workspace, prefix: str, *, now: int) -> Proposal:
    """Apply a proposal as a person's own change; what was hidden comes back with it.

    Raises: Invalid, also for one that was decided before; NotFound, AmbiguousId, WorkspaceMismatch, Corrupt.
    """
    proposal, workspace_id = _decide(transaction, workspace, prefix, "accepted", now=now)
    before = changes.state(transaction, workspace_id, proposal.key)
    if proposal.operation == "tombstone":
        if before is not None and before.active:
            transaction.run(KNOWLEDGE["hide"], {"row": before.row, "by": "distillation", "force": 1, "now": now})
            _note(transaction, proposal, before.row, before, (before.version, False), now)
    elif before is None or not before.active or before.content != proposal.content:
        _store(transaction, workspace_id, proposal, before, now)
    return get(transaction, proposal.id)


def reject(transaction: Transaction, workspace: Workspace, prefix: str, *, now: int) -> Proposal:
    """Decline a proposal; nothing else changes. Raises: as `accept`."""
    proposal, _ = _decide(transaction, workspace, prefix, "rejected", now=now)
    return get(transaction, proposal.id)


def _decide(
    transaction: Transaction, workspace: Workspace, prefix: str, state: str, *, now: int
) -> tuple[Proposal, int]:
    proposal = get(transaction, prefix)
    source = transaction.one(SQL["source"], {"id": proposal.id})
    assert source is not None
    if registry.find_workspace(transaction, workspace) != source[0]:
        raise WorkspaceMismatch(
            f"proposal {proposal.id} belongs to another workspace, {proposal.workspace_path}",
            hint=f"-C {proposal.workspace_path}",
        )
    if not transaction.run(SQL["decide"], {"id": proposal.id, "state": state, "now": now}):
        raise Invalid(f"proposal {proposal.id} was {proposal.state} before")
    return proposal, cast(int, source[0])


def _store(transaction: Transaction, workspace_id: int, proposal: Proposal, before: State | None, now: int) -> None:
    if before is None:
        added = transaction.one(KNOWLEDGE["add"], {"workspace_id": workspace_id, "key": proposal.key, "now": now})
        assert added is not None
        row, version = cast(int, added[0]), 1
    else:
        row, version = before.row, apply.next_version(before)
    source = transaction.one(SQL["source"], {"id": proposal.id})
    assert source is not None
    transaction.run(
        KNOWLEDGE["add_version"],
        {
            "row": row,
            "version": version,
            "content": proposal.content,
            "confidence": proposal.confidence,
            "origin": "user",
            "session_id": source[1],
            "first_sequence": source[2],
            "last_sequence": source[3],
            "sha256": source[4],
            "event_id": proposal.evidence.event_id,
            "sequence": proposal.evidence.sequence,
            "speaker": proposal.evidence.speaker,
            "quote": proposal.evidence.quote,
            "job_id": source[5],
            "made_by": source[6],
            "valid_from": now,
            "now": now,
        },
    )
    if before is not None:
        transaction.run(KNOWLEDGE["put_version"], {"row": row, "version": version, "now": now})
    changes.drop_forgotten(transaction, workspace_id, proposal.key)
    _note(transaction, proposal, row, before, (version, True), now)


def _note(
    transaction: Transaction, proposal: Proposal, row: int, before: State | None, after: tuple[int, bool], now: int
) -> None:
    changes.note(
        transaction,
        row,
        action="accepted",
        actor="user",
        before=before,
        after=after,
        now=now,
        job_id=proposal.job_id,
        session_id=proposal.session_id,
        reason=proposal.why,
    )


def _proposal(row: Row) -> Proposal:
    evidence = recall.evidence(row[9:13])
    if evidence is None:
        raise NotFound(f"proposal {row[1]!s} has no evidence")
    return Proposal(
        row=cast(int, row[0]),
        id=cast(str, row[1]),
        key=cast(str, row[2]),
        operation=cast(str, row[3]),
        content=cast("str | None", row[4]),
        confidence=cast("float | None", row[5]),
        reason=cast(str, row[6]),
        why=cast("str | None", row[7]),
        session_id=cast(str, row[8]),
        evidence=evidence,
        job_id=cast(str, row[13]),
        state=cast(str, row[14]),
        created_at=cast(int, row[15]),
        decided_at=cast("int | None", row[16]),
        active_content=cast("str | None", row[17]),
        workspace_path=cast(str, row[18]),
    )
