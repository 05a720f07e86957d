"""Tokens of what a server would read, counted by the server where it can, bounded where it cannot (ADR 0024).

    tokenize = true     the server has llama.cpp's /tokenize and /apply-template: counts are exact
    tokenize = false    it is not asked: counts are what its answers showed (`measured`)
    unset               it is asked once, with a few letters: llama.cpp's form first, then vLLM's

The module owns these invariants:

- Only a definite answer is remembered for good. A server that is down, slow or busy is asked again a little later, and
  until then nothing is called exact.
- What one tokenizer learned of a server, every other one of this process knows: a tokenizer that only plans has no
  generations of its own.
- An image takes the tokens that are configured for it, or a quarter of the context up to `IMAGE_TOKENS`, whoever
  counts.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from emelex_core.codec import Json
from emelex_core.engine import reply, wire
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.measured import Meter
from emelex_core.engine.neutral import neutral
from emelex_core.engine.ports import CancelToken, Message, Request, Role
from emelex_core.engine.server import Server
from emelex_core.errors import EngineFailure, JobFailure, ModelUnusable, PermanentFailure

TOKENIZE_SECONDS: Final = 30.0
ASK_SECONDS: Final = 5.0
"""For a few letters; a server that needs longer is asked again later."""
AGAIN_SECONDS: Final = 30.0
"""How long nobody asks again after no definite answer."""
REMEMBERED_SECONDS: Final = 600.0
"""How long another engine of this process relies on an answer; the server may be replaced meanwhile."""
IMAGE_TOKENS: Final = 4_096
"""As many as the common vision models take for a large picture."""
SERVERS_MAX: Final = 256

_LETTERS: Final = "ask the tokens"
_SAMPLE: Final = (
    "The keeper of the lighthouse wrote down every ship that passed during the night, its course, the weather and the "
    "hour, and in the morning he sent a copy of the page to the harbour office with the first boat. "
) * 4
"""Plain prose: the first measure of a server that has generated nothing yet."""


class Counter(StrEnum):
    """Who counts."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"
    NOBODY = "nobody"


@dataclass(slots=True)
class _Known:
    """What this process knows of one server."""

    meter: Meter = field(default_factory=Meter)
    counter: Counter | None = None
    counter_until: float = 0.0
    ask_after: float = 0.0
    measure_after: float = 0.0


_SERVERS: Final[dict[str, _Known]] = {}
_LOCK: Final = threading.Lock()


def forget_servers() -> None:
    """Forget what this process learned of every server, so that each is asked anew."""
    with _LOCK:
        _SERVERS.clear()


