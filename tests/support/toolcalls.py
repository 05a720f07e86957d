"""Calling a tool as a turn does: schema first, then the run on an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from emelex_core import limits
from emelex_core.agent.ports import CancelToken, Tool, ToolContext, ToolOutcome
from emelex_core.agent.schemas import argument_check


def call(
    tool: Tool,
    *,
    approved: bool = False,
    cancel: CancelToken | None = None,
    output_bytes_max: int = limits.TOOL_OUTPUT_BYTES_MAX,
    **arguments: Any,
) -> ToolOutcome:
    """Run one call whose arguments fit the tool's schema."""
    fault = argument_check(tool.declaration.parameters, what=tool.declaration.name)(arguments)
    assert fault is None, fault
    context = ToolContext(cancel=cancel or CancelToken(), approved=approved, output_bytes_max=output_bytes_max)
    return asyncio.run(tool.run(arguments, context))
