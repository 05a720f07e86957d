"""What a job's result rests on: the exact source prefix (seed, "Compaction and distillation")."""

from __future__ import annotations

from dataclasses import dataclass

from emelex_core import digests


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProvenance:
    """The exact source prefix of a job: events 1 to `through_sequence`, and the digest that binds them."""

    through_sequence: int
    source_event_count: int
    source_first_event_id: str
    source_last_event_id: str
    source_sha256: str


def source_provenance(
    kind: str, session_id: str, *, through: int, first_event_id: str, last_event_id: str, chain: bytes
) -> SourceProvenance:
    """Describe a source prefix by its boundary's chain value."""
    return SourceProvenance(
        through_sequence=through,
        source_event_count=through,
        source_first_event_id=first_event_id,
        source_last_event_id=last_event_id,
        source_sha256=digests.source_digest(
            kind,
            session_id=session_id,
            event_count=through,
            first_event_id=first_event_id,
            last_event_id=last_event_id,
            chain=chain,
        ),
    )
