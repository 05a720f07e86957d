"""The audit events of a turn: one JSON object each, for people and checks, never for a model (behaviour 51).

A call leaves at most four: asked, decided, started, finished. The last names status, size and digest of the result, so
that a stored result and its audit prove each other (behaviour 73).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from emelex_core import codec, limits
from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, Effect, ToolCall
from emelex_core.agent.rounds import ModelIdentity, Usage
from emelex_core.engine.ports import FinishReason
from emelex_core.events import Event, EventKind, TextPart, ToolResultPart

TOOL_STARTED: Final = "tool_started"
TOOL_FINISHED: Final = "tool_finished"
APPROVAL_ASKED: Final = "approval_asked"
APPROVAL_DECIDED: Final = "approval_decided"
TURN_COMPLETED: Final = "turn_completed"


def approval_asked(request: ApprovalRequest) -> Event:
    """Somebody was asked; the words that they saw."""
    return _event(
        EventKind.APPROVAL,
        APPROVAL_ASKED,
        call_id=request.call.call_id,
        tool=request.call.name,
        effect=request.effect.value,
        text=request.text,
        caution=request.caution,
    )


def approval_decided(request: ApprovalRequest, decision: ApprovalDecision) -> Event:
    """Somebody answered."""
    return _event(
        EventKind.APPROVAL,
        APPROVAL_DECIDED,
        call_id=request.call.call_id,
        tool=request.call.name,
        granted=decision.granted,
        reason=decision.reason,
    )


def tool_started(call: ToolCall, effect: Effect) -> Event:
    """A call ran."""
    return _event(EventKind.AUDIT, TOOL_STARTED, call_id=call.call_id, tool=call.name, effect=effect.value)


def tool_finished(call: ToolCall, result: ToolResultPart) -> Event:
    """A call has its result; `bytes` and `sha256` are of the result's text."""
    data = result.text.encode()
    return _event(
        EventKind.AUDIT,
        TOOL_FINISHED,
        call_id=call.call_id,
        tool=call.name,
        status=result.status,
        is_error=result.is_error,
        exit_code=result.exit_code,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def turn_completed(
    identity: ModelIdentity | None, *, rounds: int, usage: Usage, finish_reason: FinishReason, notes: tuple[str, ...]
) -> Event:
    """A turn ended with an answer; what answered, in how many rounds, at what cost, and what was left out."""
    return _event(
        EventKind.AUDIT,
        TURN_COMPLETED,
        model=None if identity is None else identity.reference,
        model_snapshot=None if identity is None else identity.snapshot_id,
        rounds=rounds,
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        finish_reason=finish_reason.value,
        notes=list(notes),
    )


def _event(kind: EventKind, label: str, **facts: Any) -> Event:
    data = codec.encode(facts, what=f"{label} audit", bytes_max=limits.EVENT_BYTES_MAX)
    return Event(kind=kind, parts=(TextPart(text=data.decode()),), label=label)
