"""Models: what a reference names, verified files, and loading. Importing this loads neither llama.cpp nor a client."""

from __future__ import annotations

from emelex_core.models.guard import MemorySnapshotReferenceGuard
from emelex_core.models.load import Tokenizer, load_engine, load_tokenizer
from emelex_core.models.manager import ModelManager
from emelex_core.models.records import InstalledModel, ModelKind
from emelex_core.models.resolve import (
    BUILTIN_REFERENCE,
    ResolvedEndpoint,
    ResolvedFile,
    ResolvedModel,
    resolve_model,
)

__all__ = [
    "BUILTIN_REFERENCE",
    "InstalledModel",
    "MemorySnapshotReferenceGuard",
    "ModelKind",
    "ModelManager",
    "ResolvedEndpoint",
    "ResolvedFile",
    "ResolvedModel",
    "Tokenizer",
    "load_engine",
    "load_tokenizer",
    "resolve_model",
]
