"""Whether a model can do the work at all, told before any job is claimed (issue 4, item 4).

What is not known is not held against a model: only evidence that it cannot refuses it.
"""

from __future__ import annotations

from typing import Final

from emelex_core.errors import ModelUnusable
from emelex_core.models.capabilities import CHATML, SERVER, Capabilities

CONTEXT_TOKENS_MIN: Final = 512
"""The instruction (60 tokens), the longest line that is sent (600 characters, usually 150) and as much to word it."""


def require_fit(reference: str, able: Capabilities) -> None:
    """Raise ModelUnusable, with every reason, when a model is known to be unable to word lines for a job."""
    reasons = list(_reasons(able))
    if reasons:
        raise ModelUnusable(
            f"{reference} cannot do the work: {'; '.join(reasons)}",
            hint="choose another with --model; emelex models list shows what each can do",
        )


def _reasons(able: Capabilities) -> list[str]:
    found: list[str] = []
    if able.chat not in (CHATML, SERVER):
        found.append("its vocabulary has no control tokens for ChatML, so text could pose as instructions")
    if able.system_role is False:
        found.append("its chat template takes no system message")
    if able.grammar is False and able.chat != SERVER:
        found.append("it does not keep to a grammar")
    if able.context_tokens is not None and able.context_tokens < CONTEXT_TOKENS_MIN:
        found.append(f"its context of {able.context_tokens} tokens is below the {CONTEXT_TOKENS_MIN} that a line needs")
    return found
