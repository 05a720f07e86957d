"""Applying the changeset of a run, all or nothing, in the caller's transaction (behaviours 137 to 140, 148, 172, 186).

The module owns these invariants:

- At most 128 operations with unique keys and finite confidences; otherwise nothing is applied.
- Versions are immutable and count up; identical content makes no version, but another Session's evidence is kept.
- A pinned entry, a forgotten key and what a person wrote are never changed: the operation becomes a proposal. So does
  everything that only a tool or a page has said, and in review every change.
- A tombstone of what is pinned or not there is skipped. A dry run decides the same and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

from emelex_core import codec, ids, limits
from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.knowledge import changes
from emelex_core.knowledge.changes import State
from emelex_core.knowledge.records import (
    TRUSTED_SPEAKERS,
    Applied,
    Change,
    Evidence,
    Mode,
    Outcome,
    Source,
    Tombstone,
    Upsert,
)

SQL: Final = load("emelex_core", "knowledge")
PROPOSALS: Final = load("emelex_core", "proposals")


def validate(changeset: Sequence[Change]) -> None:
    """Raise Invalid, naming the operation, unless all may be applied together."""
    if len(changeset) > limits.CANDIDATES_MAX:
        raise Invalid(f"{len(changeset)} candidates; at most {limits.CANDIDATES_MAX} are accepted")
    seen: set[str] = set()
    for change in changeset:
        what = f"candidate {change.key[:80]!r}"
        check_key(change.key, what=f"{what}: key")
        _check_evidence(change.evidence, what)
        if change.reason is not None:
            codec.check_line(change.reason, what=f"{what}: reason", bytes_max=limits.CHANGE_REASON_BYTES_MAX)
        if isinstance(change, Upsert):
            check_content(change.content, change.confidence, what=what)
        if change.key in seen:
            raise Invalid(f"{what}: the key stands twice")
        seen.add(change.key)


def check_key(key: str, *, what: str = "key") -> None:
    """Raise Invalid for a key that is blank, too long or no text."""
    codec.check_line(key, what=what, bytes_max=limits.KNOWLEDGE_KEY_BYTES_MAX)


def check_content(content: str, confidence: float, *, what: str) -> None:
    """Raise Invalid for content that is blank, too long or no text, and for a confidence that is none."""
    codec.check_line(content, what=f"{what}: content", bytes_max=limits.KNOWLEDGE_CONTENT_BYTES_MAX)
    if not (math.isfinite(confidence) and 0 <= confidence <= 1):
        raise Invalid(f"{what}: confidence {confidence} is not between 0 and 1")


def apply(
    transaction: Transaction,
    workspace_id: int,
    changeset: Sequence[Change],
    *,
    source: Source,
    now: int,
    mode: Mode = Mode.AUTO,
) -> Applied:
    """Apply every operation, or none; a dry run only says what would come of it.

    Raises: Invalid; Corrupt when a version number is used up.
    """
    validate(changeset)
    outcomes: list[Outcome] = []
    for change in changeset:
        before = changes.state(transaction, workspace_id, change.key)
        forgotten = before is None and changes.is_forgotten(transaction, workspace_id, change.key)
        outcome = _decide(change, before, forgotten=forgotten, mode=mode)
        outcomes.append(outcome)
        if mode is not Mode.DRY_RUN:
            _write(transaction, workspace_id, change, before, outcome, source, now)
    counts = [outcome.outcome for outcome in outcomes]
    return Applied(
        changed=counts.count("added") + counts.count("changed"),
        unchanged=counts.count("unchanged"),
        proposed=counts.count("proposed"),
        tombstoned=counts.count("tombstoned"),
        skipped=counts.count("skipped"),
        outcomes=tuple(outcomes),
    )


def next_version(before: State) -> int:
    """The number of an entry's next version, past the newest one. Raises: Corrupt when none is left."""
    if before.newest >= limits.KNOWLEDGE_VERSION_MAX:
        raise Corrupt(f"Knowledge {before.key!r} has no version number left")
    return before.newest + 1


def _decide(change: Change, before: State | None, *, forgotten: bool, mode: Mode) -> Outcome:
    if isinstance(change, Tombstone):
        if before is None or not before.active or before.pinned:
            return Outcome(key=change.key, operation="tombstone", outcome="skipped")
        written, applied = "tombstone", "tombstoned"
    else:
        if before is not None and before.active and before.content == change.content:
            return Outcome(key=change.key, operation="upsert", outcome="unchanged")
        written, applied = "upsert", "added" if before is None else "changed"
    reason = _reason(change, before, forgotten=forgotten, mode=mode)
    if reason is not None:
        return Outcome(key=change.key, operation=written, outcome="proposed", reason=reason)
    if before is not None and written == "upsert":
        next_version(before)
    return Outcome(key=change.key, operation=written, outcome=applied)


