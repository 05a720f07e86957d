"""Records of Sessions and their events, as replay and pages give them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emelex_core.events import AssetRef, EventKind, MediaPart, Part, TextPart


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One durable event.

    `sequence` counts from 1 within the Session without gaps and is the only order. `turn_position` is its zero-based
    place among the `turn_size` events of its turn. Instants are milliseconds since the epoch, UTC. `chain` is the
    32-byte digest of the Session's history up to and including this event.
    """

    id: str
    session_id: str
    sequence: int
    turn_id: str
    turn_position: int
    turn_size: int
    kind: EventKind
    parts: tuple[Part, ...]
    label: str | None
    source_record: str | None
    occurred_at: int | None
    created_at: int
    payload_bytes: int
    chain: bytes
    provenance: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The speaker's own words: its text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def media(self) -> tuple[AssetRef, ...]:
        """The event's media in order."""
        return tuple(part.ref for part in self.parts if isinstance(part, MediaPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """Where an imported Session comes from: the agent's name, its id there, and the directory it recorded."""

    source: str
    source_id: str
    cwd: str | None
    parent_source_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One Session as stored.

    `source` is `emelex` for Sessions of our own and the agent's name for imported ones, which hold no tool authority.
    `covered_sequence` is the last raw event that the newest Summary covers, 0 without one.
    """

    id: str
    workspace_id: int
    workspace_path: str
    title: str
    source: str
    source_id: str | None
    source_cwd: str | None
    parent_session_id: str | None
    model_reference: str | None
    model_snapshot_id: str | None
    last_sequence: int
    summary_sequence: int
    covered_sequence: int
    event_bytes: int
    held_until: int | None
    created_at: int
    updated_at: int
