"""What a model can do, as evidence: read from its file, probed, or configured; never assumed.

Each capability is True, False or None for not known, and `evidence` says for each where the answer comes from.
"""

from __future__ import annotations

from typing import Final

import msgspec

from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.models.gguf import GgufHeader

CHATML: Final = "chatml"
SERVER: Final = "server"
"""The server applies its own template; what it is cannot be read."""
NO_TEMPLATE: Final = "none"
OTHER: Final = "other"

TESTED: Final = "tested with this release"
"""The evidence for the built-in model, which the conformance suite runs."""

_FILE: Final = "file"
_CONFIGURED: Final = "configured"
_UNKNOWN: Final = "unknown"
_NO_SYSTEM: Final = ("system role not supported", "system role is not supported")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`chat` is the template that the vocabulary speaks: `chatml`, `other`, `none`, or `server` for an endpoint.

    `context_tokens` is what the model was trained for, or what an endpoint offers.
    """

    context_tokens: int | None
    chat: str
    system_role: bool | None
    tools: bool | None
    grammar: bool | None
    evidence: dict[str, str]


def of_file(header: GgufHeader, *, grammar: bool | None, grammar_evidence: str) -> Capabilities:
    """What a GGUF file shows. Whether a grammar holds cannot be read: the caller has probed it, or has not."""
    template = header.chat_template
    return Capabilities(
        context_tokens=header.context_tokens,
        chat=CHATML if header.chatml_tokens else NO_TEMPLATE if template is None else OTHER,
        system_role=_takes_system(template),
        tools=None if template is None else "tools" in template,
        grammar=grammar,
        evidence={
            "context_tokens": _FILE if header.context_tokens else _UNKNOWN,
            "chat": _FILE,
            "system_role": _FILE if _takes_system(template) is not None else _UNKNOWN,
            "tools": _FILE if template is not None else _UNKNOWN,
            "grammar": grammar_evidence,
        },
    )


def of_endpoint(config: EndpointConfig) -> Capabilities:
    """What an endpoint's configuration promises; the server itself is not asked."""
    return Capabilities(
        context_tokens=config.context_tokens,
        chat=SERVER,
        system_role=None,
        tools=None,
        grammar=config.grammar,
        evidence={
            "context_tokens": _CONFIGURED,
            "chat": _UNKNOWN,
            "system_role": _UNKNOWN,
            "tools": _UNKNOWN,
            "grammar": _CONFIGURED,
        },
    )


def _takes_system(template: str | None) -> bool | None:
    """Whether a template has a place for a system message; None where it does not say."""
    if template is None:
        return None
    if any(words in template.lower() for words in _NO_SYSTEM):
        return False
    # A template that writes each message's own role takes a system message like any other.
    return True if "system" in template or "message['role']" in template or "message.role" in template else None