def _reason(change: Change, before: State | None, *, forgotten: bool, mode: Mode) -> str | None:
    """Why an operation waits for a person; None when it may be applied."""
    if change.quarantined or change.evidence.speaker not in TRUSTED_SPEAKERS:
        return "quarantined"
    if forgotten or (before is not None and before.hidden_by == "user"):
        return "forgotten"
    if before is not None and before.pinned:
        return "pinned"
    if before is not None and before.origin == "user":
        return "user_written"
    return "review" if mode is Mode.REVIEW else None


def _write(
    transaction: Transaction,
    workspace_id: int,
    change: Change,
    before: State | None,
    outcome: Outcome,
    source: Source,
    now: int,
) -> None:
    if outcome.outcome == "proposed":
        _propose(transaction, workspace_id, change, outcome, source, now)
    elif outcome.outcome == "tombstoned":
        assert before is not None
        _tombstone(transaction, change, before, source, now)
    elif isinstance(change, Upsert) and outcome.outcome == "unchanged":
        assert before is not None
        _support(transaction, change, before, source, now)
    elif isinstance(change, Upsert):
        _upsert(transaction, workspace_id, change, before, source, now)


def _upsert(
    transaction: Transaction, workspace_id: int, change: Upsert, before: State | None, source: Source, now: int
) -> None:
    if before is None:
        added = transaction.one(SQL["add"], {"workspace_id": workspace_id, "key": change.key, "now": now})
        assert added is not None
        row, version = cast(int, added[0]), 1
    else:
        row, version = before.row, next_version(before)
    said_at = _said_at(transaction, change.evidence, source, now)
    transaction.run(
        SQL["add_version"],
        {
            "row": row,
            "version": version,
            "content": change.content,
            "confidence": change.confidence,
            "origin": "distillation",
            "valid_from": said_at,
            "now": now,
            **fields(change.evidence, source),
        },
    )
    if before is not None:
        transaction.run(SQL["activate_distilled"], {"row": row, "version": version, "now": now})
    _note(transaction, row, "upserted", change, before, (version, True), source, said_at, now)


def _tombstone(transaction: Transaction, change: Change, before: State, source: Source, now: int) -> None:
    if not transaction.run(SQL["hide"], {"row": before.row, "by": "distillation", "force": 0, "now": now}):
        raise Corrupt(f"Knowledge {change.key!r} changed inside the transaction that read it")
    said_at = _said_at(transaction, change.evidence, source, now)
    _note(transaction, before.row, "tombstoned", change, before, (before.version, False), source, said_at, now)


def _support(transaction: Transaction, change: Upsert, before: State, source: Source, now: int) -> None:
    """Another Session said the same: where the first one is erased, this is what the version rests on."""
    if change.quarantined or change.evidence.speaker not in TRUSTED_SPEAKERS:
        return
    transaction.run(
        SQL["add_evidence"],
        {
            "row": before.row,
            "version": before.version,
            "valid_from": _said_at(transaction, change.evidence, source, now),
            "now": now,
            **fields(change.evidence, source),
        },
    )


def _propose(
    transaction: Transaction, workspace_id: int, change: Change, outcome: Outcome, source: Source, now: int
) -> None:
    transaction.run(
        PROPOSALS["propose"],
        {
            "id": ids.random_id(),
            "workspace_id": workspace_id,
            "key": change.key,
            "operation": outcome.operation,
            "content": change.content if isinstance(change, Upsert) else None,
            "confidence": change.confidence if isinstance(change, Upsert) else None,
            "reason": outcome.reason,
            "why": change.reason,
            "now": now,
            **fields(change.evidence, source),
        },
    )


def fields(evidence: Evidence, source: Source) -> dict[str, Value]:
    """Evidence and source as the parameters of the statements that store them."""
    return {
        "session_id": source.session_id,
        "first_sequence": source.first_sequence,
        "last_sequence": source.last_sequence,
        "sha256": source.sha256,
        "event_id": evidence.event_id,
        "sequence": evidence.sequence,
        "speaker": evidence.speaker,
        "quote": evidence.quote,
        "job_id": source.job_id,
        "made_by": source.made_by,
    }


def _said_at(transaction: Transaction, evidence: Evidence, source: Source, now: int) -> int:
    """When the evidence was said: what its event states, never later than now."""
    found = transaction.one(SQL["said_at"], {"session_id": source.session_id, "sequence": evidence.sequence})
    return now if found is None else min(cast(int, found[0]), now)


def _note(
    transaction: Transaction,
    row: int,
    action: str,
    change: Change,
    before: State | None,
    after: tuple[int, bool],
    source: Source,
    said_at: int,
    now: int,
) -> None:
    changes.note(
        transaction,
        row,
        action=action,
        actor="distillation",
        before=before,
        after=after,
        now=now,
        effective_at=said_at,
        job_id=source.job_id,
        session_id=source.session_id,
        reason=change.reason,
    )


def _check_evidence(evidence: Evidence, what: str) -> None:
    codec.check_line(evidence.quote, what=f"{what}: quote", bytes_max=limits.EVIDENCE_QUOTE_BYTES_MAX)
    codec.check_line(evidence.speaker, what=f"{what}: speaker", bytes_max=limits.KNOWLEDGE_KEY_BYTES_MAX)
