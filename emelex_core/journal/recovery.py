"""Closing an interrupted turn, without running anything again (behaviours 94 to 101; ADR 0017).

    accept ─▶ settle, one call at a time ─▶ publish

Each step is a transaction of its own that leaves a journal from which the next recovery goes on; the last one appends
the batch with the closing event and removes the journal, both or neither. A kill between any two loses nothing.

The module owns these invariants:

- Results that were journalled stay exact. A call that never started becomes `not_executed`. A call that started and has
  no result becomes `unknown_effect`, but only once a person has accepted that; all of a batch's at once.
- Every interrupted turn ends with a visible event that says that it failed.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from emelex_core import codec, faults, limits
from emelex_core.clock import Clock
from emelex_core.codec import Json
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.errors import Invalid, UncertainToolInvocations
from emelex_core.events import Event, EventKind, TextPart, ToolResultPart
from emelex_core.journal.checks import APPROVAL_DECIDED, TOOL_FINISHED
from emelex_core.journal.closing import FAILED_AFTER_CHECKPOINT, batch_events, close_batch, close_turn, closing_events
from emelex_core.journal.reading import SQL, read
from emelex_core.journal.records import JournalledTurn, PendingCall, RecoveredCall, RecoveredTurn
from emelex_core.journal.states import EXACT, NOT_EXECUTED, UNKNOWN_EFFECT, CallState
from emelex_core.journal.stored import encode_events
from emelex_core.sessions import append
from emelex_core.sessions.lease import SessionLease

_DIAGNOSTIC: Final = "The process ended while this turn was under way."
_WORDS: Final = {
    UNKNOWN_EFFECT: "The process ended while this call ran. Whether it took effect is unknown. It was not run again.",
    NOT_EXECUTED: "The process ended before this call was started. It was not executed.",
}
_UNANSWERED: Final = "Nobody had answered when the process ended; that counts as a denial."
_DENIED: Final = "It was denied before the process ended."
_ARGUMENTS_SHOWN: Final = 120
_CALLS_SHOWN: Final = 16


def interrupted(database: Database, session_id: str) -> JournalledTurn | None:
    """The turn of a Session that has begun and has not ended, looked at without a lease. Raises: Corrupt."""
    with database.read() as transaction:
        return read(transaction, session_id)


def recover(lease: SessionLease, *, clock: Clock, accept_unknown_effects: bool = False) -> RecoveredTurn:
    """Close the interrupted turn of a Session under a lease that has replayed it.

    Raises: Invalid when nothing was interrupted; UncertainToolInvocations naming the calls that have started, unless
    their unknown effects are accepted; Corrupt for a journal that does not parse; as `SessionLease.writing`.
    """
    with lease.reading() as transaction:
        turn = _recoverable(transaction, lease.session_id, accept_unknown_effects=accept_unknown_effects)
    if turn.batch is None:
        return _close(lease, turn)
    if turn.uncertain:
        _accept(lease, turn)
    for call in turn.batch.calls:
        if call.state is CallState.PLANNED:
            _settle(lease, call, clock)
    with lease.reading() as transaction:
        settled = _recoverable(transaction, lease.session_id, accept_unknown_effects=False)
    return _publish(lease, settled)


def require_recoverable(database: Database, session_id: str, *, accept_unknown_effects: bool) -> None:
    """Ask whether `recover` may begin, before a long history is proven for it. Raises: as `recover`."""
    with database.read() as transaction:
        _recoverable(transaction, session_id, accept_unknown_effects=accept_unknown_effects)


def uncertainty(turn: JournalledTurn) -> UncertainToolInvocations:
    """What an ordinary resume answers beside calls whose effect is unknown (behaviour 96)."""
    listed = "; ".join(_line(call) for call in turn.uncertain[:_CALLS_SHOWN])
    count = len(turn.uncertain)
    return UncertainToolInvocations(
        f"Session {turn.session_id} was interrupted while {count} tool call{'s' if count != 1 else ''} ran, with "
        f"effects that nobody knows: {listed}",
        calls=tuple((call.call_id, call.name) for call in turn.uncertain),
        hint="look at what they may have done, then: emelex memory sessions recover "
        f"{turn.session_id} --accept-unknown-effects",
    )


def _recoverable(transaction: Transaction, session_id: str, *, accept_unknown_effects: bool) -> JournalledTurn:
    turn = read(transaction, session_id)
    if turn is None:
        raise Invalid(f"Session {session_id} has no interrupted turn")
    if turn.uncertain and not accept_unknown_effects:
        raise uncertainty(turn)
    return turn


def _accept(lease: SessionLease, turn: JournalledTurn) -> None:
    """Write the unknown effects down, all at once: from then on no flag is needed any more (behaviour 98)."""
    with lease.writing() as transaction:
        for call in turn.uncertain:
            _complete(transaction, lease.session_id, call, UNKNOWN_EFFECT, ())
        faults.reach("journal.before_commit")
    faults.reach("recover.accepted")


def _settle(lease: SessionLease, call: PendingCall, clock: Clock) -> None:
    """Write down that a planned call was not executed; an approval that is open becomes a denial (behaviour 99)."""
    with lease.writing() as transaction:
        place: dict[str, Value] = {"session_id": lease.session_id, "ordinal": call.ordinal, "now": clock()}
        if transaction.run(SQL["deny_open"], place):
            audits: tuple[Event, ...] = (_denial(call, _UNANSWERED),)
        else:
            audits = (_denial(call, _DENIED),) if call.approval == "denied" else ()
        _complete(transaction, lease.session_id, call, NOT_EXECUTED, audits)
        faults.reach("journal.before_commit")
    faults.reach("recover.settled")


def _complete(
    transaction: Transaction, session_id: str, call: PendingCall, status: str, audits: tuple[Event, ...]
) -> None:
    result = Event.tool(call.call_id, _WORDS[status], is_error=True, status=status)
    text = _WORDS[status].encode()
    finished = _audit(
        EventKind.AUDIT,
        TOOL_FINISHED,
        call,
        status=status,
        is_error=True,
        exit_code=None,
        bytes=len(text),
        sha256=hashlib.sha256(text).hexdigest(),
        recovered=True,
    )
    values: dict[str, Value] = {
        "session_id": session_id,
        "ordinal": call.ordinal,
        "state": call.state,
        "result": encode_events((result, *audits, finished), what=f"call {call.call_id}"),
    }
    # Zero rows mean that a recovery which was cut off got this far; its result stands.
    transaction.run(SQL["settle"], values)


def _close(lease: SessionLease, turn: JournalledTurn) -> RecoveredTurn:
    """A turn without an open batch: what was checkpointed stays, and the failure is told (behaviours 94 and 95)."""
    events = closing_events(turn, _DIAGNOSTIC)
    appended = lease.append_prepared(
        [append.prepare(events)],
        also=lambda transaction: close_turn(transaction, turn=turn),
        from_journal=True,
    )[0]
    faults.reach("recover.published")
    return _recovered(turn, appended, label=str(events[-1].label), calls=(), checkpoints=turn.checkpoints)


def _publish(lease: SessionLease, turn: JournalledTurn) -> RecoveredTurn:
    """The whole batch and the failure enter the history, and the journal goes, in one transaction."""
    events = batch_events(turn)
    failure = Event(kind=EventKind.ERROR, parts=(TextPart(text=_DIAGNOSTIC),), label=FAILED_AFTER_CHECKPOINT)
    prepared = append.prepare((*events, failure))
    checkpoints = turn.checkpoints + 1

    def close(transaction: Transaction) -> None:
        close_batch(transaction, turn=turn, count=len(prepared), size=append.size_of(prepared))
        close_turn(transaction, turn=turn, checkpoints=checkpoints)

    appended = lease.append_prepared([prepared], also=close, from_journal=True)[0]
    faults.reach("recover.published")
    calls = () if turn.batch is None else tuple(map(_recovered_call, turn.batch.calls))
    return _recovered(turn, appended, label=FAILED_AFTER_CHECKPOINT, calls=calls, checkpoints=checkpoints)


def _recovered(
    turn: JournalledTurn,
    appended: append.AppendedTurn,
    *,
    label: str,
    calls: tuple[RecoveredCall, ...],
    checkpoints: int,
) -> RecoveredTurn:
    statuses = [call.status for call in calls]
    return RecoveredTurn(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        input=turn.input,
        started_at=turn.started_at,
        label=label,
        checkpoints=checkpoints,
        calls=calls,
        exact=statuses.count(EXACT),
        uncertain=statuses.count(UNKNOWN_EFFECT),
        not_executed=statuses.count(NOT_EXECUTED),
        first_sequence=appended.first_sequence,
        last_sequence=appended.last_sequence,
    )


def _recovered_call(call: PendingCall) -> RecoveredCall:
    parts = () if call.result is None else call.result.parts
    status = next((part.status for part in parts if isinstance(part, ToolResultPart)), NOT_EXECUTED)
    return RecoveredCall(call_id=call.call_id, name=call.name, status=status)


def _denial(call: PendingCall, reason: str) -> Event:
    return _audit(EventKind.APPROVAL, APPROVAL_DECIDED, call, granted=False, reason=reason, recovered=True)


def _audit(kind: EventKind, label: str, call: PendingCall, **facts: Json) -> Event:
    """An audit event in the terms of a turn that was not interrupted (emelex_core/agent/audits.py)."""
    data = codec.encode(
        {"call_id": call.call_id, "tool": call.name, **facts}, what=label, bytes_max=limits.EVENT_BYTES_MAX
    )
    return Event(kind=kind, parts=(TextPart(text=data.decode()),), label=label)


def _line(call: PendingCall) -> str:
    arguments = orjson.dumps(call.arguments).decode()
    shown = arguments if len(arguments) <= _ARGUMENTS_SHOWN else arguments[: _ARGUMENTS_SHOWN - 1] + "…"
    return f"{call.name} {shown} ({call.call_id})"
