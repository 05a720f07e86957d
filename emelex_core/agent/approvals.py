"""Asking somebody whether a call may run. An answer is valid once, for one call; nothing is remembered.

What is approved is what was shown: a question that does not fit its bound is not asked, and its call does not run.
"""

from __future__ import annotations

from collections.abc import Collection

from emelex_core import limits
from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, Effect, Tool, ToolCall
from emelex_core.agent.showing import shown
from emelex_core.agent.wording import shortened, visible
from emelex_core.codec import encode
from emelex_core.errors import ToolError

ASKS_DEFAULT = frozenset({Effect.WRITES, Effect.EXECUTES})
"""Effects that need approval each time; reading needs it only where the tool itself is cautious."""
REASON_BYTES_MAX = 1 * limits.KIB


def question(tool: Tool, call: ToolCall, asks: Collection[Effect]) -> ApprovalRequest | None:
    """Return what to ask before a call, or None when it may run unasked.

    Raises: ToolError for a call that is too long to be shown whole, and what the tool says of its arguments.
    """
    caution = tool.caution(call.arguments)
    if caution is None and tool.effect not in asks:
        return None
    return ApprovalRequest(
        call=call,
        effect=tool.effect,
        text=_whole(shown(f"{visible(call.name)}: {tool.preview(call.arguments)}")),
        caution=None if caution is None else shortened(visible(caution), REASON_BYTES_MAX),
    )


def preview_of(arguments: dict[str, object]) -> str:
    """A call's arguments as one line of JSON, for tools without better words."""
    return encode(arguments, what="arguments", bytes_max=limits.TURN_ARGUMENT_BYTES_MAX).decode()


def denial(decision: ApprovalDecision) -> str:
    """What the model is told of a call that was not granted."""
    reason = shortened(visible(decision.reason), REASON_BYTES_MAX)
    return f"The call was denied and not run{f': {reason}' if reason else '.'}"


def _whole(text: str) -> str:
    """Return the text. Raises: ToolError when nobody could be shown all of it."""
    size = len(text.encode())
    if size > limits.APPROVAL_TEXT_BYTES_MAX:
        raise ToolError(
            f"the call is too long to be approved: at most {limits.APPROVAL_TEXT_BYTES_MAX} bytes can be shown to a "
            f"person, and this has {size}. It was not run. Take smaller steps, or write a file and run that"
        )
    return text


async def deny(request: ApprovalRequest) -> ApprovalDecision:
    """Grant nothing: what a session does that nobody attends."""
    return ApprovalDecision(granted=False, reason=f"nobody is there to approve {request.call.name}")