class EndpointTokenizer:
    """Counts tokens for an endpoint, for any number of threads; `exact_tokens` says whether as the model does.

    Where they are not exact, `count_prompt` is an upper bound and `count_text` an estimate (`measured.Meter`).
    """

    def __init__(self, config: EndpointConfig, server: Server | None = None) -> None:
        self._config = config
        self._server = Server(config) if server is None else server
        # An engine's own generations measure; a tokenizer alone has to have one made.
        self._measures = server is None
        self._known = _known(config)
        self._counter = {True: Counter.LLAMA_CPP, False: Counter.NOBODY, None: None}[config.tokenize]

    @property
    def exact_tokens(self) -> bool:
        """Whether counts are exact. It may ask the server, and False may become True when that answers at last."""
        return self.ask() in (Counter.LLAMA_CPP, Counter.VLLM)

    @property
    def known_exact(self) -> bool:
        """Whether counts are known to be exact by now; the server is not asked."""
        return self._counter in (Counter.LLAMA_CPP, Counter.VLLM)

    def ask(self, cancel: CancelToken | None = None) -> Counter:
        """Who counts; where that is not known, the server is asked. Raises: Cancelled."""
        now = time.monotonic()
        if self._counter is None and now < self._known.counter_until:
            self._counter = self._known.counter
        if self._counter is not None:
            return self._counter
        if now < self._known.ask_after:
            return Counter.NOBODY
        self._counter = self._found(cancel or CancelToken())
        if self._counter is None:
            self._known.ask_after = time.monotonic() + AGAIN_SECONDS
            return Counter.NOBODY
        self._known.counter = self._counter
        self._known.counter_until = time.monotonic() + REMEMBERED_SECONDS
        return self._counter

    def count_text(self, text: str) -> int:
        """Tokens of plain text, or about as many. Raises: EngineFailure when the server has to count and does not."""
        sent = neutral(text)
        counter = self.ask()
        if counter is Counter.LLAMA_CPP:
            return self._llama_tokens(sent, template=False)
        if counter is Counter.VLLM:
            return self._vllm_tokens({"prompt": sent, "add_special_tokens": False})
        if self._measures and sent:
            self._measure_once()
        return self._known.meter.text_estimate(sent)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt, or an upper bound. Raises: EngineFailure when the server has to count."""
        images = sum(len(message.images) for message in messages) * self._image_tokens()
        plain = tuple(wire.without_images(message) for message in messages)
        counter = self.ask()
        if counter is Counter.LLAMA_CPP:
            body = {"messages": wire.wire_messages(plain)}
            rendered = self._server.post_root("/apply-template", body, seconds=TOKENIZE_SECONDS)
            return images + self._llama_tokens(reply.rendered_prompt(rendered), template=True)
        if counter is Counter.VLLM:
            return images + self._vllm_tokens({"messages": wire.wire_messages(plain), "add_generation_prompt": True})
        return images + self._known.meter.prompt_bound(plain)

    def observe(self, request: Request, prompt_tokens: int) -> None:
        """Take the server's own count of a prompt that it answered."""
        if not self.known_exact:
            offered = "".join(f"{tool.name}{tool.description}{dict(tool.parameters)}" for tool in request.tools)
            self._known.meter.observe(request.messages, prompt_tokens, beside=offered)

    def close(self) -> None:
        """Close connections. A second call does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _image_tokens(self) -> int:
        configured = self._config.image_tokens
        return min(IMAGE_TOKENS, self._config.context_tokens // 4) if configured is None else configured

    def _found(self, cancel: CancelToken) -> Counter | None:
        """Ask in each form; None when the server gave no definite answer to one of them."""
        forms: tuple[tuple[Counter, dict[str, Json], reply.CountReader], ...] = (
            (Counter.LLAMA_CPP, _llama_form(_LETTERS, template=False), reply.token_count),
            (Counter.VLLM, {"model": self._config.model, "prompt": _LETTERS}, reply.stated_count),
        )
        for counter, body, read in forms:
            answer = self._asked("/tokenize", body, cancel)
            if answer is None:
                return None
            if _sensible(answer, read):
                return counter if counter is Counter.VLLM else self._with_template(cancel)
        return Counter.NOBODY

    def _with_template(self, cancel: CancelToken) -> Counter | None:
        """llama.cpp's counter, if the server shows its template too: without it no prompt is counted exactly."""
        message = Message(role=Role.USER, text=_LETTERS)
        answer = self._asked("/apply-template", {"messages": wire.wire_messages((message,))}, cancel)
        if answer is None:
            return None
        try:
            return Counter.LLAMA_CPP if _LETTERS in reply.rendered_prompt(answer) else Counter.NOBODY
        except EngineFailure:
            return Counter.NOBODY

    def _asked(self, path: str, body: dict[str, Json], cancel: CancelToken) -> bytes | None:
        """The server's answer, empty when it refused for good, None when it gave none this time."""
        seconds = min(ASK_SECONDS, self._config.timeout_seconds)
        try:
            return self._server.post_root(path, body, seconds=seconds, cancel=cancel)
        except (ModelUnusable, PermanentFailure):
            return b""
        except EngineFailure:
            return None

    def _llama_tokens(self, text: str, *, template: bool) -> int:
        body = _llama_form(text, template=template)
        return reply.token_count(self._server.post_root("/tokenize", body, seconds=TOKENIZE_SECONDS))

    def _vllm_tokens(self, body: dict[str, Json]) -> int:
        asked = {"model": self._config.model, **body}
        return reply.stated_count(self._server.post_root("/tokenize", asked, seconds=TOKENIZE_SECONDS))

    def _measure_once(self) -> None:
        """Have one token generated behind some prose, unless this process has measured the server already."""
        now = time.monotonic()
        with _LOCK:
            if self._known.meter.calibrated or now < self._known.measure_after:
                return
            self._known.measure_after = now + AGAIN_SECONDS
        request = Request(messages=(Message(role=Role.USER, text=_SAMPLE),), output_tokens_max=1)
        try:
            body = wire.body_of(request, self._config)
            answer = self._server.post("/chat/completions", body, CancelToken(), seconds=TOKENIZE_SECONDS)
            done = reply.completion(answer)
        except JobFailure:
            return
        self._known.measure_after = math.inf
        if done.prompt_tokens is not None:
            self._known.meter.observe(request.messages, done.prompt_tokens)


def _known(config: EndpointConfig) -> _Known:
    with _LOCK:
        if len(_SERVERS) >= SERVERS_MAX:
            _SERVERS.pop(next(iter(_SERVERS)))
        return _SERVERS.setdefault(config.snapshot_id, _Known())


def _llama_form(text: str, *, template: bool) -> dict[str, Json]:
    """A text as llama.cpp's `/tokenize` takes it; one that a template rendered holds control tokens."""
    return {"content": text, "add_special": template, "parse_special": template}


def _sensible(answer: bytes, read: reply.CountReader) -> bool:
    """Whether an answer counts a few letters as a tokenizer could."""
    try:
        return 0 < read(answer) <= len(_LETTERS)
    except EngineFailure:
        return False
