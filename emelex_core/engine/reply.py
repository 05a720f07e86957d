"""What a chat server sent, checked. Servers are foreign: a field is taken only in the shape that the protocol gives it.

A reply that is not the protocol is an EngineFailure, because servers behind gateways send odd things for a while and
recover; a refusal that repeating cannot change is permanent. Of a server's own words only those of a refusal enter a
message: a bounded part, in one printable line, without the key that was sent.

Only a reply that says how it ended is one. Calls of a reply that was cut or filtered are nobody's wish.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from emelex_core import codec, limits
from emelex_core.codec import Json
from emelex_core.engine.ports import FinishReason, ToolUse
from emelex_core.errors import EngineFailure, Invalid, JobFailure, ModelUnusable, OutputRejected, PermanentFailure

REPLY_BYTES_MAX: Final = 4 * limits.MIB
"""More than any bound on output tokens can fill."""

ERROR_CHARACTERS_MAX: Final = 300
"""What is told of a server's error."""

_ERROR_BYTES_MAX: Final = 16 * limits.KIB
_FILTERED: Final = "content_filter"
_FINISH: Final = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
}
_RETRYABLE: Final = frozenset({408, 409, 425, 429})
_UNUSABLE: Final = frozenset({401, 403, 404, 405, 501})
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Any = None
    error: Any = None


class Usage(msgspec.Struct):
    """Token counts, None where the server gives none."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    completion_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _Rendered(msgspec.Struct):
    prompt: str


class _Tokenized(msgspec.Struct):
    tokens: list[Any]


class _Counted(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]


class _Refusal(msgspec.Struct):
    error: Any = None


class _Error(msgspec.Struct):
    type: Any = None
    code: Any = None


class _Words(msgspec.Struct):
    error: Any = None
    message: Any = None
    detail: Any = None


Shape = TypeVar("Shape", bound=msgspec.Struct)
CountReader: TypeAlias = Callable[[bytes], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One chat completion. Token counts are the server's own, None where it gives none.

    `calls` are those that have the protocol's shape; a finish reason of `tool_calls` without any is none of them.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int | None
    output_tokens: int | None
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()


def completion(data: bytes) -> Completion:
    """Read a chat completion.

    Raises: EngineFailure for anything that is not one, a finish reason that is not the protocol's included;
    OutputRejected for one that a filter stopped.
    """
    reply = _read(data, _Reply)
    if reply.error is not None:
        raise EngineFailure(f"the server answered with an error{codes(reply.error)}")
    if not reply.choices:
        raise EngineFailure("the server's reply holds no message")
    choice = reply.choices[0]
    called = choice.message.tool_calls or choice.message.function_call
    reason = finish_reason(choice.finish_reason, called=bool(called))
    counts = usage(reply.usage)
    return Completion(
        text=choice.message.content or "",
        reasoning=choice.message.reasoning_content or "",
        calls=_calls(choice.message.tool_calls),
        finish_reason=reason,
        prompt_tokens=counts.prompt_tokens,
        output_tokens=counts.completion_tokens,
    )


def finish_reason(word: str | None, *, called: bool) -> FinishReason:
    """Read a finish reason. Many servers say `stop` behind calls, which end a reply as well as words.

    Raises: EngineFailure for one that is not the protocol's, and for none; OutputRejected for a filter's.
    """
    if word == _FILTERED:
        raise OutputRejected(f"the server's filter stopped the answer ({_FILTERED}); nothing of it was taken")
    reason = _FINISH.get(word or "")
    if reason is None:
        raise EngineFailure("the server's reply broke off: it does not say that the generation finished")
    return FinishReason.TOOL_CALLS if called and reason is FinishReason.STOP else reason


def usage(found: Json) -> Usage:
    """Return the server's counts. They are only reported, so odd ones are none rather than a failure."""
    try:
        return msgspec.convert(found, Usage)
    except msgspec.ValidationError:
        return Usage()


def codes(error: Json) -> str:
    """Return the short codes of an error object, such as `invalid_request_error`, in brackets; empty without any."""
    try:
        found = msgspec.convert(error, _Error)
    except msgspec.ValidationError:
        return ""
    short = [code for code in (found.type, found.code) if isinstance(code, str) and _CODE.match(code)]
    return f" ({', '.join(short)})" if short else ""


def rendered_prompt(data: bytes) -> str:
    """Read llama.cpp's answer to `/apply-template`. Raises: EngineFailure."""
    return _read(data, _Rendered).prompt


def token_count(data: bytes) -> int:
    """Read llama.cpp's answer to `/tokenize`: how many tokens it lists. Raises: EngineFailure."""
    return len(_read(data, _Tokenized).tokens)


def stated_count(data: bytes) -> int:
    """Read vLLM's answer to `/tokenize`, which states the count. Raises: EngineFailure."""
    return _read(data, _Counted).count


def refusal(status: int, data: bytes, *, where: str, secret: str | None = None) -> JobFailure:
    """Return the failure that an HTTP status other than 200 is. `where` names endpoint and address.

    `secret` is the key that was sent, which a server may repeat.
    """
    try:
        short = codes(_read(data, _Refusal).error)
    except EngineFailure:
        short = ""
    words = f"{where} answered {status}{short}{_told(_error_body(data), secret)}"
    if status in _UNUSABLE or 300 <= status < 400:
        return ModelUnusable(words, hint="check base_url, model and api_key_env of the endpoint")
    if status >= 500 or status in _RETRYABLE:
        return EngineFailure(words)
    if status >= 400:
        return PermanentFailure(words, hint="check the endpoint's model and context_tokens against the server's")
    return EngineFailure(words)


def _told(error: Json, secret: str | None) -> str:
    """Return the words of an error object behind a colon, bounded and in one printable line; empty without any."""
    words = _words(error)
    if secret:
        words = words.replace(secret, "[key]")
    line = "".join(character if character.isprintable() else " " for character in words)
    line = " ".join(line.split())
    cut = line if len(line) <= ERROR_CHARACTERS_MAX else f"{line[: ERROR_CHARACTERS_MAX - 1]}…"
    return f": {cut}" if cut else ""


def _words(error: Json) -> str:
    """The words of an error, wherever a server of some kind puts them."""
    if isinstance(error, str):
        return error
    try:
        found = msgspec.convert(error, _Words)
    except msgspec.ValidationError:
        return ""
    return _words(found.error or found.message or found.detail)


def _error_body(data: bytes) -> Json:
    """A refusal's body as JSON, or as text where it is none."""
    try:
        return codec.parse_strict(data, what="the server's error", bytes_max=REPLY_BYTES_MAX)
    except Invalid:
        return data[:_ERROR_BYTES_MAX].decode("utf-8", "replace")


def _read(data: bytes, shape: type[Shape]) -> Shape:
    """Parse strictly, then check the fields that matter; unknown ones are let be, as the protocol grows."""
    try:
        return msgspec.convert(codec.parse_strict(data, what="the server's reply", bytes_max=REPLY_BYTES_MAX), shape)
    except Invalid as error:
        raise EngineFailure(error.message) from None
    except msgspec.ValidationError as error:
        raise EngineFailure(f"the server's reply is not the protocol's: {error}") from None


def _calls(found: Json) -> tuple[ToolUse, ...]:
    """The calls of a message. Those of another shape are none: whoever asked for tools sees the finish reason."""
    try:
        calls = msgspec.convert(found or [], list[_Call])
    except msgspec.ValidationError:
        return ()
    return tuple(ToolUse(call_id=call.id, name=call.function.name, arguments=call.function.arguments) for call in calls)
