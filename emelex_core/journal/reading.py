"""Reading a journal back. What does not parse, or does not fit together, is Corrupt by name (behaviour 101)."""

from __future__ import annotations

from typing import Final, cast

from emelex_core import codec
from emelex_core.db.database import Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt
from emelex_core.events import Event, EventKind
from emelex_core.journal.records import JournalledTurn, PendingBatch, PendingCall
from emelex_core.journal.states import CallState
from emelex_core.journal.stored import decode_event, decode_events

SQL: Final = load("emelex_core", "journal")


def read(transaction: Transaction, session_id: str) -> JournalledTurn | None:
    """The turn of a Session that has begun and has not ended, or None. Raises: Corrupt."""
    row = transaction.one(SQL["turn"], {"session_id": session_id})
    if row is None:
        return None
    what = f"Session {session_id}: turn {row[0]!s}"
    if row[6] != row[2]:
        raise Corrupt(f"{what} counts {row[2]!s} checkpoints, but {row[6]!s} are recorded")
    payload = cast(bytes, row[1])
    return JournalledTurn(
        session_id=session_id,
        turn_id=cast(str, row[0]),
        input=decode_event(payload, EventKind.USER, what=f"{what}, input"),
        input_payload=payload,
        checkpoints=cast(int, row[2]),
        started_at=cast(int, row[3]),
        spent_bytes=cast(int, row[4]),
        spent_events=cast(int, row[5]),
        batch=_batch(transaction, session_id, what),
    )


def _batch(transaction: Transaction, session_id: str, what: str) -> PendingBatch | None:
    calls = tuple(_call(row, what) for row in transaction.all(SQL["calls"], {"session_id": session_id}))
    row = transaction.one(SQL["batch"], {"session_id": session_id})
    if row is None:
        if calls:
            raise Corrupt(f"{what} has {len(calls)} tool calls, but no batch that they belong to")
        return None
    if not calls or [call.ordinal for call in calls] != list(range(len(calls))):
        raise Corrupt(f"{what}: calls of its batch are missing")
    messages = decode_events(cast(bytes, row[0]), what=f"{what}, batch")
    return PendingBatch(messages=messages, calls=calls, reserved_bytes=cast(int, row[1]))


def _call(row: Row, what: str) -> PendingCall:
    name = f"{what}, call {row[1]!s}"
    result: Event | None = None
    audits: tuple[Event, ...] = ()
    if row[6] is not None:
        events = decode_events(cast(bytes, row[6]), what=f"{name}, result")
        if not events or events[0].kind is not EventKind.TOOL:
            raise Corrupt(f"{name}: its result is no tool event")
        result, audits = events[0], events[1:]
    return PendingCall(
        ordinal=cast(int, row[0]),
        call_id=cast(str, row[1]),
        name=cast(str, row[2]),
        arguments=codec.decode_stored(cast(bytes, row[3]), what=f"{name}, arguments"),
        state=CallState(cast(str, row[4])),
        started_at=cast("int | None", row[5]),
        approval=cast("str | None", row[7]),
        result=result,
        audits=audits,
    )
