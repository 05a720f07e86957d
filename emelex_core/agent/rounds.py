"""One round with a model: what it is asked, what it answers, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from emelex_core.agent.calls import ProposedCall, ToolDeclaration
from emelex_core.engine.cancel import CancelToken
from emelex_core.engine.ports import FinishReason, Sampling
from emelex_core.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """What answers: a model reference, and the id that pins its exact weights or its endpoint."""

    reference: str
    snapshot_id: str


class ToolChoice(StrEnum):
    """Whether a model may answer in words, or has to call a tool. Only a grammar can hold a model to `required`."""

    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model round. `messages` are user, context, Summary, assistant and tool events in order.

    `tools` are those that may be called now; `declared` are all that earlier calls in the history may name
    (behaviour 92).
    """

    system: str
    messages: tuple[Event, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    declared: tuple[ToolDeclaration, ...] = ()
    output_tokens_max: int
    sampling: Sampling = field(default_factory=Sampling)
    choice: ToolChoice = ToolChoice.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one round, in the engine's own count."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a model answered: words, its visible reasoning, or proposals. Without proposals it is the turn's end.

    `note` is a line for the person about how the answer came to be, such as that old turns were left out.
    """

    text: str
    finish_reason: FinishReason
    usage: Usage
    reasoning: str = ""
    calls: tuple[ProposedCall, ...] = ()
    note: str | None = None


class AgentModel(Protocol):
    """A model that a turn can ask. One round runs at a time."""

    @property
    def identity(self) -> ModelIdentity | None:
        """What answers, or None for a model that nothing pins."""
        ...

    async def respond(self, request: ModelRequest, *, tell: Callable[[str], None], cancel: CancelToken) -> ModelReply:
        """Run one round. `tell` hears pieces of the answer's text in order, on the event loop's thread.

        Raises: Cancelled; EngineFailure, PermanentFailure, OutputRejected.
        """
        ...


@runtime_checkable
class RoomChecked(Protocol):
    """A model that knows before a round whether it can be asked for."""

    async def require_room(self, request: ModelRequest) -> None:
        """Raise PermanentFailure when the round's messages do not fit, however much of them is left out."""
        ...
