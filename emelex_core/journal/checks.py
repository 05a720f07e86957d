"""What a journal takes: inputs, batches and results, checked before anything is written (behaviours 68 to 73)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from emelex_core import codec, limits
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import Event, EventKind, ToolCallPart, ToolResultPart
from emelex_core.journal.states import RESULT_STATUSES, CallState
from emelex_core.journal.stored import encode_event, encode_events

TOOL_FINISHED: Final = "tool_finished"
"""Label of the audit event that ends each call's audits."""
APPROVAL_DECIDED: Final = "approval_decided"
_AUDITS_MAX: Final = limits.BATCH_EVENTS_PER_CALL - 1
_AUDIT_KINDS: Final = (EventKind.AUDIT, EventKind.APPROVAL)


class Call(Protocol):
    """A call under an id of ours; `emelex_core.agent.calls.ToolCall` is one."""

    @property
    def call_id(self) -> str:
        """The id, unique in its batch."""
        ...

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def arguments(self) -> dict[str, Any]:
        """The JSON object of arguments."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The most that a batch may add to a turn: encoded bytes, and events."""

    bytes: int
    events: int


def input_payload(message: Event) -> bytes:
    """The payload of a turn's input. Raises: Invalid for what is not a user's words within 2 MiB, raw and encoded."""
    if message.kind is not EventKind.USER:
        raise Invalid(f"a turn begins with a user's input, not with {message.kind} words")
    if not message.text.strip() and not message.media:
        raise Invalid("the input is empty")
    codec.check_text(message.text, what="input", bytes_max=limits.AGENT_INPUT_BYTES_MAX)
    payload = encode_event(message, what="input")
    if len(payload) > limits.AGENT_INPUT_BYTES_MAX:
        raise Invalid(f"input: {len(payload)} bytes as JSON; at most {limits.AGENT_INPUT_BYTES_MAX} are accepted")
    return payload


def arguments_of(call: Call) -> bytes:
    """A call's arguments as they are journalled and compared. Raises: Invalid."""
    what = f"arguments of {call.name[:80]!r}"
    return codec.encode(call.arguments, what=what, bytes_max=limits.TURN_ARGUMENT_BYTES_MAX)


def reserve(message_bytes: int, message_count: int, argument_bytes: int, call_count: int) -> Reservation:
    """The worst case of a batch of `call_count` calls (the limits table, "Tool batch reservation")."""
    return Reservation(
        bytes=message_bytes + limits.BATCH_BYTES_FIXED + call_count * limits.BATCH_BYTES_PER_CALL + argument_bytes,
        events=message_count + call_count * limits.BATCH_EVENTS_PER_CALL,
    )


def check_calls(calls: Sequence[Call]) -> None:
    """Raise Invalid unless these are 1 to 16 calls of names and ids in bounds, each id once."""
    if not 1 <= len(calls) <= limits.AGENT_CALLS_PER_ROUND_MAX:
        raise Invalid(f"a batch holds 1 to {limits.AGENT_CALLS_PER_ROUND_MAX} calls, not {len(calls)}")
    seen: set[str] = set()
    for call in calls:
        codec.check_line(call.call_id, what="call id", bytes_max=limits.TOOL_CALL_ID_BYTES_MAX)
        codec.check_line(call.name, what="tool name", bytes_max=limits.TOOL_NAME_BYTES_MAX)
        if call.call_id in seen:
            raise Invalid(f"the call id {call.call_id} stands twice in one batch")
        seen.add(call.call_id)


def check_messages(messages: Sequence[Event], *, input_payload: bytes | None) -> None:
    """Hold messages against their turn: the journalled input first where `input_payload` is given, then one answer.

    Raises: Corrupt for any other messages: the caller no longer knows where its turn stands (behaviour 70); Invalid
    for an answer with media.
    """
    expected = [EventKind.ASSISTANT] if input_payload is None else [EventKind.USER, EventKind.ASSISTANT]
    found = [message.kind for message in messages]
    if found != expected:
        raise Corrupt(f"here a turn goes on with {' and '.join(expected)}, not with {' and '.join(found) or 'nothing'}")
    if messages[-1].media:
        raise Invalid("an assistant's message carries no media")
    if input_payload is not None and encode_event(messages[0], what="input") != input_payload:
        raise Corrupt("the turn's first message is not the input that was journalled")


def check_proposal(answer: Event, calls: Sequence[Call]) -> None:
    """Raise Corrupt unless the answer proposes exactly these calls, in order."""
    proposed = [(part.call_id, part.name, part.arguments) for part in answer.parts if isinstance(part, ToolCallPart)]
    if proposed != [(call.call_id, call.name, call.arguments) for call in calls]:
        raise Corrupt("the assistant's message does not propose the calls that are to be planned")


def completion(call: Call, result: Event, audits: Sequence[Event]) -> tuple[bytes, CallState]:
    """A call's result and audits as they are journalled, and the state that the call must be in.

    Raises: Invalid unless the result is one text for this call, without media, and the last audit event is the
    `tool_finished` of this call (behaviour 73).
    """
    if result.kind is not EventKind.TOOL or len(result.parts) != 1 or not isinstance(result.parts[0], ToolResultPart):
        raise Invalid(f"the result of call {call.call_id} must be one text, without media")
    part = result.parts[0]
    if part.call_id != call.call_id:
        raise Invalid(f"the result of call {call.call_id} names call {part.call_id[:80]}")
    if part.status not in RESULT_STATUSES:
        raise Invalid(f"a result cannot have the status {part.status[:80]!r}")
    _check_audits(call, part.status, audits)
    return encode_events((result, *audits), what=f"result of call {call.call_id}"), RESULT_STATUSES[part.status]


def _check_audits(call: Call, status: str, audits: Sequence[Event]) -> None:
    what = f"audit events of call {call.call_id}"
    if not 1 <= len(audits) <= _AUDITS_MAX:
        raise Invalid(f"{what}: 1 to {_AUDITS_MAX} are accepted, not {len(audits)}")
    if any(audit.kind not in _AUDIT_KINDS or audit.media for audit in audits):
        raise Invalid(f"{what}: only audit and approval events without media are accepted")
    last = audits[-1]
    if last.kind is not EventKind.AUDIT or last.label != TOOL_FINISHED:
        raise Invalid(f"{what}: the last one must be its {TOOL_FINISHED}")
    facts = _facts(last)
    if facts.get("call_id") != call.call_id or facts.get("status", status) != status:
        raise Invalid(f"{what}: its {TOOL_FINISHED} speaks of another call or another status")


def _facts(audit: Event) -> dict[str, Any]:
    """The JSON object that an audit event's text is. Raises: Invalid."""
    value = codec.parse_strict(audit.text, what=TOOL_FINISHED, bytes_max=limits.EVENT_BYTES_MAX)
    if not isinstance(value, dict):
        raise Invalid(f"{TOOL_FINISHED}: it is no JSON object")
    return cast("dict[str, Any]", value)
