"""Repeating a completed job beside its record, to see what another model, or the same one, would make of it.

The module owns these invariants (issue 4, item 6):

- Nothing is written: the source, the Summary before it and the Knowledge that was known are read as they stood then.
- The same record gives the same bytes: prompt, grammar, sampling, attempt and windows are those of the record, so a
  difference comes from the model, the engine or this release, and the fields that changed are named.
- The result is compared by the digest that the record holds, so that a Summary or entry that is gone hides nothing.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from emelex_core.db.database import Value
from emelex_core.db.statements import load
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import TextPart
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import Job
from emelex_core.knowledge.records import Mode
from emelex_core.store import MemoryStore
from emelex_queue.records import ClaimedJob
from emelex_workers import compaction, distillation
from emelex_workers.compaction import Before
from emelex_workers.engines import EngineSource
from emelex_workers.result import Made, result_digest
from emelex_workers.text.restate import Abilities, Try

EVENTS: Final = load("emelex_core", "events")
KNOWLEDGE: Final = load("emelex_core", "knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One field of the record that differs: what stood there, and what stands there now."""

    field: str
    then: Any
    now: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a repeated job compares with the stored one.

    `same` says that the results are equal byte for byte. `then` is the stored result, None where it is not there any
    more as it was made; `lines` is a unified diff of both, empty without one.
    """

    job_id: str
    kind: JobKind
    same: bool
    then_sha256: str
    now_sha256: str
    then: str | None
    now: str
    lines: tuple[str, ...]
    changed: tuple[Changed, ...]


def rerun(store: MemoryStore, job_id: str, engines: EngineSource, *, cancel: CancelToken | None = None) -> Difference:
    """Run a completed job again and compare; nothing is written. `job_id` may be a prefix of 8 or more characters.

    Raises: Invalid for a job that has not completed, or whose record does not say enough; NotFound; ModelUnusable and
    what else a job can fail with.
    """
    job, record = reading.get_job(store.database, job_id)
    if job.state is not JobState.COMPLETED or record is None:
        raise Invalid(f"job {job.id} is {job.state}; only a completed one can be compared")
    with engines.load() as engine:
        made = _made(store, job, record, engine, cancel or CancelToken())
    then = _stored(store, job, record)
    return Difference(
        job_id=job.id,
        kind=job.kind,
        same=made.record["result_sha256"] == record["result_sha256"],
        then_sha256=record["result_sha256"],
        now_sha256=made.record["result_sha256"],
        then=then,
        now=made.text,
        lines=() if then is None else tuple(_diff(then, made.text)),
        changed=tuple(_changed(record, made.record)),
    )


def reference_of(store: MemoryStore, job_id: str) -> str:
    """The reference of the model that made a job's result. Raises: Invalid, NotFound."""
    job, record = reading.get_job(store.database, job_id)
    if record is None:
        raise Invalid(f"job {job.id} is {job.state}; only a completed one can be compared")
    return cast(str, _field(job, record, "model", str))


def _made(store: MemoryStore, job: Job, record: Mapping[str, Any], engine: ChatEngine, cancel: CancelToken) -> Made:
    claimed = ClaimedJob(
        id=job.id,
        kind=job.kind,
        session_id=job.session_id,
        failure_count=_field(job, record, "attempt", int) - 1,
        source=job.source,
        target_tokens=job.target_tokens,
        published_at=job.published_at,
    )
    _field(job, record, "result_sha256", str)
    able = Abilities.read(_field(job, record, "abilities", dict))
    this = Try(attempt=claimed.attempt, refusals=_field(job, record, "refusals", int), able=able)
    if job.kind is JobKind.COMPACTION:
        before = Before(
            summary_sequence=_field(job, record, "prior_summary_sequence", int),
            covered_sequence=_field(job, record, "prior_covered_sequence", int),
        )
        chunking = _field(job, record, "chunking", bool)
        return compaction.make(store, claimed, before, engine, cancel, chunking=chunking, this=this)
    after = _field(job, record, "after_sequence", int)
    mode = Mode(record.get("mode", Mode.AUTO))
    return distillation.make(
        store, claimed, engine, cancel, after=after, existing=_known(store, job), this=this, mode=mode
    )[0]


