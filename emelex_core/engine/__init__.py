"""Engines: one port, a llama.cpp engine in this process, and one for servers on the OpenAI protocol.

Importing this loads the port only; an engine's module, and with it llama.cpp or httpx, is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.ports import (
    CancelToken,
    ChatEngine,
    EngineInfo,
    FinishReason,
    Generation,
    Message,
    Request,
    Role,
    Sampling,
)

if TYPE_CHECKING:
    from emelex_core.engine.llama_cpp import LlamaEngine, LlamaTokenizer
    from emelex_core.engine.openai import EndpointEngine, EndpointTokenizer

__all__ = [
    "CancelToken",
    "ChatEngine",
    "EndpointConfig",
    "EndpointEngine",
    "EndpointTokenizer",
    "EngineInfo",
    "FinishReason",
    "Generation",
    "LlamaEngine",
    "LlamaTokenizer",
    "Message",
    "Request",
    "Role",
    "Sampling",
]

_LATE: Final = {
    "EndpointEngine": "emelex_core.engine.openai",
    "EndpointTokenizer": "emelex_core.engine.openai",
    "LlamaEngine": "emelex_core.engine.llama_cpp",
    "LlamaTokenizer": "emelex_core.engine.llama_cpp",
}


def __getattr__(name: str) -> object:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
