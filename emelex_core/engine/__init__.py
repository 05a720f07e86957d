"""Engines: one port, a llama.cpp engine in this process, and one for servers on the OpenAI protocol.

Each name is imported at its first use, and with an engine's module llama.cpp or httpx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from emelex_core.engine.cancel import CancelToken
    from emelex_core.engine.counting import EndpointTokenizer
    from emelex_core.engine.endpoint import EndpointConfig
    from emelex_core.engine.llama_cpp import LlamaEngine, LlamaTokenizer
    from emelex_core.engine.openai import EndpointEngine
    from emelex_core.engine.ports import (
        ChatEngine,
        EngineInfo,
        FinishReason,
        Generation,
        Message,
        Request,
        Role,
        Sampling,
    )

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
    "CancelToken": "emelex_core.engine.cancel",
    "EndpointConfig": "emelex_core.engine.endpoint",
    "ChatEngine": "emelex_core.engine.ports",
    "EngineInfo": "emelex_core.engine.ports",
    "FinishReason": "emelex_core.engine.ports",
    "Generation": "emelex_core.engine.ports",
    "Message": "emelex_core.engine.ports",
    "Request": "emelex_core.engine.ports",
    "Role": "emelex_core.engine.ports",
    "Sampling": "emelex_core.engine.ports",
    "EndpointEngine": "emelex_core.engine.openai",
    "EndpointTokenizer": "emelex_core.engine.counting",
    "LlamaEngine": "emelex_core.engine.llama_cpp",
    "LlamaTokenizer": "emelex_core.engine.llama_cpp",
}


def __getattr__(name: str) -> object:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
