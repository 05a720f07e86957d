"""A turn under way as its journal tells it, and what became of one that was interrupted."""

from __future__ import annotations

from dataclasses import dataclass

from emelex_core.codec import Json
from emelex_core.events import Event
from emelex_core.journal.states import CallState, TurnState


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """One call of a batch. `started_at` is None when it never ran; `approval` is asked, granted, denied or None.

    `result` and `audits` are what the call was completed with.
    """

    ordinal: int
    call_id: str
    name: str
    arguments: Json
    state: CallState
    started_at: int | None
    approval: str | None
    result: Event | None
    audits: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """A proposed batch: its messages, its calls in order, and the encoded bytes that it was given room for."""

    messages: tuple[Event, ...]
    calls: tuple[PendingCall, ...]
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledTurn:
    """A turn that has begun and has not ended.

    `spent_bytes` and `spent_events` are what its checkpoints have put into the history.
    """

    session_id: str
    turn_id: str
    input: Event
    input_payload: bytes
    checkpoints: int
    spent_bytes: int
    spent_events: int
    started_at: int
    batch: PendingBatch | None

    @property
    def state(self) -> TurnState:
        """Where the turn stands."""
        return TurnState.OPEN if self.batch is None else TurnState.BATCHED

    @property
    def uncertain(self) -> tuple[PendingCall, ...]:
        """Calls that have started and whose result nobody knows."""
        calls = () if self.batch is None else self.batch.calls
        return tuple(call for call in calls if call.state is CallState.STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredCall:
    """How one call of an interrupted batch stands in the history: completed, unknown_effect or not_executed."""

    call_id: str
    name: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredTurn:
    """An interrupted turn as it was closed: the events `first_sequence` to `last_sequence` say so.

    `exact`, `uncertain` and `not_executed` count its last batch's calls; `label` is that of the closing event, and
    `checkpoints` counts the batches of the turn that stand in the history.
    """

    session_id: str
    turn_id: str
    input: Event
    started_at: int
    label: str
    checkpoints: int
    calls: tuple[RecoveredCall, ...]
    exact: int
    uncertain: int
    not_executed: int
    first_sequence: int
    last_sequence: int
