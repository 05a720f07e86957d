"""Distillation: from a claimed job to Knowledge, written in the transaction that completes the job.

Only events past the Session's watermark are read, so that each event is evidence once. Summaries are never evidence
(behaviours 136 to 140 and 177).
"""

from __future__ import annotations

from typing import Final, cast

from emelex_queue.records import ClaimedJob

from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge import recall
from emelex_core.knowledge.records import Evidence, Source, Upsert
from emelex_core.sessions import pages
from emelex_core.store import MemoryStore
from emelex_workers.distil import Candidate, distil
from emelex_workers.planning import chain_at
from emelex_workers.result import JobResult

JOBS: Final = load("emelex_core", "jobs")
_EXISTING_KEYS_MAX: Final = 4_096
"""Active entries that a distillation is held against; the newest come first."""


def distill(store: MemoryStore, job: ClaimedJob, engine: ChatEngine, cancel: CancelToken) -> JobResult:
    """Make the Knowledge candidates of a job's source; nothing is written before the result is applied.

    Raises: PermanentFailure, OutputRejected, EngineFailure, Cancelled, Corrupt.
    """
    session = store.get_session(job.session_id)
    with store.database.read() as transaction:
        watermark = cast(int, (transaction.one(JOBS["distilled_through"], {"session_id": session.id}) or (0,))[0])
        existing = recall.active(transaction, session.workspace_id, limit=_EXISTING_KEYS_MAX)
    through = job.source.through_sequence
    distilled = distil(
        pages.verified(
            store.database,
            session.id,
            after=min(watermark, through),
            chain=chain_at(store, session.id, min(watermark, through)),
            through=through,
        ),
        engine=engine,
        existing=existing,
        cancel=cancel,
        attempt=job.attempt,
    )
    upserts = [_upsert(candidate) for candidate in distilled.candidates]
    knowledge.validate(upserts)
    source = Source(
        job_id=job.id,
        session_id=session.id,
        first_sequence=min(watermark + 1, through),
        last_sequence=through,
        sha256=job.source.source_sha256,
    )

    def apply(transaction: Transaction) -> None:
        knowledge.apply(transaction, session.workspace_id, upserts, source=source, now=store.clock())

    return JobResult(
        apply=apply,
        record={"kind": job.kind.value, "first_sequence": source.first_sequence, **distilled.provenance},
        usage=distilled.usage,
        knowledge_candidates=len(upserts),
    )


def _upsert(candidate: Candidate) -> Upsert:
    return Upsert(
        key=candidate.key,
        content=candidate.content,
        confidence=candidate.confidence,
        evidence=Evidence(
            event_id=candidate.event_id,
            sequence=candidate.sequence,
            speaker=candidate.speaker.value,
            quote=candidate.quote,
        ),
    )
