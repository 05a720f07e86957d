"""Stored records as JSON, one function a shape; docs/json.md describes each and a test holds the two together.

Instants are RFC 3339 in UTC. Texts stand as stored; the sink makes them safe. What the export also has is the
core's: one record has one shape.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from emelex_cli.output import one_line
from emelex_core.clock import iso

if TYPE_CHECKING:
    from emelex_core.assets.records import AssetRecord
    from emelex_core.jobs.records import Job
    from emelex_core.journal.records import JournalledTurn
    from emelex_core.knowledge.records import Knowledge
    from emelex_core.publish import PublishedJob
    from emelex_core.retention.redaction import RedactionRecord
    from emelex_core.sessions.records import Session, StoredEvent
    from emelex_queue.pausing import Pause


def session(found: Session) -> dict[str, Any]:
    """A Session without its events, as the export has it."""
    from emelex_core.archive import shapes

    return shapes.session(found)


def event(found: StoredEvent) -> dict[str, Any]:
    """An event with all its parts, as the export has it."""
    from emelex_core.archive import shapes

    return shapes.event(found)


def unfinished_turn(found: JournalledTurn) -> dict[str, Any]:
    """A turn that has begun and not ended, and the calls of its open batch."""
    calls = () if found.batch is None else found.batch.calls
    return {
        "turn_id": found.turn_id,
        "input": found.input.text,
        "started_at": iso(found.started_at),
        "checkpoints": found.checkpoints,
        "calls": [{"call_id": one.call_id, "name": one.name, "state": one.state.value} for one in calls],
    }


def redaction(found: RedactionRecord) -> dict[str, Any]:
    """One redaction that was made in a Session."""
    return {**asdict(found), "redacted_at": iso(found.redacted_at)}


def job(found: Job) -> dict[str, Any]:
    """A job without the record of its result."""
    return {
        "id": found.id,
        "kind": found.kind.value,
        "session": found.session_id,
        "state": found.state.value,
        "attempt": found.attempt if found.failed_at is None else found.failure_count,
        "failure_count": found.failure_count,
        "published_at": iso(found.published_at),
        "lease_until": iso(found.lease_until),
        "retry_after": iso(found.retry_after),
        "completed_at": iso(found.completed_at),
        "failed_at": iso(found.failed_at),
        "error": found.last_error,
        "target_tokens": found.target_tokens,
        "source": asdict(found.source),
    }


def published(found: PublishedJob, *, estimated: bool | None = None) -> dict[str, Any]:
    """A job as publishing left it. `estimated` says of what counts decided it, None where none did."""
    return {
        "type": "published_job",
        "job": found.id,
        "kind": found.kind,
        "session": found.session_id,
        "state": found.state,
        "through_sequence": found.through_sequence,
        "created": found.created,
        "estimated": estimated,
    }


def knowledge(found: Knowledge) -> dict[str, Any]:
    """An entry with the evidence of its active version, as the export has it."""
    from emelex_core.archive import shapes

    return shapes.knowledge(found)


def pause(found: Pause) -> dict[str, Any]:
    """Why jobs of a kind are not claimed."""
    return {"kind": found.kind.value, "paused_at": iso(found.paused_at), "reason": found.reason}


def pause_line(found: Pause) -> str:
    """The same for people."""
    why = "" if found.reason is None else f": {short(found.reason, 200)}"
    return f"{found.kind} is paused since {moment(found.paused_at)} UTC{why}"


def asset(found: AssetRecord) -> dict[str, Any]:
    """One stored asset; `media_type` is what its first bytes say."""
    return {
        "sha256": found.sha256,
        "size": found.size,
        "media_type": found.media_type,
        "references": found.references,
        "created_at": iso(found.created_at),
    }


def moment(instant: int | None) -> str:
    """An instant for people: UTC, to the minute; a dash for none."""
    text = iso(instant)
    return "-" if text is None else text[:16].replace("T", " ")


def short(text: str, characters: int) -> str:
    """One safe line of at most so many characters, with an ellipsis where it was cut."""
    line = one_line(" ".join(text.split()))
    return line if len(line) <= characters else line[: characters - 1] + "…"


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every size")
