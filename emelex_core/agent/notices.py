"""What a sink hears of a turn, in order.

A notice is told after what it tells of is durable, with one exception: `ToolStarted` comes before the call is
journalled as started, so that a sink that fails there leaves nothing invoked (behaviour 78).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, ToolCall
from emelex_core.agent.rounds import Usage
from emelex_core.engine.ports import FinishReason
from emelex_core.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """A turn that ended with an answer. `messages` are all that it added to the history, the input first.

    `notes` are lines for the person about how the answer came to be, such as that old turns were left out.
    """

    answer: Event
    messages: tuple[Event, ...]
    rounds: int
    usage: Usage
    finish_reason: FinishReason
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """The input is journalled."""

    message: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text. Pieces of one round join to its whole text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProposed:
    """A call of the batch that was just planned. Nothing of the batch has run."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """Somebody is about to be asked."""

    request: ApprovalRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided:
    """Somebody answered."""

    request: ApprovalRequest
    decision: ApprovalDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A call is about to be journalled as started, and then to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A call's result is journalled, whether it ran or was refused."""

    call: ToolCall
    result: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """The batch and its results are part of the history. `count` batches of this turn are."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted:
    """The turn is committed. A sink that fails here changes nothing (behaviour 80)."""

    outcome: TurnOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """The turn ended without an answer. `kind` is the error's, `checkpoints` how many batches stay in the history."""

    kind: str
    diagnostic: str
    checkpoints: int


AgentEvent: TypeAlias = (
    TurnStarted
    | TextDelta
    | ToolProposed
    | ApprovalAsked
    | ApprovalDecided
    | ToolStarted
    | ToolFinished
    | Checkpointed
    | TurnCompleted
    | TurnFailed
)
EventSink: TypeAlias = Callable[[AgentEvent], Awaitable[None]]
