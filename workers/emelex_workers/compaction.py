"""Compaction: from a claimed job to a Summary, written in the transaction that completes the job.

The source is the prior Summary, if any, and the events after what it covers, read in verified pages whatever their size
(behaviours 121, 122 and 174).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_core.errors import Corrupt, SessionBusy
from emelex_core.events import Event, EventKind, TextPart
from emelex_core.sessions import append, pages
from emelex_core.sessions.append import Tail
from emelex_core.sessions.records import StoredEvent
from emelex_core.store import MemoryStore
from emelex_queue.records import ClaimedJob
from emelex_workers.keeping import Keeper, LedgerKeeper
from emelex_workers.planning import chain_at
from emelex_workers.result import JobResult, Made, ran, result_digest, tried
from emelex_workers.summarise import summarise
from emelex_workers.text.restate import Try, Usage

SESSIONS: Final = load("emelex_core", "sessions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Where a Session stood when a compaction began: its newest Summary and what that covers, both 0 without one."""

    summary_sequence: int
    covered_sequence: int


def compact(
    store: MemoryStore, job: ClaimedJob, engine: ChatEngine, cancel: CancelToken, *, chunking: bool
) -> JobResult:
    """Make the Summary of a job's source; nothing is written before the result is applied.

    Raises: PermanentFailure, OutputRejected, EngineFailure, Cancelled, Corrupt.
    """
    session = store.get_session(job.session_id)
    through = job.source.through_sequence
    if through <= session.summary_sequence:
        return _overtaken(job, session.summary_sequence)
    before = Before(summary_sequence=session.summary_sequence, covered_sequence=session.covered_sequence)
    keeper = LedgerKeeper(
        database=store.database, job_id=job.id, chain_at=lambda sequence: chain_at(store, job.session_id, sequence)
    )

    def run(this: Try, remembering: ChatEngine) -> Made:
        return make(store, job, before, remembering, cancel, chunking=chunking, this=this, keeper=keeper)

    made = tried(store, job, engine, run)
    provenance = {
        "job_id": job.id,
        "through_sequence": through,
        "source_event_count": job.source.source_event_count,
        "source_first_event_id": job.source.source_first_event_id,
        "source_last_event_id": job.source.source_last_event_id,
        "source_sha256": job.source.source_sha256,
        "made_by": made.record,
    }

    def apply(transaction: Transaction) -> None:
        _append_summary(transaction, job, made.text, provenance, now=store.clock())

    return JobResult(apply=apply, record=made.record, usage=made.usage, knowledge_candidates=0)


def _overtaken(job: ClaimedJob, summary_sequence: int) -> JobResult:
    """Settle a job whose events another Summary has covered since it was published: there is nothing left to do."""
    record = {"kind": job.kind.value, "overtaken_by_summary": summary_sequence}
    return JobResult(apply=lambda transaction: None, record=record, usage=Usage(), knowledge_candidates=0)


def make(
    store: MemoryStore,
    job: ClaimedJob,
    before: Before,
    engine: ChatEngine,
    cancel: CancelToken,
    *,
    chunking: bool,
    this: Try,
    keeper: Keeper | None = None,
) -> Made:
    """Make the text of a Summary from a source and the Summary before it, and the record of how. Reads only.

    Raises: as `compact`.
    """
    assert job.target_tokens is not None
    draft = summarise(
        _source(store, job, before),
        prior_summary=_prior(store, job.session_id, before.summary_sequence),
        engine=engine,
        target_tokens=job.target_tokens,
        cancel=cancel,
        this=this,
        chunking=chunking,
        keeper=keeper,
    )
    record = {
        "kind": job.kind.value,
        "tokens": draft.tokens,
        **draft.provenance,
        **ran(engine),
        "chunking": chunking,
        "prior_summary_sequence": before.summary_sequence,
        "prior_covered_sequence": before.covered_sequence,
        "result_sha256": result_digest(draft.text),
    }
    return Made(text=draft.text, record=record, usage=draft.usage)


def _source(store: MemoryStore, job: ClaimedJob, before: Before) -> Iterator[StoredEvent]:
    events = pages.verified(
        store.database,
        job.session_id,
        after=before.covered_sequence,
        chain=chain_at(store, job.session_id, before.covered_sequence),
        through=job.source.through_sequence,
    )
    return (event for event in events if event.kind is not EventKind.SUMMARY)


def _prior(store: MemoryStore, session_id: str, sequence: int) -> StoredEvent | None:
    """The Summary at a place, or None at 0. It is proven with the events around it, which are read after it."""
    if sequence == 0:
        return None
    found = store.read_events(session_id, after=sequence - 1, limit=1)
    if not found or found[0].kind is not EventKind.SUMMARY:
        raise Corrupt(f"Session {session_id}: its Summary at {sequence} is missing")
    return found[0]


def _append_summary(
    transaction: Transaction, job: ClaimedJob, text: str, provenance: dict[str, Any], *, now: int
) -> None:
    """Append the Summary as one turn at the Session's tail. Raises: SessionBusy when the Session became live."""
    head = transaction.one(SESSIONS["head"], {"id": job.session_id})
    if head is None:
        raise Corrupt(f"Session {job.session_id} is missing")
    tail = Tail(sequence=cast(int, head[0]), chain=cast(bytes, head[1]))
    event = Event(kind=EventKind.SUMMARY, parts=(TextPart(text=text),), provenance=provenance)
    batch = append.lay_out(job.session_id, tail, [append.prepare([event], allow_summary=True)], now=now)
    advanced = transaction.run(
        SESSIONS["advance_by_summary"],
        {
            "id": job.session_id,
            "cursor": tail.sequence,
            "last_sequence": batch.tail.sequence,
            "chain": batch.tail.chain,
            "bytes": batch.bytes,
            "covered_sequence": job.source.through_sequence,
            "now": now,
        },
    )
    if not advanced:
        raise SessionBusy(f"Session {job.session_id} is in use or was compacted meanwhile", held_until=now)
    append.insert(transaction, job.session_id, batch)
