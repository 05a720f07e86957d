"""Knowledge as JSON, one function a shape; docs/json.md describes each. See shapes.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from emelex_cli import shapes
from emelex_core.clock import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emelex_core.knowledge.records import ChangeRecord, Knowledge, KnowledgeVersion, Proposal
    from emelex_core.sessions.records import StoredEvent
    from emelex_core.sessions.search import TranscriptHit

CONTEXT_CHARACTERS: Final = 2_000
"""What is shown of each event around a quote."""


def entry(found: Knowledge) -> dict[str, Any]:
    """An entry with the evidence of its version, its workspace and since when it holds."""
    return {
        **shapes.knowledge(found),
        "workspace": found.workspace_path,
        "valid_from": iso(found.valid_from),
    }


def context(events: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    """The event that an entry rests on, and its neighbours."""
    return [
        {
            "event_id": event.id,
            "sequence": event.sequence,
            "kind": event.kind.value,
            "said_at": iso(event.created_at if event.occurred_at is None else event.occurred_at),
            "text": event.text[:CONTEXT_CHARACTERS],
            "cut": len(event.text) > CONTEXT_CHARACTERS,
        }
        for event in events
    ]


def version(found: KnowledgeVersion) -> dict[str, Any]:
    """One immutable version."""
    return {
        "version": found.version,
        "active": found.active,
        "content": found.content,
        "confidence": found.confidence,
        "origin": found.origin,
        "session": found.session_id,
        "session_stored": found.source_alive,
        "job": found.job_id,
        "evidence": None if found.evidence is None else asdict(found.evidence),
        "valid_from": iso(found.valid_from),
        "created_at": iso(found.created_at),
    }


def change(found: ChangeRecord) -> dict[str, Any]:
    """One line of an entry's record."""
    return {
        "action": found.action,
        "actor": found.actor,
        "reason": found.reason,
        "job": found.job_id,
        "session": found.session_id,
        "version_before": found.version_before,
        "version_after": found.version_after,
        "active_after": found.active_after,
        "effective_at": iso(found.effective_at),
        "changed_at": iso(found.changed_at),
    }


def proposal(found: Proposal) -> dict[str, Any]:
    """A change that waits for a person, or was decided."""
    return {
        "id": found.id,
        "key": found.key,
        "operation": found.operation,
        "content": found.content,
        "active_content": found.active_content,
        "confidence": found.confidence,
        "reason": found.reason,
        "why": found.why,
        "session": found.session_id,
        "job": found.job_id,
        "evidence": asdict(found.evidence),
        "state": found.state,
        "workspace": found.workspace_path,
        "created_at": iso(found.created_at),
        "decided_at": iso(found.decided_at),
    }


def transcript_hit(found: TranscriptHit) -> dict[str, Any]:
    """An event that a search found."""
    return {
        "session": found.session_id,
        "title": found.session_title,
        "workspace": found.workspace_path,
        "event_id": found.event_id,
        "sequence": found.sequence,
        "kind": found.kind,
        "covered": found.covered,
        "said_at": iso(found.said_at),
        "snippet": found.snippet,
    }
