"""Applying distilled candidates, all or nothing, in the caller's transaction (behaviours 137 to 140, 148, 172).

The module owns these invariants:

- At most 128 candidates with unique keys and finite confidences; otherwise nothing is applied.
- Versions are immutable and count up; identical content makes no version.
- A pinned entry, a forgotten key and what a person wrote are never changed: the candidate becomes a proposal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, cast

from emelex_core import codec, limits
from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.knowledge.records import Applied, Source, Upsert

SQL: Final = load("emelex_core", "knowledge")
_Outcome = Literal["changed", "unchanged", "proposed"]


def validate(candidates: Sequence[Upsert]) -> None:
    """Raise Invalid, naming the candidate, unless all may be applied together."""
    if len(candidates) > limits.CANDIDATES_MAX:
        raise Invalid(f"{len(candidates)} candidates; at most {limits.CANDIDATES_MAX} are accepted")
    seen: set[str] = set()
    for candidate in candidates:
        what = f"candidate {candidate.key[:80]!r}"
        codec.check_line(candidate.key, what=f"{what}: key", bytes_max=limits.KNOWLEDGE_KEY_BYTES_MAX)
        codec.check_line(candidate.content, what=f"{what}: content", bytes_max=limits.KNOWLEDGE_CONTENT_BYTES_MAX)
        codec.check_line(candidate.evidence.quote, what=f"{what}: quote", bytes_max=limits.EVIDENCE_QUOTE_BYTES_MAX)
        if not (math.isfinite(candidate.confidence) and 0 <= candidate.confidence <= 1):
            raise Invalid(f"{what}: confidence {candidate.confidence} is not between 0 and 1")
        if candidate.key in seen:
            raise Invalid(f"{what}: the key stands twice")
        seen.add(candidate.key)


def apply(
    transaction: Transaction, workspace_id: int, candidates: Sequence[Upsert], *, source: Source, now: int
) -> Applied:
    """Upsert every candidate, or none. Raises: Invalid; Corrupt when a version number is used up."""
    validate(candidates)
    outcomes = [_upsert(transaction, workspace_id, candidate, source, now) for candidate in candidates]
    return Applied(
        changed=outcomes.count("changed"),
        unchanged=outcomes.count("unchanged"),
        proposed=outcomes.count("proposed"),
    )


def _upsert(transaction: Transaction, workspace_id: int, candidate: Upsert, source: Source, now: int) -> _Outcome:
    found = transaction.one(SQL["find"], {"workspace_id": workspace_id, "key": candidate.key})
    if found is None:
        added = transaction.one(SQL["add"], {"workspace_id": workspace_id, "key": candidate.key, "now": now})
        assert added is not None
        _add_version(transaction, cast(int, added[0]), 1, candidate, source, now)
        return "changed"
    row, pinned, tombstoned_by, content, origin, newest = found
    if content == candidate.content and tombstoned_by is None:
        return "unchanged"
    reason = (
        "pinned" if pinned else "forgotten" if tombstoned_by == "user" else "user_written" if origin == "user" else None
    )
    if reason is not None:
        transaction.run(
            SQL["propose"],
            {"workspace_id": workspace_id, "reason": reason, **_fields(candidate, source, now)},
        )
        return "proposed"
    version = cast(int, newest) + 1
    if version > limits.KNOWLEDGE_VERSION_MAX:
        raise Corrupt(f"Knowledge {candidate.key!r} has no version number left")
    _add_version(transaction, cast(int, row), version, candidate, source, now)
    transaction.run(SQL["activate"], {"row": row, "version": version, "now": now})
    return "changed"


def _add_version(transaction: Transaction, row: int, version: int, candidate: Upsert, source: Source, now: int) -> None:
    transaction.run(
        SQL["add_version"],
        {
            "row": row,
            "version": version,
            "first_sequence": source.first_sequence,
            "last_sequence": source.last_sequence,
            "sha256": source.sha256,
            "made_by": source.made_by,
            **_fields(candidate, source, now),
        },
    )


def _fields(candidate: Upsert, source: Source, now: int) -> dict[str, Value]:
    return {
        "key": candidate.key,
        "content": candidate.content,
        "confidence": candidate.confidence,
        "session_id": source.session_id,
        "event_id": candidate.evidence.event_id,
        "sequence": candidate.evidence.sequence,
        "speaker": candidate.evidence.speaker,
        "quote": candidate.evidence.quote,
        "job_id": source.job_id,
        "now": now,
    }
