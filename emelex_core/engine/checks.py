"""What every engine checks of a request before any inference."""

from __future__ import annotations

from typing import Final

from emelex_core import codec
from emelex_core.engine.ports import Request, Role
from emelex_core.errors import Invalid, PermanentFailure

TEMPERATURE_MAX: Final = 100.0
"""Every token is about as likely as any other long before; beyond 32-bit numbers the draw has no meaning at all."""


def check_request(request: Request) -> None:
    """Raise Invalid for a request that no engine can run: no message, no bound, an empty stop text, no real number."""
    if not request.messages:
        raise Invalid("a request needs at least one message")
    if request.output_tokens_max < 1:
        raise Invalid(f"a bound of {request.output_tokens_max} output tokens; at least one is needed")
    temperature = request.sampling.temperature
    if not 0 <= temperature <= TEMPERATURE_MAX:
        raise Invalid(f"a temperature of {temperature} is not between 0 and {TEMPERATURE_MAX:g}")
    if request.grammar is not None:
        codec.check_text(request.grammar, what="grammar")
    for stop in request.stop:
        if not codec.check_text(stop, what="stop text"):
            raise Invalid("an empty stop text would stop every generation at once")


def check_plain(request: Request) -> None:
    """Raise Invalid for what only a server with a dialect of its own takes: tools, their messages, and images."""
    if request.tools or any(
        message.role is Role.TOOL or message.calls or message.answers is not None or message.images
        for message in request.messages
    ):
        raise Invalid("this engine takes text only: tools and images have to be put into words first")


def check_fits(*, prompt_tokens: int, output_tokens_max: int, context_tokens: int) -> None:
    """Raise PermanentFailure when a prompt and its bound exceed the context (behaviour 165)."""
    if prompt_tokens + output_tokens_max > context_tokens:
        raise PermanentFailure(
            f"a prompt of {prompt_tokens} tokens and a bound of {output_tokens_max} exceed "
            f"the model's context of {context_tokens} tokens"
        )
