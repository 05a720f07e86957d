"""The durable side of turns, as `AgentSession` sees it: each step is written down before it is taken."""

from __future__ import annotations

from typing import Protocol

from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, ToolCall
from emelex_core.events import Event


class TurnJournal(Protocol):
    """The durable side of one turn after another. `AgentSession.run` calls it in this order, and in no other:

        turn    = begin, { batch }, ( finish | fail )
        batch   = plan, { call }, checkpoint
        call    = [ ask, [ decide ] ], [ start ], complete

    A batch in which nothing started may end in `fail` at any point; it then leaves no trace in the history. A batch in
    which something started is completed whole and checkpointed before `fail` (behaviours 78, 79, 81 to 83).

    Whatever a method raises poisons the session: it no longer knows what is durable. A turn whose future is dropped
    makes no further call at all.
    """

    async def begin(self, message: Event) -> None:
        """Journal the input, before the model is asked (behaviour 67). A user event of at most 2 MiB."""
        ...

    async def plan(self, messages: tuple[Event, ...], calls: tuple[ToolCall, ...]) -> None:
        """Journal a whole proposed batch before its first tool (behaviours 69 to 71).

        `messages` is (input, assistant) in a turn's first batch and (assistant,) later. The assistant event holds one
        `ToolCallPart` for each of `calls`, in order, with the same id, name and arguments.
        """
        ...

    async def ask(self, request: ApprovalRequest) -> None:
        """Journal that a planned call waits for approval (behaviour 99)."""
        ...

    async def decide(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        """Journal the answer to the approval that was asked last."""
        ...

    async def start(self, call: ToolCall) -> None:
        """Journal that a planned call is about to run. The tool runs right after this returns (behaviour 72)."""
        ...

    async def complete(self, call: ToolCall, result: Event, audits: tuple[Event, ...]) -> None:
        """Journal a call's result (behaviour 73).

        `result` is a tool event of one `ToolResultPart` with the call's id. From `planned` its status is not_executed
        (refused, denied, not reached); from `started` it is completed or unknown_effect. `audits` are at most
        four audit events, in order; the last is labelled `tool_finished`, and its text is a JSON object with the call's
        id as `call_id`.
        """
        ...

    async def checkpoint(self) -> None:
        """Append the batch, its results in the calls' order, and their audits; remove its journal (behaviour 74)."""
        ...

    async def finish(self, messages: tuple[Event, ...], audits: tuple[Event, ...]) -> None:
        """Append the remaining messages and audits and end the turn, atomically (behaviour 75).

        `messages` is (input, assistant) when nothing was checkpointed, and (assistant,) otherwise.
        """
        ...

    async def fail(self, diagnostic: str) -> None:
        """End the turn with a diagnostic of 1 byte to 4 KiB, dropping a batch that is not checkpointed (76, 77)."""
        ...


class NullJournal:
    """A journal for conversations that nothing keeps."""

    async def begin(self, message: Event) -> None:
        """Do nothing."""

    async def plan(self, messages: tuple[Event, ...], calls: tuple[ToolCall, ...]) -> None:
        """Do nothing."""

    async def ask(self, request: ApprovalRequest) -> None:
        """Do nothing."""

    async def decide(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        """Do nothing."""

    async def start(self, call: ToolCall) -> None:
        """Do nothing."""

    async def complete(self, call: ToolCall, result: Event, audits: tuple[Event, ...]) -> None:
        """Do nothing."""

    async def checkpoint(self) -> None:
        """Do nothing."""

    async def finish(self, messages: tuple[Event, ...], audits: tuple[Event, ...]) -> None:
        """Do nothing."""

    async def fail(self, diagnostic: str) -> None:
        """Do nothing."""
