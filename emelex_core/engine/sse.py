"""A chat completion that comes in pieces (server-sent events), put together and checked like a whole one.

A server is foreign: each event is parsed strictly, and what is put together is bounded in bytes and in calls. A server
that was asked for pieces and sends a whole completion is understood as well. A character that is cut into two escapes
of one surrogate each, one at the end of a piece and one at the start of the next, comes out whole; half a character
that stays alone is no text, and a failure. A reply that ends without saying how it ended was cut on its way: a failure,
whatever it had proposed by then.
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


class OutputFull(Exception):
    """The server goes on beyond the bound that it was given; nothing more of this reply is wanted."""


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


class _Text:
    """A text that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: str) -> str:
        """Take the next piece, and return what is certain now. Raises: EngineFailure for half a character."""
        if self._half or not piece.isascii():
            piece = _paired(self._half + piece)
            self._half = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
            piece = _whole(piece.removesuffix(self._half))
        self._pieces.append(piece)
        return piece

    def finished(self) -> str:
        """The whole text. Raises: EngineFailure when it ends in half a character."""
        return "".join((*self._pieces, _whole(self._half)))


class _Parts:
    """One call as far as it has come."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = _Text()
        self.arguments = _Text()

    def finished(self) -> ToolUse:
        return ToolUse(call_id=self.call_id, name=self.name.finished(), arguments=self.arguments.finished())


class EventStream:
    """Takes a reply's bytes as they come; `hear` gets each piece of the answer's text.

    Text, reasoning and calls together are at most `output_bytes_max`; what a server sends beyond is not taken, and
    the reply was cut there (`OutputFull`).
    """

    def __init__(self, hear: Callable[[str], None], *, output_bytes_max: int = reply.REPLY_BYTES_MAX) -> None:
        self._hear = hear
        self._left = output_bytes_max
        self._full = False
        self._unread = bytearray()
        self._whole: bytearray | None = None
        self._text = _Text()
        self._reasoning = _Text()
        self._calls: dict[int, _Parts] = {}
        self._reason: str | None = None
        self._usage: Any = None

    def add(self, data: bytes) -> None:
        """Take the next bytes. Raises: EngineFailure for what is not the protocol; OutputFull at the bound."""
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
        if not self._full:
            self._line(bytes(self._unread))
        self._unread.clear()
        calls = tuple(parts.finished() for _, parts in sorted(self._calls.items()))
        usage = reply.usage(self._usage)
        return Completion(
            text=self._text.finished(),
            reasoning=self._reasoning.finished(),
            calls=calls,
            finish_reason=FinishReason.LENGTH if self._full else reply.finish_reason(self._reason, called=bool(calls)),
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
        size = _bytes_of(delta)
        if size > self._left:
            self._full = True
            words = (delta.content or "").encode("utf-8", "ignore")[: self._left].decode("utf-8", "ignore")
            if words:
                self._hear(self._text.add(words))
            raise OutputFull
        self._left -= size
        if delta.content:
            self._hear(self._text.add(delta.content))
        if delta.reasoning_content:
            self._reasoning.add(delta.reasoning_content)
        for call in delta.tool_calls or ():
            self._take_call(call)
        if choice.finish_reason is not None:
            self._reason = choice.finish_reason

    def _take_call(self, call: _Call) -> None:
        if call.index not in self._calls and len(self._calls) == CALLS_MAX:
            raise EngineFailure(f"the server's reply holds more than {CALLS_MAX} tool calls")
        parts = self._calls.setdefault(call.index, _Parts())
        parts.call_id = parts.call_id or _whole(call.id or "")
        if call.function is not None:
            parts.name.add(call.function.name or "")
            parts.arguments.add(call.function.arguments or "")


def _bytes_of(delta: _Delta) -> int:
    functions = [call.function for call in delta.tool_calls or () if call.function is not None]
    texts = [delta.content, delta.reasoning_content, *(function.arguments for function in functions)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if text)


def _read(data: bytes) -> _Chunk:
    try:
        value = codec.parse_strict(data, what="the server's reply", bytes_max=reply.REPLY_BYTES_MAX, halves=True)
        return msgspec.convert(value, _Chunk)
    except Invalid as error:
        raise EngineFailure(error.message) from None
    except msgspec.ValidationError as error:
        raise EngineFailure(f"the server's reply is not the protocol's: {error}") from None


def _paired(text: str) -> str:
    """Make characters of surrogates that stand in pairs; others stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _whole(text: str) -> str:
    try:
        codec.check_text(text, what="the server's reply")
    except Invalid as error:
        raise EngineFailure(error.message) from None
    return text
