"""A chat completion that comes in pieces (server-sent events), put together and checked like a whole one.

A server is foreign: each event is parsed strictly, and what is put together is bounded in bytes and in calls. A server
that was asked for pieces and sends a whole completion is understood as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from emelex_core import codec
from emelex_core.engine import reply
from emelex_core.engine.ports import FinishReason, ToolUse
from emelex_core.engine.reply import Completion
from emelex_core.errors import EngineFailure, Invalid

CALLS_MAX: Final = 64
"""More than any turn accepts."""

_END: Final = b"[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


class _Parts:
    """One call as far as it has come."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []


class EventStream:
    """Takes a reply's bytes as they come; `hear` gets each piece of the answer's text."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._unread = bytearray()
        self._whole: bytearray | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Parts] = {}
        self._reason: str | None = None
        self._usage: Any = None

    def add(self, data: bytes) -> None:
        """Take the next bytes. Raises: EngineFailure for what is not the protocol."""
        if self._whole is None and not self._text and not self._unread and data.lstrip().startswith(b"{"):
            self._whole = bytearray()
        if self._whole is not None:
            self._whole += data
            return
        self._unread += data
        if len(self._unread) > reply.REPLY_BYTES_MAX:
            raise EngineFailure(f"the server sent an event of more than {reply.REPLY_BYTES_MAX} bytes")
        if b"\n" not in data:
            return
        *lines, rest = self._unread.split(b"\n")
        self._unread = bytearray(rest)
        for line in lines:
            self._line(bytes(line))

    def completion(self) -> Completion:
        """What was put together. Raises: EngineFailure when the end did not come."""
        if self._whole is not None:
            whole = reply.completion(bytes(self._whole))
            self._hear(whole.text)
            return whole
        self._line(bytes(self._unread))
        self._unread.clear()
        calls = tuple(
            ToolUse(call_id=parts.call_id, name=parts.name, arguments="".join(parts.arguments))
            for _, parts in sorted(self._calls.items())
        )
        usage = reply.usage(self._usage)
        return Completion(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=calls,
            finish_reason=FinishReason.TOOL_CALLS if calls else reply.finish_reason(self._reason),
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
        )

    def _line(self, line: bytes) -> None:
        field, _, value = line.rstrip(b"\r").partition(b":")
        value = value.removeprefix(b" ")
        if field != b"data" or not value or value == _END:
            return
        chunk = _read(value)
        if chunk.error is not None:
            raise EngineFailure(f"the server answered with an error{reply.codes(chunk.error)}")
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in (chunk.choices or [])[:1]:
            self._take(choice)

    def _take(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta.content:
            self._text.append(delta.content)
            self._hear(delta.content)
        if delta.reasoning_content:
            self._reasoning.append(delta.reasoning_content)
        for call in delta.tool_calls or ():
            self._take_call(call)
        if choice.finish_reason is not None:
            self._reason = choice.finish_reason

    def _take_call(self, call: _Call) -> None:
        if call.index not in self._calls and len(self._calls) == CALLS_MAX:
            raise EngineFailure(f"the server's reply holds more than {CALLS_MAX} tool calls")
        parts = self._calls.setdefault(call.index, _Parts())
        parts.call_id = parts.call_id or call.id or ""
        if call.function is not None:
            parts.name += call.function.name or ""
            parts.arguments.append(call.function.arguments or "")


def _read(data: bytes) -> _Chunk:
    try:
        value = codec.parse_strict(data, what="the server's reply", bytes_max=reply.REPLY_BYTES_MAX)
        return msgspec.convert(value, _Chunk)
    except Invalid as error:
        raise EngineFailure(error.message) from None
    except msgspec.ValidationError as error:
        raise EngineFailure(f"the server's reply is not the protocol's: {error}") from None
