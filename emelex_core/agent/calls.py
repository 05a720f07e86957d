"""Tools and their calls: what a model is told, what it asks for, what a person grants, what a tool answers.

A model only proposes. A `ProposedCall` is untrusted words; a `ToolCall` carries an id of ours and a JSON object, and
only what was planned under that id can be started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from emelex_core.engine.cancel import CancelToken

Arguments: TypeAlias = dict[str, Any]
"""The JSON object of a call, checked by the codec."""


class Effect(StrEnum):
    """What a tool may do to the world outside the conversation."""

    READS = "reads"
    WRITES = "writes"
    EXECUTES = "executes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """What a model is told of a tool. `parameters` is the JSON Schema of an object, without remote references."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """What a model asks for, untrusted. `arguments` is text where it was no JSON object that the codec accepts."""

    name: str
    arguments: Arguments | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a planned batch. `call_id` is ours; `arguments` that were no object stand under the key `input`."""

    call_id: str
    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What a tool answers. `exit_code` is a process's, where one ran and ended by itself."""

    text: str
    is_error: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a running tool is given. `approved` says that a person granted exactly this call.

    `output_bytes_max` is what of its text will be kept, in UTF-8 bytes. A tool that hears `cancel` ends what it began
    as soon as it can and still answers.
    """

    cancel: CancelToken
    approved: bool
    output_bytes_max: int


class Tool(Protocol):
    """One tool. It is used by one turn at a time and keeps no state that a turn depends on."""

    @property
    def declaration(self) -> ToolDeclaration:
        """What the model is told; the same for the tool's whole life."""
        ...

    @property
    def effect(self) -> Effect:
        """What the tool may do; the approval policy goes by it."""
        ...

    def caution(self, arguments: Arguments) -> str | None:
        """Why this call needs approval although its effect alone would not, in one line; None for nothing special."""
        ...

    def preview(self, arguments: Arguments) -> str:
        """What would happen, whole, in words for the person who approves. Over 4 KiB the call is refused unasked."""
        ...

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        """Do it. Arguments fit the declared schema. Blocking work runs on a thread, never on the event loop.

        Raises: ToolError for what the model should hear as the call's answer. Anything else that is raised is fatal for
        the turn, and the call's effect counts as unknown.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One question about one call. `text` is at most 4 KiB, without control characters other than line breaks."""

    call: ToolCall
    effect: Effect
    text: str
    caution: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """The answer, valid once. `reason` is told to the model when the call was not granted."""

    granted: bool
    reason: str = ""


Approve: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]
