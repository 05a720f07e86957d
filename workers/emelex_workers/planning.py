"""Planning compactions: Sessions that grew are measured with the model's own tokenizer (behaviours 114 to 118, 176).

Byte counts never decide that a Session is due. They prove that one is not: a token is at least one byte, so a Session
with fewer bytes than the trigger has tokens cannot be due and is not read. Where a server has no tokenizer, counts are
estimates that lie rather above the truth, and every answer says so: a compaction may come early (ADR 0024). None comes
without a newer turn to fold, so none comes in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, cast

from emelex_core.compaction_policy import CompactionPlan, CompactionPolicy, TurnSize
from emelex_core.db.statements import load
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Cancelled, Corrupt, SessionBusy
from emelex_core.models.load import Tokenizer
from emelex_core.publish import PublishedJob, publish_compaction
from emelex_core.sessions import pages
from emelex_core.sessions.messages import model_text
from emelex_core.sessions.records import Session, StoredEvent
from emelex_core.store import MemoryStore
from emelex_workers.engines import EngineSource
from emelex_workers.overrides import PolicyOverrides
from emelex_workers.progress import Listener, PlanningNote

SESSIONS: Final = load("emelex_core", "sessions")
JOBS: Final = load("emelex_core", "jobs")

_ESTIMATED: Final = ", by an estimate: the model's server has no tokenizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCompaction(PublishedJob):
    """A compaction that was published; `estimated` as in `PlanningNote`."""

    estimated: bool


def plan_due(
    store: MemoryStore,
    engines: EngineSource,
    overrides: PolicyOverrides,
    *,
    session_id: str | None,
    listen: Listener,
    stop: CancelToken,
) -> int:
    """Measure every Session that grew since it was measured last, and publish what is due; return how many jobs."""
    if not _grown(store, trigger_tokens=0, session_id=session_id):
        return 0
    policy = overrides.policy(engines)
    with store.database.write() as transaction:
        transaction.run(
            SESSIONS["mark_small_planned"], {"trigger_tokens": policy.trigger_tokens, "session_id": session_id}
        )
    due = _grown(store, trigger_tokens=policy.trigger_tokens, session_id=session_id)
    if not due:
        return 0
    published = 0
    with engines.tokenizer() as tokenizer:
        for found in due:
            session = store.get_session(found)
            try:
                outcome = _plan(store, session, policy, tokenizer, stop)
            except (Corrupt, SessionBusy) as error:
                # A damaged Session is for `memory check` to tell; it is not measured again until it grows, and the
                # others are planned all the same.
                if isinstance(error, Corrupt):
                    _mark(store, session)
                listen(PlanningNote(session=found, tokens=0, planned=False, reason=error.message))
                continue
            published += isinstance(outcome, PublishedJob)
            listen(_note(outcome, session))
    return published


def plan_session(
    store: MemoryStore, session_id: str, engines: EngineSource, overrides: PolicyOverrides
) -> PlannedCompaction | PlanningNote:
    """Measure one Session now and publish its compaction, or say why there is none. Raises: NotFound, Corrupt."""
    session = store.get_session(session_id)
    with engines.tokenizer() as tokenizer:
        return _plan(store, session, overrides.policy(engines), tokenizer, CancelToken())


def _plan(
    store: MemoryStore, session: Session, policy: CompactionPolicy, tokenizer: Tokenizer, stop: CancelToken
) -> PlannedCompaction | PlanningNote:
    carried, turns = _measure(store, session, tokenizer, stop)
    plan = policy.plan(turns, carried_tokens=carried)
    total = carried + sum(turn.tokens for turn in turns)
    job: PublishedJob | None = None
    reason = "not due" if total < policy.trigger_tokens else "nothing can be gained: the newest turns fill the target"
    if plan is not None:
        job, reason = _publish(store, session, plan)
    _mark(store, session)
    estimated = not tokenizer.exact_tokens
    if job is not None:
        return PlannedCompaction(**asdict(job), estimated=estimated)
    said = f"{reason}{_ESTIMATED}" if estimated else reason
    return PlanningNote(session=session.id, tokens=total, planned=False, reason=said, estimated=estimated)


def _mark(store: MemoryStore, session: Session) -> None:
    """Note that a Session was looked at up to where it ends now."""
    with store.database.write() as transaction:
        transaction.run(SESSIONS["mark_planned"], {"id": session.id, "sequence": session.last_sequence})


def _publish(store: MemoryStore, session: Session, plan: CompactionPlan) -> tuple[PublishedJob | None, str]:
    """Publish, unless another compaction of the Session is still to run: its Summary would make this one stale."""
    with store.database.write() as transaction:
        waiting = transaction.one(JOBS["unfinished_compaction"], {"session_id": session.id})
        if waiting is not None:
            return None, f"job {cast(str, waiting[0])} compacts it already"
        job = publish_compaction(
            transaction,
            session.id,
            through=plan.through_sequence,
            target_tokens=plan.target_tokens,
            now=store.clock(),
        )
    return job, "due"


def _measure(
    store: MemoryStore, session: Session, tokenizer: Tokenizer, stop: CancelToken
) -> tuple[int, list[TurnSize]]:
    """Tokens before the removable turns, and of each removable turn (those past the newest Summary)."""
    carried = 0
    turns: list[TurnSize] = []
    tokens = 0
    for event in _uncovered(store, session):
        if stop.cancelled:
            raise Cancelled("cancelled while Sessions were measured")
        text = model_text(event)
        tokens += tokenizer.count_text(text) if text else 0
        if event.turn_position < event.turn_size - 1:
            continue
        if event.sequence <= session.summary_sequence:
            carried += tokens
        else:
            turns.append(TurnSize(last_sequence=event.sequence, tokens=tokens))
        tokens = 0
    return carried, turns


def _uncovered(store: MemoryStore, session: Session) -> Iterator[StoredEvent]:
    return pages.verified(
        store.database,
        session.id,
        after=session.covered_sequence,
        chain=chain_at(store, session.id, session.covered_sequence),
        through=session.last_sequence,
    )


def chain_at(store: MemoryStore, session_id: str, sequence: int) -> bytes | None:
    """The stored chain value at an event; None at 0, where the Session begins. Raises: Corrupt when it is missing."""
    if sequence == 0:
        return None
    with store.database.read() as transaction:
        row = transaction.one(pages.SQL["at"], {"session_id": session_id, "sequence": sequence})
    if row is None:
        raise Corrupt(f"Session {session_id}: event {sequence} is missing")
    return cast(bytes, row[1])


def _grown(store: MemoryStore, *, trigger_tokens: int, session_id: str | None) -> list[str]:
    parameters = {"trigger_tokens": trigger_tokens, "session_id": session_id, "now": store.clock()}
    with store.database.read() as transaction:
        return [cast(str, row[0]) for row in transaction.all(SESSIONS["to_plan"], parameters)]


def _note(outcome: PlannedCompaction | PlanningNote, session: Session) -> PlanningNote:
    if isinstance(outcome, PlanningNote):
        return outcome
    said = f"compaction job {outcome.id} {outcome.state}{_ESTIMATED if outcome.estimated else ''}"
    return PlanningNote(session=session.id, tokens=0, planned=True, reason=said, estimated=outcome.estimated)
