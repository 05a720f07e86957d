"""Three ways to tell a turn: on a terminal, into a pipe, as JSON. Each is the event sink of a turn.

A teller never raises for a reader that is gone or a disk that is full: the turn's own record is in the store, and a
line that cannot be written must not leave a tool's result unwritten. What failed is kept and raised at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from emelex_cli.chat.answer import Answer
from emelex_cli.output import Output, ReaderGone, neutralise, one_line, say, to_json
from emelex_cli.shapes import short
from emelex_core.errors import Storage

if TYPE_CHECKING:
    from rich.console import Console

    from emelex_core.agent.ports import AgentEvent, ApprovalDecision, ApprovalRequest, ToolCall, TurnOutcome
    from emelex_core.events import Event

_ARGUMENTS_SHOWN = 160
_RESULT_SHOWN = 120


class Teller(Protocol):
    """Who tells what happens in a turn."""

    async def hear(self, event: AgentEvent) -> None:
        """Tell one event. Never raises."""
        ...

    def finish(self) -> None:
        """Raises: ReaderGone, Storage for what could not be written since the last call."""
        ...


class _Writer:
    """Calls what writes, and keeps the first failure until `finish`."""

    def __init__(self) -> None:
        self._failed: ReaderGone | Storage | None = None

    def write(self, call: Callable[[], None]) -> None:
        if self._failed is None:
            try:
                call()
            except (ReaderGone, Storage) as error:
                self._failed = error
            except OSError as error:
                self._failed = Storage(f"cannot write to the terminal: {error.strerror}")

    def finish(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


class ScreenTeller(_Writer):
    """Markdown on a terminal that can move its cursor; tools in one line each."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._answer = Answer(console)

    async def hear(self, event: AgentEvent) -> None:
        """Tell one event."""
        from emelex_core.agent.ports import TextDelta

        if isinstance(event, TextDelta):
            self.write(lambda: self._answer.add(event.text))
            return
        self.write(self._answer.end)
        _narrate(event)


class PlainTeller(_Writer):
    """The answer's text on stdout as it comes, everything else on stderr."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out
        self._in_line = False
        # A pipe gets the answer as it is; only a terminal obeys what stands in it.
        self._shown = sys.stdout is not None and sys.stdout.isatty()

    async def hear(self, event: AgentEvent) -> None:
        """Tell one event."""
        from emelex_core.agent.ports import TextDelta

        if isinstance(event, TextDelta):
            self.write(lambda: self._piece(event.text))
            return
        if self._in_line:
            self.write(lambda: self._piece("\n"))
        _narrate(event)

    def _piece(self, text: str) -> None:
        self._in_line = not text.endswith("\n")
        self._out.write(neutralise(text) if self._shown else text)
        self._out.flush()


class JsonTeller(_Writer):
    """One object an event; docs/json.md has the shapes."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out

    async def hear(self, event: AgentEvent) -> None:
        """Tell one event."""
        self.write(lambda: self._out.record(record(event), now=True))


def record(event: AgentEvent) -> dict[str, Any]:
    """An agent's event as JSON."""
    from emelex_core.agent import ports

    match event:
        case ports.TurnStarted():
            return {"type": "turn_started"}
        case ports.TextDelta(text=text):
            return {"type": "text_delta", "text": text}
        case ports.ToolProposed(call=call):
            return {"type": "tool_proposed", **_call(call), "arguments": call.arguments}
        case ports.ApprovalAsked(request=request):
            return {"type": "approval_asked", **_call(request.call), "effect": request.effect.value, **_asked(request)}
        case ports.ApprovalDecided(request=request, decision=decision):
            return {"type": "approval_decided", **_call(request.call), **_decided(decision)}
        case ports.ToolStarted(call=call):
            return {"type": "tool_started", **_call(call)}
        case ports.ToolFinished(call=call, result=result):
            return {"type": "tool_finished", **_call(call), **_result(result)}
        case ports.Checkpointed(count=count):
            return {"type": "checkpointed", "count": count}
        case ports.TurnCompleted(outcome=outcome):
            return {"type": "turn_completed", **_outcome(outcome)}
        case ports.TurnFailed():
            return {
                "type": "turn_failed",
                "kind": event.kind,
                "diagnostic": event.diagnostic,
                "checkpoints": event.checkpoints,
            }


def _narrate(event: AgentEvent) -> None:
    """Tell a person what a tool is about to do and what came of it."""
    from emelex_core.agent import ports

    match event:
        case ports.ToolStarted(call=call):
            say(f"→ {one_line(call.name)} {one_line(short(to_json(call.arguments), _ARGUMENTS_SHOWN))}")
        case ports.ApprovalDecided(decision=decision) if not decision.granted:
            say(f"  not allowed{': ' + one_line(decision.reason) if decision.reason else ''}")
        case ports.ToolFinished(result=result):
            say(f"← {one_line(short(_result_line(result), _RESULT_SHOWN))}")
        case ports.TurnCompleted(outcome=outcome):
            for note in outcome.notes:
                say(f"emelex: {one_line(note)}")
            if outcome.finish_reason.value == "length":
                say("emelex: the answer was cut at the token limit (--max-tokens)")
        case _:
            return


def _result_line(result: Event) -> str:
    part = _part(result)
    state = "" if part.status == "completed" else f"[{part.status}] "
    first = next((line for line in part.text.splitlines() if line.strip()), "(nothing)")
    return f"{'error: ' if part.is_error else ''}{state}{first.strip()}"


def _call(call: ToolCall) -> dict[str, Any]:
    return {"call": call.call_id, "tool": call.name}


def _asked(request: ApprovalRequest) -> dict[str, Any]:
    return {"text": request.text, "caution": request.caution}


def _decided(decision: ApprovalDecision) -> dict[str, Any]:
    return {"granted": decision.granted, "reason": decision.reason or None}


def _result(result: Event) -> dict[str, Any]:
    part = _part(result)
    return {"status": part.status, "is_error": part.is_error, "exit_code": part.exit_code, "text": part.text}


def _outcome(outcome: TurnOutcome) -> dict[str, Any]:
    return {
        "text": outcome.answer.text,
        "rounds": outcome.rounds,
        "finish_reason": outcome.finish_reason.value,
        "notes": list(outcome.notes),
        "prompt_tokens": outcome.usage.prompt_tokens,
        "output_tokens": outcome.usage.output_tokens,
    }


def _part(result: Event) -> Any:
    """The one part of a tool event."""
    return result.parts[0]
