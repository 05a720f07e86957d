"""The engine on a server that speaks the OpenAI chat-completions protocol: llama.cpp's, vLLM, Ollama, a gateway.

The module owns these invariants:

- What a server sends is hostile until parsed (`reply.py`): size, JSON, shape and finish reason are checked.
- Message text cannot become control tokens: such servers render messages into one text and tokenise that with special
  parsing on, so `neutral` breaks what looks like a control token before it is sent (behaviour 185).
- A prompt is sent only when its exact count or its upper bound fits; an estimate does not decide that (ADR 0024).
- Waiting, keys, proxies and repeats are `server.py`'s; counting is `counting.py`'s.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Final, Self

from emelex_core.engine import reply, wire
from emelex_core.engine.checks import check_fits, check_request
from emelex_core.engine.counting import EndpointTokenizer
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.ports import CancelToken, EngineInfo, Generation, Message, Request, Role, ToolDialect
from emelex_core.engine.reasoning import split_reasoning
from emelex_core.engine.reply import Completion
from emelex_core.engine.server import Server
from emelex_core.engine.sse import EventStream, OutputFull
from emelex_core.engine.streaming import TextStream
from emelex_core.errors import Cancelled, Invalid, ModelUnusable

STREAM_BYTES_MAX: Final = 16 * reply.REPLY_BYTES_MAX
"""A reply in pieces repeats its frame around each of them."""
TOKEN_BYTES_MAX: Final = 64
"""A server that sends more than this for each token that it was allowed does not hold to its bound: ours ends it."""


class EndpointEngine:
    """A model on a server (`ChatEngine`). `context_tokens` may only narrow what the configuration states."""

    def __init__(self, config: EndpointConfig, *, context_tokens: int | None = None) -> None:
        if context_tokens is not None and not 1 <= context_tokens <= config.context_tokens:
            raise ModelUnusable(
                f"{config.reference}: a context of {context_tokens} tokens was asked for, "
                f"and {config.context_tokens} are configured"
            )
        self._config = config
        self._server = Server(config)
        self._tokenizer = EndpointTokenizer(config, self._server)
        self._info = EngineInfo(
            reference=config.reference,
            snapshot_id=config.snapshot_id,
            engine=f"openai chat completions at {config.base_url}",
            context_tokens=config.context_tokens if context_tokens is None else context_tokens,
            exact_tokens=config.tokenize is True,
            dialect=ToolDialect.NATIVE if config.tools else ToolDialect.JSON,
            grammar=config.grammar,
            images=config.images,
        )

    @property
    def info(self) -> EngineInfo:
        """What this engine runs. `exact_tokens` is what is known by now: the first count asks the server."""
        exact = self._tokenizer.known_exact
        return self._info if exact is self._info.exact_tokens else replace(self._info, exact_tokens=exact)

    def count_text(self, text: str) -> int:
        """Tokens of plain text, or about as many (`EndpointTokenizer`)."""
        return self._tokenizer.count_text(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt, or their upper bound (`EndpointTokenizer`)."""
        return self._tokenizer.count_prompt(messages)

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Run one generation (`ChatEngine.generate`). A prompt that is only bounded is refused by its bound.

        Raises: Cancelled; Invalid for a request that no engine can run; PermanentFailure when prompt and bound exceed
        the context, or the server refuses the request; ModelUnusable when it refuses key, model or address;
        EngineFailure when it is down, slow, failing, or sends what is not the protocol.
        """
        check_request(request)
        self._check_offered(request)
        if cancel.cancelled:
            raise Cancelled("the generation was cancelled before it began")
        self._tokenizer.ask(cancel)
        prompt_tokens = self.count_prompt(request.messages)
        check_fits(
            prompt_tokens=prompt_tokens,
            output_tokens_max=request.output_tokens_max,
            context_tokens=self._info.context_tokens,
        )
        started = time.monotonic()
        completion, reasoning, text = self._complete(request, cancel)
        if completion.prompt_tokens is not None:
            self._tokenizer.observe(request, completion.prompt_tokens)
        return Generation(
            text=text,
            reasoning=completion.reasoning or reasoning,
            calls=completion.calls if request.tools else (),
            finish_reason=completion.finish_reason,
            prompt_tokens=prompt_tokens if completion.prompt_tokens is None else completion.prompt_tokens,
            output_tokens=self.count_text(completion.text)
            if completion.output_tokens is None
            else completion.output_tokens,
            seconds=time.monotonic() - started,
        )

    def close(self) -> None:
        """Close connections. A second call does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_offered(self, request: Request) -> None:
        """Raise Invalid for tools and images that the configuration does not promise."""
        talks = request.tools or any(item.role is Role.TOOL or item.calls for item in request.messages)
        if talks and not self._config.tools:
            raise Invalid(f"{self._config.reference} is not configured to take tools")
        if any(message.images for message in request.messages) and not self._config.images:
            raise Invalid(f"{self._config.reference} is not configured to take images")

    def _complete(self, request: Request, cancel: CancelToken) -> tuple[Completion, str, str]:
        """Ask the server; return its completion, the reasoning that opens its text, and the rest of the text."""
        body = wire.body_of(request, self._config)
        if request.tell is None:
            completion = reply.completion(self._server.post("/chat/completions", body, cancel))
            stream = None
        else:
            stream = TextStream(request.tell)
            output_bytes_max = min(request.output_tokens_max * TOKEN_BYTES_MAX, reply.REPLY_BYTES_MAX)
            events = EventStream(lambda piece: stream.add(piece.encode()), output_bytes_max=output_bytes_max)
            with suppress(OutputFull):
                self._server.post("/chat/completions", body, cancel, hear=events.add, bytes_max=STREAM_BYTES_MAX)
            completion = events.completion()
        # Under a grammar as well: one that lets words pass lets thoughts pass, too.
        reasoning, text = split_reasoning(completion.text)
        if stream is not None:
            stream.close(text)
        return completion, reasoning, text
