"""The engine on a server that speaks the OpenAI chat-completions protocol: llama.cpp's, vLLM, Ollama, a gateway.

The module owns these invariants:

- What a server sends is hostile until parsed (`reply.py`): size, JSON, shape and finish reason are checked.
- Message text cannot become control tokens: such servers render messages into one text and tokenise that with special
  parsing on, so `neutral` breaks what looks like a control token before it is sent (behaviour 185).
- Waiting, keys, proxies and repeats are `server.py`'s.
"""

from __future__ import annotations

import time
from typing import Final, Self

from emelex_core.codec import Json
from emelex_core.engine import reply
from emelex_core.engine.checks import check_fits, check_request
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.neutral import neutral
from emelex_core.engine.ports import CancelToken, EngineInfo, Generation, Message, Request
from emelex_core.engine.reasoning import without_reasoning
from emelex_core.engine.server import Server
from emelex_core.errors import Cancelled, ModelUnusable

TOKENIZE_SECONDS: Final = 30.0

_TEMPLATE_TOKENS: Final = 64
"""Room for a system message that a template adds by itself, and for the opening of the answer."""
_MESSAGE_TOKENS: Final = 16
"""Room for one message's delimiters and role."""
_SEED_SPAN: Final = 2**31
"""Servers hold a seed in 32 bits, some of them signed."""


class EndpointTokenizer:
    """Counts tokens for an endpoint. One thread uses it at a time.

    With `tokenize` in the configuration the server's own tokenizer counts exactly. Otherwise a count is the number of
    UTF-8 bytes, which no byte-level tokenizer exceeds: three to four times too large on English, never too small.
    """

    def __init__(self, config: EndpointConfig, server: Server | None = None) -> None:
        self._config = config
        self._server = Server(config) if server is None else server

    @property
    def exact_tokens(self) -> bool:
        """Whether counts are exact."""
        return self._config.tokenize

    def count_text(self, text: str) -> int:
        """Tokens of plain text. Raises: EngineFailure when the server has to count and does not."""
        if not self._config.tokenize:
            return len(neutral(text).encode())
        return self._tokenized(neutral(text), template=False)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt. Raises: EngineFailure when the server has to count and does not."""
        if not self._config.tokenize:
            return _TEMPLATE_TOKENS + sum(_MESSAGE_TOKENS + self.count_text(message.text) for message in messages)
        rendered = self._server.post_root("/apply-template", {"messages": _wire(messages)}, seconds=TOKENIZE_SECONDS)
        return self._tokenized(reply.rendered_prompt(rendered), template=True)

    def close(self) -> None:
        """Close connections. A second call does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _tokenized(self, text: str, *, template: bool) -> int:
        body = {"content": text, "add_special": template, "parse_special": template}
        return reply.token_count(self._server.post_root("/tokenize", body, seconds=TOKENIZE_SECONDS))


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
            exact_tokens=config.tokenize,
        )

    @property
    def info(self) -> EngineInfo:
        """What this engine runs."""
        return self._info

    def count_text(self, text: str) -> int:
        """Tokens of plain text, or their upper bound (`EndpointTokenizer`)."""
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
        if cancel.cancelled:
            raise Cancelled("the generation was cancelled before it began")
        prompt_tokens = self.count_prompt(request.messages)
        check_fits(
            prompt_tokens=prompt_tokens,
            output_tokens_max=request.output_tokens_max,
            context_tokens=self._info.context_tokens,
        )
        started = time.monotonic()
        answer = self._server.post("/chat/completions", self._body(request), cancel)
        completion = reply.completion(answer)
        text = completion.text
        return Generation(
            text=text if request.grammar is not None and self._config.grammar else without_reasoning(text),
            finish_reason=completion.finish_reason,
            prompt_tokens=prompt_tokens if completion.prompt_tokens is None else completion.prompt_tokens,
            output_tokens=self.count_text(text) if completion.output_tokens is None else completion.output_tokens,
            seconds=time.monotonic() - started,
        )

    def close(self) -> None:
        """Close connections. A second call does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._config.model,
            "messages": _wire(request.messages),
            "max_tokens": request.output_tokens_max,
            "temperature": request.sampling.temperature,
            "seed": request.sampling.seed % _SEED_SPAN,
            "stream": False,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.grammar is not None and self._config.grammar:
            body["grammar"] = request.grammar
        return body


def _wire(messages: tuple[Message, ...]) -> list[Json]:
    """Return messages in the protocol's form."""
    return [{"role": message.role.value, "content": neutral(message.text)} for message in messages]
