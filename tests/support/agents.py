"""Doubles for turns of an agent: a model that plays a script, a journal that checks its grammar, small tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emelex_core.agent.ports import (
    AgentEvent,
    ApprovalDecision,
    ApprovalRequest,
    Arguments,
    CancelToken,
    Effect,
    FinishReason,
    ModelIdentity,
    ModelReply,
    ModelRequest,
    ProposedCall,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolOutcome,
    Usage,
)
from emelex_core.errors import Cancelled
from emelex_core.events import Event, ToolCallPart, ToolResultPart

Step = ModelReply | Exception | Callable[[ModelRequest, Callable[[str], None], CancelToken], Awaitable[ModelReply]]


def says(text: str, **changes: Any) -> ModelReply:
    """A plain answer."""
    fields: dict[str, Any] = {"finish_reason": FinishReason.STOP, "usage": Usage(prompt_tokens=10, output_tokens=2)}
    return ModelReply(text=text, **{**fields, **changes})


def proposes(*calls: tuple[str, Any], text: str = "") -> ModelReply:
    """An answer that proposes calls, given as name and arguments."""
    proposed = tuple(ProposedCall(name=name, arguments=arguments) for name, arguments in calls)
    return says(text, calls=proposed, finish_reason=FinishReason.TOOL_CALLS)


class ScriptedModel:
    """Plays its steps in order and keeps what it was asked. `identity` pins it by a made-up name."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[ModelRequest] = []
        self.identity: ModelIdentity | None = ModelIdentity(reference="scripted", snapshot_id="scripted#1")

    async def respond(self, request: ModelRequest, *, tell: Callable[[str], None], cancel: CancelToken) -> ModelReply:
        self.asked.append(request)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, ModelReply):
            if step.text:
                tell(step.text)
            return step
        return await step(request, tell, cancel)


async def until_cancelled(cancel: CancelToken) -> None:
    """Wait until the token is cancelled, then raise Cancelled, as a model or tool that listens does."""
    while not await asyncio.to_thread(cancel.wait, 10):
        pass
    raise Cancelled("stopped by its token")


@dataclass
class Gadget:
    """A tool around one coroutine, which gets arguments and context. It counts its runs."""

    name: str = "gadget"
    effect: Effect = Effect.READS
    work: Callable[[Arguments, ToolContext], Awaitable[ToolOutcome]] | None = None
    careful: str | None = None
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "additionalProperties": True})
    runs: list[Arguments] = field(default_factory=list)

    @property
    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name=self.name, description="does something", parameters=self.parameters)

    def caution(self, arguments: Arguments) -> str | None:
        return self.careful

    def preview(self, arguments: Arguments) -> str:
        return json.dumps(arguments)

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        self.runs.append(arguments)
        if self.work is None:
            return ToolOutcome(text=f"{self.name} ran")
        return await self.work(arguments, context)


class RecordingJournal:
    """Keeps each step and refuses every order that `TurnJournal` does not spell. `fail_at` names a step that breaks."""

    def __init__(self, fail_at: str | None = None) -> None:
        self.steps: list[str] = []
        self.durable: list[Event] = []
        self.audits: list[Event] = []
        self.diagnostics: list[str] = []
        self.checkpoints = 0
        self.fail_at = fail_at
        self._input: Event | None = None
        self._messages: tuple[Event, ...] = ()
        self._states: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, tuple[Event, tuple[Event, ...]]] = {}
        self._asked: str | None = None

    async def begin(self, message: Event) -> None:
        self._step("begin")
        assert self._input is None
        self._input = message
        self.checkpoints = 0

    async def plan(self, messages: tuple[Event, ...], calls: tuple[ToolCall, ...]) -> None:
        self._step("plan")
        assert self._input is not None
        assert not self._calls
        self._check_messages(messages)
        parts = [part for part in messages[-1].parts if isinstance(part, ToolCallPart)]
        assert [(part.call_id, part.name, part.arguments) for part in parts] == [
            (call.call_id, call.name, call.arguments) for call in calls
        ]
        self._messages = messages
        self._calls = {call.call_id: call for call in calls}
        assert len(self._calls) == len(calls)
        self._states = dict.fromkeys(self._calls, "planned")

    async def ask(self, request: ApprovalRequest) -> None:
        self._step("ask")
        assert self._states[request.call.call_id] == "planned"
        self._asked = request.call.call_id

    async def decide(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        self._step("decide")
        assert self._asked == request.call.call_id
        self._asked = None

    async def start(self, call: ToolCall) -> None:
        self._step("start")
        assert self._calls[call.call_id] == call
        assert self._states[call.call_id] == "planned"
        self._states[call.call_id] = "started"

    async def complete(self, call: ToolCall, result: Event, audits: tuple[Event, ...]) -> None:
        self._step("complete")
        (part,) = result.parts
        assert isinstance(part, ToolResultPart)
        assert part.call_id == call.call_id
        allowed = {"planned": {"not_executed"}, "started": {"completed", "unknown_effect"}}
        assert part.status in allowed[self._states[call.call_id]]
        assert 1 <= len(audits) <= 4
        assert audits[-1].label == "tool_finished"
        assert json.loads(audits[-1].text)["call_id"] == call.call_id
        self._states[call.call_id] = "completed"
        self._results[call.call_id] = (result, audits)

    async def checkpoint(self) -> None:
        self._step("checkpoint")
        assert set(self._states.values()) == {"completed"}
        results = [self._results[call_id] for call_id in self._calls]
        self.durable += [*self._messages, *(result for result, _ in results)]
        self.audits += [audit for _, audits in results for audit in audits]
        self._forget_batch()
        self.checkpoints += 1

    async def finish(self, messages: tuple[Event, ...], audits: tuple[Event, ...]) -> None:
        self._step("finish")
        assert not self._calls
        self._check_messages(messages)
        self.durable += messages
        self.audits += audits
        self._input = None

    async def fail(self, diagnostic: str) -> None:
        self._step("fail")
        assert self._input is not None
        assert "started" not in self._states.values()
        assert 0 < len(diagnostic.encode()) <= 4096
        self.diagnostics.append(diagnostic)
        self._forget_batch()
        self._input = None

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fail_at:
            raise OSError(f"the journal broke at {name}")

    def _check_messages(self, messages: Sequence[Event]) -> None:
        kinds = [message.kind.value for message in messages]
        assert kinds == (["assistant"] if self.checkpoints else ["user", "assistant"])

    def _forget_batch(self) -> None:
        self._messages, self._calls, self._states, self._results, self._asked = (), {}, {}, {}, None


class Listener:
    """A sink that keeps what it hears, and fails at the first notice of the named class."""

    def __init__(self, fail_at: str | None = None, *, after: int = 0) -> None:
        self.heard: list[AgentEvent] = []
        self.fail_at = fail_at
        self.after = after

    async def __call__(self, notice: AgentEvent) -> None:
        self.heard.append(notice)
        if type(notice).__name__ == self.fail_at:
            if not self.after:
                raise ConnectionResetError("the listener is gone")
            self.after -= 1

    @property
    def names(self) -> list[str]:
        return [type(notice).__name__ for notice in self.heard]


def grants(*answers: bool) -> Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]:
    """Answer approvals in order; the questions stand in `asked` of the returned function."""
    left = list(answers)
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision(granted=left.pop(0), reason="as scripted")

    approve.asked = asked  # type: ignore[attr-defined]  # a function is the plainest thing with a memory here
    return approve
