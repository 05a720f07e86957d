"""The two state machines of a journal, as tables. The diagrams in ARCHITECTURE.md and schema 11's CHECKs say the same.

A turn is idle (no row), open (a row in `active_turns`) or batched (a row in `pending_batches`, too). A call of a batch
is planned, started or completed. Completing from `planned` means that the call never ran.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TurnState(StrEnum):
    """Where a Session's turn stands."""

    IDLE = "idle"
    OPEN = "open"
    BATCHED = "batched"


class TurnVerb(StrEnum):
    """What may happen to a turn."""

    BEGIN = "begin"
    PLAN = "plan"
    CHECKPOINT = "checkpoint"
    FINISH = "finish"
    FAIL = "fail"
    RECOVER = "recover"


class CallState(StrEnum):
    """What is known of a call."""

    PLANNED = "planned"
    STARTED = "started"
    COMPLETED = "completed"


class CallVerb(StrEnum):
    """What may happen to a call."""

    START = "start"
    COMPLETE = "complete"
    REFUSE = "refuse"


TURN_TRANSITIONS: Final[dict[tuple[TurnState, TurnVerb], TurnState]] = {
    (TurnState.IDLE, TurnVerb.BEGIN): TurnState.OPEN,
    (TurnState.OPEN, TurnVerb.PLAN): TurnState.BATCHED,
    (TurnState.BATCHED, TurnVerb.CHECKPOINT): TurnState.OPEN,
    (TurnState.OPEN, TurnVerb.FINISH): TurnState.IDLE,
    (TurnState.OPEN, TurnVerb.FAIL): TurnState.IDLE,
    (TurnState.BATCHED, TurnVerb.FAIL): TurnState.IDLE,
    (TurnState.OPEN, TurnVerb.RECOVER): TurnState.IDLE,
    (TurnState.BATCHED, TurnVerb.RECOVER): TurnState.IDLE,
}
"""`fail` leaves `batched` only while nothing of the batch has run; `checkpoint` only once every call is completed."""

CALL_TRANSITIONS: Final[dict[tuple[CallState, CallVerb], CallState]] = {
    (CallState.PLANNED, CallVerb.START): CallState.STARTED,
    (CallState.STARTED, CallVerb.COMPLETE): CallState.COMPLETED,
    (CallState.PLANNED, CallVerb.REFUSE): CallState.COMPLETED,
}
"""No verb leads out of `completed`, and none back to `planned`: nothing is ever run twice."""

NOT_EXECUTED: Final = "not_executed"
UNKNOWN_EFFECT: Final = "unknown_effect"
EXACT: Final = "completed"
RESULT_STATUSES: Final = {EXACT: CallState.STARTED, UNKNOWN_EFFECT: CallState.STARTED, NOT_EXECUTED: CallState.PLANNED}
"""From which state a call is completed with a result of each status."""
