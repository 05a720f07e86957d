"""Stored records as JSON in the terms of the export, format 1 (behaviour 161). Instants are RFC 3339 in UTC."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

import msgspec

from emelex_core import codec
from emelex_core.clock import iso
from emelex_core.db.database import Row
from emelex_core.events import AssetRef
from emelex_core.identity import Identity
from emelex_core.knowledge.records import Knowledge
from emelex_core.sessions.records import Session, StoredEvent


def workspace(path: str, identity: Identity) -> dict[str, Any]:
    """A directory by its path and its identity."""
    return {"path": path, **asdict(identity)}


def session(found: Session) -> dict[str, Any]:
    """A Session without its events."""
    return {
        "id": found.id,
        "title": found.title,
        "workspace": found.workspace_path,
        "source": found.source,
        "source_id": found.source_id,
        "source_cwd": found.source_cwd,
        "parent": found.parent_session_id,
        "model": found.model_reference,
        "model_snapshot": found.model_snapshot_id,
        "events": found.last_sequence,
        "event_bytes": found.event_bytes,
        "summary_sequence": found.summary_sequence or None,
        "covered_sequence": found.covered_sequence or None,
        "held_until": iso(found.held_until),
        "created_at": iso(found.created_at),
        "updated_at": iso(found.updated_at),
    }


def coverage(found: Session) -> dict[str, int] | None:
    """What the newest Summary covers; None without one."""
    if not found.summary_sequence:
        return None
    return {"summary_sequence": found.summary_sequence, "covered_sequence": found.covered_sequence}


def snapshot(row: Row | None, *, what: str) -> dict[str, Any] | None:
    """A Session's execution snapshot, from (version, config, authority, created_at). Raises: Corrupt."""
    if row is None:
        return None
    version, config, authority, created_at = row
    return {
        "version": version,
        "config": codec.decode_stored(cast(bytes, config), what=f"{what}: snapshot"),
        "authority": codec.decode_stored(cast(bytes, authority), what=f"{what}: snapshot authority"),
        "created_at": iso(cast(int, created_at)),
    }


def event(found: StoredEvent) -> dict[str, Any]:
    """An event with all its parts."""
    return {
        "id": found.id,
        "sequence": found.sequence,
        "turn_id": found.turn_id,
        "turn_position": found.turn_position,
        "turn_size": found.turn_size,
        "kind": found.kind.value,
        "label": found.label,
        "parts": [msgspec.to_builtins(part) for part in found.parts],
        "provenance": found.provenance,
        "source_record": found.source_record,
        "occurred_at": iso(found.occurred_at),
        "created_at": iso(found.created_at),
    }


def asset(ref: AssetRef) -> dict[str, Any]:
    """An asset as events refer to it; its bytes are in the store, under the digest."""
    return {"sha256": ref.sha256, "kind": ref.kind, "media_type": ref.media_type, "size": ref.size}


def knowledge(found: Knowledge) -> dict[str, Any]:
    """An entry with the evidence of its active version."""
    return {
        "key": found.key,
        "content": found.content,
        "confidence": found.confidence,
        "version": found.version,
        "pinned": found.pinned,
        "forgotten": found.tombstoned_at is not None,
        "origin": found.origin,
        "session": found.session_id,
        "session_stored": found.source_alive,
        "job": found.job_id,
        "evidence": None if found.evidence is None else asdict(found.evidence),
        "created_at": iso(found.created_at),
        "updated_at": iso(found.updated_at),
    }


VERSION_COLUMNS = (
    "version",
    "content",
    "confidence",
    "origin",
    "session",
    "first_sequence",
    "last_sequence",
    "source_sha256",
    "evidence_event_id",
    "evidence_sequence",
    "evidence_speaker",
    "evidence_quote",
    "job",
)
"""The columns of the statement `versions`, before `created_at`."""


def version(row: Row) -> dict[str, Any]:
    """One immutable version of an entry."""
    return {**dict(zip(VERSION_COLUMNS, row[:-1], strict=True)), "created_at": iso(cast(int, row[-1]))}
