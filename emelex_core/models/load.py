"""From a resolved reference to a running engine or a tokenizer.

The module owns this invariant: no byte reaches llama.cpp whose SHA-256 was not verified just before, and a file that
changed while it was loaded is thrown away with what was loaded from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from emelex_core.engine.ports import ChatEngine, Message
from emelex_core.errors import ModelUnusable
from emelex_core.models import capabilities, derived, files, memory
from emelex_core.models.capabilities import Capabilities
from emelex_core.models.files import Verified
from emelex_core.models.gguf import GgufHeader, read_header
from emelex_core.models.resolve import ResolvedEndpoint, ResolvedFile, ResolvedModel


class Tokenizer(Protocol):
    """Counts tokens without running a model.

    `exact_tokens` False means that a prompt's count is an upper bound and a text's an estimate.
    """

    @property
    def exact_tokens(self) -> bool:
        """Whether counts are exact."""
        ...

    def count_text(self, text: str) -> int:
        """Tokens of plain text, without template or special tokens."""
        ...

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt as the engine would send it."""
        ...

    def close(self) -> None:
        """Free the tokenizer. A second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class _Closable(Protocol):
    def close(self) -> None: ...


Loaded = TypeVar("Loaded", bound=_Closable)


def load_engine(resolved: ResolvedModel, *, threads: int = 1, context_tokens: int | None = None) -> ChatEngine:
    """Load a model and return its engine; the caller closes it. `threads` does not concern an endpoint.

    `context_tokens` None means what the model or the endpoint's configuration offers, within the engine's default.

    Raises: ModelUnusable when the file is missing, altered, cut or unfit, naming it and both digests, and when it needs
    more memory than is available; EngineFailure when the library gets none; Refused and Storage for derived models.
    """
    if isinstance(resolved, ResolvedEndpoint):
        from emelex_core.engine.openai import EndpointEngine

        return EndpointEngine(resolved.config, context_tokens=context_tokens)
    from emelex_core.engine.llama_cpp import LlamaEngine

    found, header = _weights(resolved, threads)
    memory.require(resolved.reference, header, weights_bytes=found.size, context_tokens=context_tokens)
    return _load_unchanged(
        found,
        lambda weights: LlamaEngine(
            weights.path,
            reference=resolved.reference,
            snapshot_id=resolved.snapshot_id,
            threads=threads,
            context_tokens=context_tokens,
        ),
    )


def load_tokenizer(resolved: ResolvedModel) -> Tokenizer:
    """Load a model's tokenizer alone, without its weights; the caller closes it.

    Raises: ModelUnusable as `load_engine`.
    """
    if isinstance(resolved, ResolvedEndpoint):
        from emelex_core.engine.counting import EndpointTokenizer

        return EndpointTokenizer(resolved.config)
    from emelex_core.engine.llama_cpp import LlamaTokenizer

    return _load_unchanged(_source(resolved)[0], lambda weights: LlamaTokenizer(weights.path))


def evidence(resolved: ResolvedModel) -> Capabilities:
    """Return what a model can do, without loading it: as installed, as its file says, or as configured.

    Raises: ModelUnusable when a built-in model's file cannot be read.
    """
    if isinstance(resolved, ResolvedEndpoint):
        return capabilities.of_endpoint(resolved.config)
    if resolved.capabilities is not None:
        return resolved.capabilities
    header = read_header(resolved.path)
    return capabilities.of_file(header, grammar=True, grammar_evidence=capabilities.TESTED)


def _source(resolved: ResolvedFile) -> tuple[Verified, GgufHeader]:
    """Return the verified source, with a header that its reader has walked within bounds."""
    source = files.verify(resolved.path, resolved.sha256, hint=resolved.hint)
    return source, read_header(source.path)


def _weights(resolved: ResolvedFile, threads: int) -> tuple[Verified, GgufHeader]:
    """Return the verified file to run, the source or its faster copy, and the source's header."""
    source, header = _source(resolved)
    if resolved.derived_directory is None:
        return source, header
    name = source.path.name.partition(".")[0].lower()
    return derived.ensure_q8_0(source, resolved.derived_directory, name=name, threads=threads), header


def _load_unchanged(weights: Verified, load: Callable[[Verified], Loaded]) -> Loaded:
    loaded = load(weights)
    if not weights.unchanged():
        loaded.close()
        raise ModelUnusable(f"{weights.path}: it changed while it was loaded")
    return loaded
