"""One worker's model: loaded once, kept for all its jobs, lent as the tokenizer that planning needs.

What the model does for a job is written at the job's place on the worker's slate, so that a death inside it can be told
from one beside it.
"""

from __future__ import annotations

from typing import Self

from emelex_core.engine.ports import CancelToken, ChatEngine, EngineInfo, Generation, Message, Request
from emelex_core.models.load import Tokenizer
from emelex_workers.engines import EngineSource
from emelex_workers.pool.slate import Phase, Place, Slate


class LentEngine:
    """A worker's model for one job, noting each generation; without a place, for planning. Closing it frees nothing."""

    def __init__(self, engine: ChatEngine, place: Place | None) -> None:
        self._engine = engine
        self._place = place

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
        if self._place is None:
            return self._engine.generate(request, cancel)
        self._place.begin_call()
        try:
            return self._engine.generate(request, cancel)
        finally:
            self._place.end_call()

    def close(self) -> None:
        """Do nothing: the worker closes the model."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class KeptEngines:
    """An EngineSource whose model, once loaded, stays: for jobs, and as planning's tokenizer."""

    def __init__(self, source: EngineSource, slate: Slate) -> None:
        self._source = source
        self._slate = slate
        self._engine: ChatEngine | None = None
        self._context_tokens: int | None = None

    @property
    def reference(self) -> str:
        """The model's reference, as configured."""
        return self._source.reference

    @property
    def is_loaded(self) -> bool:
        """Whether there was a job for the model yet."""
        return self._engine is not None

    def context_tokens(self) -> int:
        """The model's context window, asked for once."""
        if self._context_tokens is None:
            self._context_tokens = self._source.context_tokens()
        return self._context_tokens

    def tokenizer(self) -> Tokenizer:
        """The loaded model's tokenizer, or the tokenizer alone while no model was needed."""
        return self._source.tokenizer() if self._engine is None else LentEngine(self._engine, None)

    def load(self) -> ChatEngine:
        """The model, loaded at the first call."""
        if self._engine is None:
            self._slate.enter(Phase.LOADING)
            self._engine = self._source.load()
            self._slate.enter(Phase.WAITING)
        return self._engine

    def lent(self, place: Place) -> LentEngine:
        """The model for the job that stands at a place of the slate. Raises: as `load`."""
        return LentEngine(self.load(), place)

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
