"""Records of Sessions and their events, as replay and pages give them back.

The module owns this invariant: a stored event keeps the bytes that its digest was made of, and reads parts, label and
provenance out of them when somebody asks, once. A proven history of 64 MB is therefore held without being taken apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from emelex_core import identity
from emelex_core.events import AssetRef, EventKind, MediaPart, Part, Payload, TextPart, decode_payload
from emelex_core.identity import Identity, Workspace


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One durable event.

    `sequence` counts from 1 within the Session without gaps and is the only order. `turn_position` is its zero-based
    place among the `turn_size` events of its turn. Instants are milliseconds since the epoch, UTC. `payload` is the
    canonical JSON of parts, label and provenance. `chain` is the 32-byte digest of the Session's history up to and
    including this event; events are equal when these bytes and what they bind are.

    `parts`, `text`, `media`, `label` and `provenance` raise Corrupt, naming Session and event, for a payload that is
    no event's. A struct without cycles, which the garbage collector need not follow: a replay holds 100,000 of them.
    """

    id: str
    session_id: str
    sequence: int
    turn_id: str
    turn_position: int
    turn_size: int
    kind: EventKind
    source_record: str | None
    occurred_at: int | None
    created_at: int
    payload: bytes
    chain: bytes
    _content: Payload | None = None

    @property
    def payload_bytes(self) -> int:
        """Size of the payload."""
        return len(self.payload)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the event holds, in order."""
        return self.content.parts

    @property
    def label(self) -> str | None:
        """The event's special purpose in one word, or None."""
        return self.content.label

    @property
    def provenance(self) -> dict[str, Any] | None:
        """What a Summary says of its source; None for every other event."""
        return self.content.provenance

    @property
    def content(self) -> Payload:
        """The payload, read at the first call. Raises: Corrupt."""
        if self._content is None:
            msgspec.structs.force_setattr(self, "_content", decode_payload(self.payload, what=self.where))
        return cast(Payload, self._content)

    @property
    def text(self) -> str:
        """The speaker's own words: its text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def media(self) -> tuple[AssetRef, ...]:
        """The event's media in order."""
        return tuple(part.ref for part in self.parts if isinstance(part, MediaPart))

    @property
    def where(self) -> str:
        """Session and event in words, for an error that names them."""
        return f"Session {self.session_id}: event {self.sequence} ({self.id})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredEvent):
            return NotImplemented
        return self._bound() == other._bound()

    def __hash__(self) -> int:
        return hash((self.session_id, self.sequence, self.chain))

    def _bound(self) -> tuple[object, ...]:
        return (self.session_id, self.sequence, self.id, self.turn_id, self.kind, self.payload, self.chain)


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
    `covered_sequence` is the last raw event that the newest Summary covers, 0 without one. `workspace_identity` is that
    of the directory that the Session was bound to when it was read.
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
    workspace_identity: Identity

    def validate_workspace(self, workspace: str | os.PathLike[str]) -> Workspace:
        """Check that a directory is the one the Session is bound to, before a model is loaded, and return it.

        The same check that a claim and every append make (seed, "Durability and authority"). Raises: WorkspaceMismatch
        naming both identities, Invalid for the directory.
        """
        found = identity.inspect(workspace)
        identity.require_same(found.path, self.workspace_identity)
        return found
