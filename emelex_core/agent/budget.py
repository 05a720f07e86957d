"""What one turn may still take: bytes and events of its journal, arguments, and tools' answers (limits table)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emelex_core import limits
from emelex_core.agent.calls import ToolCall
from emelex_core.agent.wording import shortened
from emelex_core.codec import encode
from emelex_core.errors import Invalid, OutputRejected
from emelex_core.events import Event, EventKind, encode_payload


def check_input(message: Event) -> None:
    """Raise Invalid for what cannot open a turn: not a user's words, empty, or over 2 MiB (behaviour 68)."""
    if message.kind is not EventKind.USER:
        raise Invalid(f"a turn begins with a user's words, not with a {message.kind.value} event")
    if not message.text.strip() and not message.media:
        raise Invalid("the input is empty")
    raw = len(message.text.encode("utf-8", "surrogatepass"))
    if raw > limits.AGENT_INPUT_BYTES_MAX:
        raise Invalid(f"the input has {raw} bytes; at most {limits.AGENT_INPUT_BYTES_MAX} are accepted")
    encoded = len(encode_payload(message, what="the input"))
    if encoded > limits.AGENT_INPUT_BYTES_MAX:
        raise Invalid(f"the input has {encoded} bytes as JSON; at most {limits.AGENT_INPUT_BYTES_MAX} are accepted")


def reserved_bytes(calls: Sequence[ToolCall]) -> int:
    """The most that a batch's results and audit events can take, whatever its tools answer (behaviour 69)."""
    return limits.BATCH_BYTES_FIXED + len(calls) * limits.BATCH_BYTES_PER_CALL + arguments_bytes(calls)


def arguments_bytes(calls: Iterable[ToolCall]) -> int:
    """The calls' arguments as JSON."""
    return sum(
        len(encode(call.arguments, what=f"arguments of {call.name}", bytes_max=limits.EVENT_BYTES_MAX))
        for call in calls
    )


class TurnBudget:
    """Counts down what is left of one turn."""

    def __init__(self, message: Event) -> None:
        self._bytes = len(encode_payload(message))
        self._events = 1
        self._arguments = 0
        self._output = 0

    def reserve(self, assistant: Event, calls: Sequence[ToolCall]) -> None:
        """Check the worst case of a batch before any of its tools runs.

        Raises: OutputRejected naming the bound that the model's proposals pass.
        """
        arguments = self._arguments + arguments_bytes(calls)
        if arguments > limits.TURN_ARGUMENT_BYTES_MAX:
            raise OutputRejected(
                f"the turn's tool arguments come to {arguments} bytes; at most {limits.TURN_ARGUMENT_BYTES_MAX} are run"
            )
        self._check(_size(assistant) + reserved_bytes(calls), 1 + len(calls) * limits.BATCH_EVENTS_PER_CALL)
        self._arguments = arguments

    def add(self, *events: Event) -> None:
        """Count what was made part of the turn. Raises: OutputRejected when it does not fit."""
        size = sum(map(_size, events))
        self._check(size, len(events))
        self._bytes += size
        self._events += len(events)

    @property
    def output_bytes_left(self) -> int:
        """What the next tool may answer."""
        return min(limits.TOOL_OUTPUT_BYTES_MAX, limits.TURN_OUTPUT_BYTES_MAX - self._output)

    def take_output(self, text: str) -> str:
        """Return a tool's answer within what is left, saying what was cut, and count it."""
        kept = shortened(text, max(self.output_bytes_left, 0))
        self._output += len(kept.encode())
        return kept or ("[left out: the tools of this turn have answered all that a turn can hold]" if text else "")

    def _check(self, size: int, events: int) -> None:
        if self._bytes + size > limits.AGENT_TURN_BYTES_MAX:
            raise OutputRejected(
                f"the turn could come to {self._bytes + size} bytes; at most {limits.AGENT_TURN_BYTES_MAX} are stored"
            )
        if self._events + events > limits.AGENT_TURN_EVENTS_MAX:
            raise OutputRejected(
                f"the turn could come to {self._events + events} events; "
                f"at most {limits.AGENT_TURN_EVENTS_MAX} are stored"
            )


def _size(event: Event) -> int:
    try:
        return len(encode_payload(event, what=f"the {event.kind.value} event"))
    except Invalid as error:
        raise OutputRejected(error.message) from None
