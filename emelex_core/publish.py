"""Publishing jobs: the row of a job is inserted in the transaction that makes it due (contract, "The queue").

The module owns these invariants:

- Publishing is idempotent by (kind, Session, source digest): the same source twice is the same job, and the caller
  learns the job's true state (behaviours 117 and 136).
- A Session that grew has one untried distillation, not one a publishing: the job that waits already reads what was said
  since, under its id and in its place in the queue. A job that has failed, or that somebody retries, keeps its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from emelex_core import ids
from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound
from emelex_core.provenance import SourceProvenance, source_provenance

JOBS: Final = load("emelex_core", "jobs")
EVENTS: Final = load("emelex_core", "events")
SESSIONS: Final = load("emelex_core", "sessions")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJob:
    """A job as publishing left it: `created` is False when a job that waits already, or has run, reads this source."""

    id: str
    kind: str
    session_id: str
    state: str
    through_sequence: int
    created: bool


def publish_distillation(transaction: Transaction, session_id: str, *, now: int) -> PublishedJob | None:
    """Publish the distillation of everything said so far; None for a Session in which nothing was said.

    Raises: NotFound.
    """
    if transaction.one(SESSIONS["head"], {"id": session_id}) is None:
        raise NotFound(f"no Session {session_id[:80]!r}")
    row = transaction.one(EVENTS["last_evidence_sequence"], {"session_id": session_id})
    if row is None or row[0] is None:
        return None
    return _publish(transaction, "distillation", session_id, through=cast(int, row[0]), target_tokens=None, now=now)


def follow(transaction: Transaction, session_id: str, *, now: int) -> None:
    """Point the untried distillation of a Session at what is said in it now; nothing where none waits.

    For who has taken back events that the job was to read. Raises: NotFound.
    """
    if transaction.one(JOBS["waiting_distillation"], {"session_id": session_id}) is not None:
        publish_distillation(transaction, session_id, now=now)


def publish_compaction(
    transaction: Transaction, session_id: str, *, through: int, target_tokens: int, now: int
) -> PublishedJob:
    """Publish the compaction of events 1 to `through` into a Summary of at most `target_tokens`.

    Raises: NotFound; Invalid when the boundary is missing, splits a turn, or lies at or below the newest Summary, and
    when the target is not positive.
    """
    head = transaction.one(SESSIONS["head"], {"id": session_id})
    if head is None:
        raise NotFound(f"no Session {session_id[:80]!r}")
    if target_tokens < 1:
        raise Invalid(f"a Summary of {target_tokens} tokens says nothing")
    if through <= cast(int, head[2]):
        raise Invalid(f"boundary {through} is not past the newest Summary, which is event {cast(int, head[2])}")
    boundary = transaction.one(EVENTS["at"], {"session_id": session_id, "sequence": through})
    if boundary is None:
        raise Invalid(f"boundary {through} is not an event of Session {session_id}, which has {cast(int, head[0])}")
    if cast(int, boundary[2]) != cast(int, boundary[3]) - 1:
        raise Invalid(f"boundary {through} splits a turn")
    return _publish(transaction, "compaction", session_id, through=through, target_tokens=target_tokens, now=now)


def current_source(transaction: Transaction, kind: str, session_id: str, through: int) -> SourceProvenance | None:
    """The provenance that the stored chain gives for a prefix now, or None when its boundary events are missing."""
    first = transaction.one(EVENTS["at"], {"session_id": session_id, "sequence": 1})
    last = transaction.one(EVENTS["at"], {"session_id": session_id, "sequence": through})
    if first is None or last is None:
        return None
    return source_provenance(
        kind,
        session_id,
        through=through,
        first_event_id=cast(str, first[0]),
        last_event_id=cast(str, last[0]),
        chain=cast(bytes, last[1]),
    )


def _publish(
    transaction: Transaction, kind: str, session_id: str, *, through: int, target_tokens: int | None, now: int
) -> PublishedJob:
    source = current_source(transaction, kind, session_id, through)
    if source is None:
        raise NotFound(f"no Session {session_id}")
    parameters: dict[str, Value] = {
        "id": ids.random_id(),
        "kind": kind,
        "session_id": session_id,
        "target_tokens": target_tokens,
        "now": now,
        "through_sequence": source.through_sequence,
        "source_event_count": source.source_event_count,
        "source_first_event_id": source.source_first_event_id,
        "source_last_event_id": source.source_last_event_id,
        "source_sha256": source.source_sha256,
    }
    place: dict[str, Value] = {"kind": kind, "session_id": session_id, "source_sha256": source.source_sha256}
    created = False
    if transaction.one(JOBS["by_source"], place) is None:
        moved = kind == "distillation" and _move(transaction, session_id, parameters)
        created = not moved and transaction.run(JOBS["publish"], parameters) > 0
    found = transaction.one(JOBS["by_source"], place)
    assert found is not None
    if kind == "distillation" and found[1] != "failed":
        transaction.run(JOBS["supersede"], {"session_id": session_id, "id": found[0]})
    return PublishedJob(
        id=cast(str, found[0]),
        kind=kind,
        session_id=session_id,
        state=cast(str, found[1]),
        through_sequence=through,
        created=created,
    )


def _move(transaction: Transaction, session_id: str, parameters: dict[str, Value]) -> bool:
    """Let the distillation that waits untried read the new source; whether there was one."""
    waiting = transaction.one(JOBS["waiting_distillation"], {"session_id": session_id})
    return waiting is not None and transaction.run(JOBS["move"], {**parameters, "id": waiting[0]}) > 0