def _field(job: Job, record: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = record.get(name)
    if not isinstance(value, kind):
        raise Invalid(f"the record of job {job.id} does not say its {name}: it was made by an older release")
    return value


def _known(store: MemoryStore, job: Job) -> dict[str, str]:
    """The workspace's Knowledge as the job was shown it; whether it truly is shows in the record's digest of it."""
    session = store.get_session(job.session_id)
    parameters: dict[str, Value] = {
        "workspace_id": session.workspace_id,
        "at": job.completed_at,
        "job_id": job.id,
        "limit": distillation.EXISTING_KEYS_MAX,
    }
    with store.database.read() as transaction:
        return {cast(str, row[0]): cast(str, row[1]) for row in transaction.all(KNOWLEDGE["before_job"], parameters)}


def _stored(store: MemoryStore, job: Job, record: Mapping[str, Any]) -> str | None:
    """The stored result, where it is still the one that was made."""
    text = _summary(store, job) if job.kind is JobKind.COMPACTION else _candidates(store, job, record)
    return text if text is not None and result_digest(text) == record["result_sha256"] else None


def _summary(store: MemoryStore, job: Job) -> str | None:
    """The text of the Summary that the job wrote. Raises: Corrupt when it is gone."""
    parameters: dict[str, Value] = {"session_id": job.session_id, "after": job.source.through_sequence}
    with store.database.read() as transaction:
        places = [cast(int, row[0]) for row in transaction.all(EVENTS["summaries_past"], parameters)]
    for place in places:
        (event,) = store.read_events(job.session_id, after=place - 1, limit=1)
        if event.provenance is not None and event.provenance.get("job_id") == job.id:
            return event.text
    raise Corrupt(f"Session {job.session_id}: the Summary of job {job.id} is missing")


def _candidates(store: MemoryStore, job: Job, record: Mapping[str, Any]) -> str:
    """The changeset as it can still be read: contents from Knowledge and proposals, tombstones from the record."""
    session = store.get_session(job.session_id)
    parameters: dict[str, Value] = {"session_id": session.id, "workspace_id": session.workspace_id, "job_id": job.id}
    with store.database.read() as transaction:
        rows = transaction.all(KNOWLEDGE["made_by_job"], parameters)
        keys = transaction.all(KNOWLEDGE["keys"], {"workspace_id": session.workspace_id})
    names = ("key", "content", "confidence", "event_id", "sequence", "speaker", "quote")
    items: list[dict[str, Any]] = []
    for *shown, quarantined in rows:
        item = {**dict(zip(names, shown, strict=True)), "operation": "upsert"}
        items.append({**item, "quarantined": True} if quarantined else item)
    stated = record.get("tombstones")
    if isinstance(stated, list):
        by_digest = {hashlib.sha256(cast(str, key).encode()).hexdigest(): cast(str, key) for (key,) in keys}
        places = cast(list[dict[str, Any]], stated)
        items += [_tombstone(store, job, by_digest.get(place["key_sha256"], ""), place) for place in places]
    return distillation.as_text(sorted(items, key=lambda item: (item["sequence"], item["key"])))


def _tombstone(store: MemoryStore, job: Job, key: str, place: Mapping[str, Any]) -> dict[str, Any]:
    """A tombstone of the changeset, with its quote as it stands in the transcript; without a key it matches nothing."""
    (event,) = store.read_events(job.session_id, after=place["sequence"] - 1, limit=1)
    part = event.parts[cast(int, place["part"])]
    said = part.text.encode() if isinstance(part, TextPart) else b""
    return {
        "key": key,
        "content": "",
        "confidence": 1.0,
        "event_id": event.id,
        "sequence": event.sequence,
        "quote": said[place["start"] : place["end"]].decode(errors="replace"),
        "speaker": event.kind.value,
        "operation": "tombstone",
    }


def _diff(then: str, now: str) -> Iterator[str]:
    return difflib.unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm="", n=1)


def _changed(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[Changed]:
    for name in sorted(then.keys() | now.keys()):
        left, right = then.get(name), now.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            pair = cast(dict[str, Any], left), cast(dict[str, Any], right)
            yield from _changed(*pair, f"{prefix}{name}.")
        elif left != right:
            yield Changed(field=prefix + name, then=left, now=right)
