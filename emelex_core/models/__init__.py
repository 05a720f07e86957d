"""Models: what a reference names, verified files, and loading. Importing this loads neither llama.cpp nor a client."""

from __future__ import annotations

from emelex_core.models.load import Tokenizer, load_engine, load_tokenizer
from emelex_core.models.resolve import (
    BUILTIN_REFERENCE,
    ResolvedEndpoint,
    ResolvedFile,
    ResolvedModel,
    resolve_model,
)

__all__ = [
    "BUILTIN_REFERENCE",
    "ResolvedEndpoint",
    "ResolvedFile",
    "ResolvedModel",
    "Tokenizer",
    "load_engine",
    "load_tokenizer",
    "resolve_model",
]
