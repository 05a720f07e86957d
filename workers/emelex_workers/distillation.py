"""Distillation: from a claimed job to Knowledge, written in the transaction that completes the job.

Only events past the Session's watermark are read, so that each event is evidence once. Summaries are never evidence
(behaviours 136 to 140 and 177).

The module owns these invariants:

- The job's own workspace decides whether what is found waits for a person: its project file may ask for review, whoever
  runs the worker, and nothing in it takes a review away that the user asked for.
- A project file that cannot be understood may have asked for review, so it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import orjson

from emelex_core import codec, config, limits
from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Refused, Storage, UsageError
from emelex_core.home import Home
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge import recall
from emelex_core.knowledge.records import Change, Evidence, Mode, Source, Tombstone, Upsert
from emelex_core.sessions import pages
from emelex_core.store import MemoryStore
from emelex_queue.records import ClaimedJob
from emelex_workers.distil import Candidate, distil
from emelex_workers.planning import chain_at
from emelex_workers.result import JobResult, Made, ran, result_digest, tried
from emelex_workers.text.restate import Try

JOBS: Final = load("emelex_core", "jobs")
_MADE_BY_BYTES_MAX: Final = 64 * limits.KIB
NO_LONGER_SO: Final = "a person said that it is no longer so"
EXISTING_KEYS_MAX: Final = 4_096
"""Active entries that a distillation is held against; the newest come first."""


def distill(store: MemoryStore, job: ClaimedJob, engine: ChatEngine, cancel: CancelToken) -> JobResult:
    """Make the Knowledge candidates of a job's source; nothing is written before the result is applied.

    Raises: PermanentFailure, OutputRejected, EngineFailure, Cancelled, Corrupt.
    """
    session = store.get_session(job.session_id)
    with store.database.read() as transaction:
        watermark = cast(int, (transaction.one(JOBS["distilled_through"], {"session_id": session.id}) or (0,))[0])
        existing = recall.active(transaction, session.workspace_id, limit=EXISTING_KEYS_MAX)
    through = job.source.through_sequence
    mode = mode_for(store.home, Path(session.workspace_path))

    def run(this: Try, remembering: ChatEngine) -> tuple[Made, tuple[Candidate, ...]]:
        after = min(watermark, through)
        return make(store, job, remembering, cancel, after=after, existing=existing, this=this, mode=mode)

    made, candidates = tried(store, job, engine, run)
    changeset = [_change(candidate) for candidate in candidates]
    knowledge.validate(changeset)
    source = Source(
        job_id=job.id,
        session_id=session.id,
        first_sequence=min(watermark + 1, through),
        last_sequence=through,
        sha256=job.source.source_sha256,
        made_by=codec.encode(made.record, what="record of the distillation", bytes_max=_MADE_BY_BYTES_MAX),
    )

    def apply(transaction: Transaction) -> None:
        knowledge.apply(transaction, session.workspace_id, changeset, source=source, now=store.clock(), mode=mode)

    return JobResult(apply=apply, record=made.record, usage=made.usage, knowledge_candidates=len(changeset))


def mode_for(home: Home | None, workspace: Path) -> Mode:
    """What becomes of what is found in a workspace, by the user's configuration and the project's.

    A store that was opened without its Home has no configuration.
    """
    if home is None:
        return Mode.AUTO
    try:
        return Mode(config.load(home, directory=workspace).distillation.mode)
    except (UsageError, Refused, Storage):
        return Mode.REVIEW


def make(
    store: MemoryStore,
    job: ClaimedJob,
    engine: ChatEngine,
    cancel: CancelToken,
    *,
    after: int,
    existing: Mapping[str, str],
    this: Try,
    mode: Mode = Mode.AUTO,
) -> tuple[Made, tuple[Candidate, ...]]:
    """Make the candidates of the events behind `after`, and the record of how. Reads only. Raises: as `distill`."""
    through = job.source.through_sequence
    distilled = distil(
        pages.verified(
            store.database,
            job.session_id,
            after=after,
            chain=chain_at(store, job.session_id, after),
            through=through,
        ),
        engine=engine,
        existing=existing,
        cancel=cancel,
        this=this,
    )
    text = as_text(_shown(candidate) for candidate in sorted(distilled.candidates, key=_place))
    record = {
        "kind": job.kind.value,
        "first_sequence": min(after + 1, through),
        **distilled.provenance,
        **ran(engine),
        "after_sequence": after,
        "mode": mode.value,
        "existing_sha256": result_digest(as_text([existing])),
        "result_sha256": result_digest(text),
    }
    return Made(text=text, record=record, usage=distilled.usage), distilled.candidates


def as_text(items: Iterable[Mapping[str, Any]]) -> str:
    """One canonical line of JSON for each item: what two runs are compared by."""
    lines = (orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode() for item in items)
    return "\n".join(lines)


def _shown(candidate: Candidate) -> dict[str, Any]:
    """A candidate as it is compared; what is said of few is left out of the others."""
    shown = asdict(candidate)
    if not candidate.quarantined:
        del shown["quarantined"]
    return shown


def _place(candidate: Candidate) -> tuple[int, str]:
    return candidate.sequence, candidate.key


def _change(candidate: Candidate) -> Change:
    evidence = Evidence(
        event_id=candidate.event_id,
        sequence=candidate.sequence,
        speaker=candidate.speaker.value,
        quote=candidate.quote,
    )
    if candidate.operation == "tombstone":
        return Tombstone(key=candidate.key, evidence=evidence, reason=NO_LONGER_SO)
    return Upsert(
        key=candidate.key,
        content=candidate.content,
        confidence=candidate.confidence,
        evidence=evidence,
        quarantined=candidate.quarantined,
    )
