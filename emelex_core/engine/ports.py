"""What the workers and the agent need of a model, whichever engine runs it.

All engines pass one conformance suite (tests/contract/test_engines.py). The module owns these invariants:

- Message text is data: it can never become control tokens of a chat template (behaviour 185).
- `count_*` are exact for engines that hold their tokenizer; an endpoint says so with `exact_tokens` (behaviour 176).
- `generate` either returns a Generation or raises a member of the error tree; it never returns half a result silently:
  `finish_reason` tells how it ended.
- Cancellation works during prompt evaluation as well as during decoding, and raises Cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, Self

from emelex_core.engine.cancel import CancelToken

__all__ = [
    "CancelToken",
    "ChatEngine",
    "EngineInfo",
    "FinishReason",
    "Generation",
    "Message",
    "Request",
    "Role",
    "Sampling",
]


class Role(StrEnum):
    """Who speaks, to the model."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a prompt; `text` is data and is never parsed for control tokens."""

    role: Role
    text: str


class FinishReason(StrEnum):
    """How a generation ended: `stop` by itself, `length` at a bound, `tool_calls` with a proposal nobody asked for."""

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

    `stop` are texts at which generation ends by itself; they are not part of the result.
    """

    messages: tuple[Message, ...]
    output_tokens_max: int
    grammar: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a model wrote. Tokens are the engine's own count; `seconds` is wall time inside the engine."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What ran: enough to repeat it. `snapshot_id` pins the exact weights, or the endpoint and its model name."""

    reference: str
    snapshot_id: str
    engine: str
    context_tokens: int
    exact_tokens: bool


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
