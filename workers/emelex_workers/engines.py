"""Where a drain gets its model: resolved late, loaded only when there is work (behaviour 163).

Nothing here imports llama.cpp or httpx before a model is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from emelex_core.config import Config
    from emelex_core.engine.endpoint import EndpointConfig
    from emelex_core.engine.ports import ChatEngine
    from emelex_core.home import Home
    from emelex_core.models.capabilities import Capabilities
    from emelex_core.models.load import Tokenizer
    from emelex_core.models.resolve import ResolvedModel

CONTEXT_TOKENS_UNSTATED: Final = 4_096
"""Taken for a model file that does not state its context."""


class EngineSource(Protocol):
    """One model, not loaded yet. All methods raise ModelUnusable, NotFound or UsageError as loading does."""

    @property
    def reference(self) -> str:
        """The model's reference, as configured."""
        ...

    def context_tokens(self) -> int:
        """The model's context window, which compaction is measured against, without loading the model."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer alone; the caller closes it."""
        ...

    def load(self) -> ChatEngine:
        """Load the model; the caller closes it."""
        ...


@dataclass(slots=True, kw_only=True)
class ConfiguredEngines:
    """An EngineSource over references, files and endpoints."""

    reference: str
    models_directory: Path
    endpoints: Mapping[str, EndpointConfig]
    threads: int
    _found: tuple[ResolvedModel, Capabilities] | None = field(default=None)

    def context_tokens(self) -> int:
        """What the model was trained for; the engine's default window where the file does not say.

        A worker's engine may open a smaller window to save memory: it folds, and needs no whole Session at once.
        """
        _, able = self._fit()
        return able.context_tokens or CONTEXT_TOKENS_UNSTATED

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer alone; the caller closes it."""
        from emelex_core.models.load import load_tokenizer

        return load_tokenizer(self._fit()[0])

    def load(self) -> ChatEngine:
        """Load the model; the caller closes it."""
        from emelex_core.models.load import load_engine

        return load_engine(self._fit()[0], threads=self.threads)

    def _fit(self) -> tuple[ResolvedModel, Capabilities]:
        """The model that the reference names, and what it can do; one that cannot do the work is refused."""
        if self._found is None:
            from emelex_core.models.load import evidence
            from emelex_core.models.resolve import resolve_model
            from emelex_workers.fitness import require_fit

            resolved = resolve_model(self.reference, models_dir=self.models_directory, endpoints=self.endpoints)
            able = evidence(resolved)
            require_fit(self.reference, able)
            self._found = resolved, able
        return self._found


def configured_engines(
    config: Config, home: Home, *, model: str | None = None, threads: int | None = None
) -> ConfiguredEngines:
    """The model of a configuration, or the explicitly named one. Nothing is resolved or loaded yet."""
    return ConfiguredEngines(
        reference=model or config.models.default,
        models_directory=home.models,
        endpoints=config.models.endpoint,
        threads=threads or config.worker.threads,
    )
