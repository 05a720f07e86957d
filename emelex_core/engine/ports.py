"""What the workers and the agent need of a model, whichever engine runs it.

All engines pass one conformance suite (tests/contract/test_engines.py). The module owns these invariants:

- Message text is data: it can never become control tokens of a chat template (behaviour 185).
- `count_*` are exact where the model's tokenizer can be had, and `exact_tokens` says so (behaviour 176). Elsewhere
  `count_prompt` is an upper bound and `count_text` an estimate, on which nothing rests that must fit (ADR 0024).
- `generate` either returns a Generation or raises a member of the error tree; it never returns half a result silently:
  `finish_reason` tells how it ended.
- Cancellation works during prompt evaluation as well as during decoding, and raises Cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self

from emelex_core.engine.cancel import CancelToken

__all__ = [
    "CancelToken",
    "ChatEngine",
    "EngineInfo",
    "FinishReason",
    "Generation",
    "Image",
    "Message",
    "Request",
    "Role",
    "Sampling",
    "ToolDialect",
    "ToolSpec",
    "ToolUse",
]


class Role(StrEnum):
    """Who speaks, to the model. `tool` is for engines whose dialect is native."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolDialect(StrEnum):
    """How a model is offered tools: by the server itself, in tags that its template knows, or as plain JSON."""

    NATIVE = "native"
    TAGS = "tags"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a native dialect offers it. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call in a native dialect. `arguments` is the text that the model wrote, whatever it is."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image for an engine that takes them: its sniffed media type and its bytes."""

    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a prompt; `text` is data and is never parsed for control tokens.

    `calls` are an assistant's in a native dialect, `answers` is the call that a tool's message answers, and `images`
    are for engines that take them.
    """

    role: Role
    text: str
    calls: tuple[ToolUse, ...] = ()
    answers: str | None = None
    images: tuple[Image, ...] = ()


class FinishReason(StrEnum):
    """How a generation ended: `stop` by itself, `length` at a bound, `tool_calls` with proposals, asked for or not."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are picked. Temperature 0 is greedy; `seed` matters above it."""

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation: a prompt, a bound in tokens, and a grammar (GBNF) that the whole text must match, or None.

    `stop` are texts at which generation ends by itself; they are not part of the result. `tools` are offered by an
    engine whose dialect is native. `tell` hears the text while it is written, on a thread of the engine's: its pieces
    join to the text of the result, unless the generation fails.
    """

    messages: tuple[Message, ...]
    output_tokens_max: int
    grammar: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    tools: tuple[ToolSpec, ...] = ()
    tell: Callable[[str], None] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a model wrote. Tokens are the engine's own count; `seconds` is wall time inside the engine.

    `reasoning` is what it thought aloud before the text, which a grammar that lets words pass does not prevent; `calls`
    are proposals in a native dialect, where tools were offered.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    seconds: float
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What ran: enough to repeat it. `snapshot_id` pins the exact weights, or the endpoint and its model name.

    `dialect` is how tools are offered, `grammar` whether a request's grammar holds, `images` whether it takes some.
    """

    reference: str
    snapshot_id: str
    engine: str
    context_tokens: int
    exact_tokens: bool
    dialect: ToolDialect = ToolDialect.JSON
    grammar: bool = True
    images: bool = False


class ChatEngine(Protocol):
    """A loaded model. One thread uses it at a time."""

    @property
    def info(self) -> EngineInfo:
        """What this engine runs."""
        ...

    def count_text(self, text: str) -> int:
        """Tokens of plain text, without template or special tokens."""
        ...

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt as `generate` would send it."""
        ...

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Run one generation.

        Raises: Cancelled; PermanentFailure when prompt and bound exceed the context; EngineFailure when the model, the
        native library or the server fails.
        """
        ...

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
