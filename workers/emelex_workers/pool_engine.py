"""One worker's model: loaded once, kept for all its jobs, lent as the tokenizer that planning needs.

What the model does is written on the worker's slate, so that a death inside it can be told from one beside it.
"""

from __future__ import annotations

from typing import Self

from emelex_core.engine.ports import CancelToken, ChatEngine, EngineInfo, Generation, Message, Request
from emelex_core.models.load import Tokenizer
from emelex_workers.engines import EngineSource
from emelex_workers.slate import Phase, Slate


class SlatedEngine:
    """A ChatEngine that notes each generation. Leaving its block does not free the model: `close` does."""

    def __init__(self, engine: ChatEngine, slate: Slate) -> None:
        self._engine = engine
        self._slate = slate

    @property
    def info(self) -> EngineInfo:
        """What this engine runs."""
        return self._engine.info

    @property
    def exact_tokens(self) -> bool:
        """Whether counts are exact."""
        return self._engine.info.exact_tokens

    def count_text(self, text: str) -> int:
        """Tokens of plain text, without template or special tokens."""
        return self._engine.count_text(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt as `generate` would send it."""
        return self._engine.count_prompt(messages)

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Run one generation (`ChatEngine.generate`)."""
        self._slate.begin_call()
        try:
            return self._engine.generate(request, cancel)
        finally:
            self._slate.enter(Phase.BETWEEN)

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class KeptEngines:
    """An EngineSource whose model, once loaded, stays: for jobs, and as planning's tokenizer."""

    def __init__(self, source: EngineSource, slate: Slate) -> None:
        self._source = source
        self._slate = slate
        self._engine: SlatedEngine | None = None
        self._context_tokens: int | None = None

    @property
    def reference(self) -> str:
        """The model's reference, as configured."""
        return self._source.reference

    @property
    def loaded(self) -> SlatedEngine | None:
        """The model, if there was a job for it yet."""
        return self._engine

    def context_tokens(self) -> int:
        """The model's context window, asked for once."""
        if self._context_tokens is None:
            self._context_tokens = self._source.context_tokens()
        return self._context_tokens

    def tokenizer(self) -> Tokenizer:
        """The loaded model's tokenizer, or the tokenizer alone while no model was needed."""
        return self._source.tokenizer() if self._engine is None else self._engine

    def load(self) -> SlatedEngine:
        """The model, loaded at the first call."""
        if self._engine is None:
            self._slate.enter(Phase.LOADING)
            self._engine = SlatedEngine(self._source.load(), self._slate)
        return self._engine

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
