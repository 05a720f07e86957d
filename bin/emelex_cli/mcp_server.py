"""The server under `emelex mcp`: the SDK's, with what a stdio server owes its client. Needs the package `mcp`.

The module owns these invariants:

- A line that is no request is answered: -32700 for what is no JSON, -32600 for JSON that is no request.
- When stdin ends, the requests that are under way are answered before the server ends.
- Arguments that do not fit are refused in this program's words.
"""

from __future__ import annotations

from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

_CANCELLED = "notifications/cancelled"


class ReadingServer(MCPServer[Any]):
    """An MCP server on stdio that owes nobody an answer when it ends."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | Any:
        """Call a tool. Raises: ToolError with words for the agent."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {_unfit(error.__cause__)}") from None
            raise

    async def run_stdio_async(self) -> None:
        """Serve standard input and output until the input ends and every request is answered."""
        lowlevel = self._lowlevel_server
        async with stdio_server() as (lines, answers):
            to_server, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            from_server, results = anyio.create_memory_object_stream[SessionMessage](0)
            owed = _Owed()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_forward, lines, to_server, answers, owed)
                tasks.start_soon(_return, results, answers, owed)
                await lowlevel.run(requests, from_server, lowlevel.create_initialization_options())


class _Owed:
    """The requests without an answer."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._settled = anyio.Event()

    def take(self, message: object) -> None:
        """Note what a client sent."""
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._settle((message.params or {}).get("requestId"))

    def answer(self, message: object) -> None:
        """Note what was sent to the client."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._settle(message.id)

    async def settled(self) -> None:
        """Wait until nothing is owed."""
        while self._ids:
            self._settled = anyio.Event()
            await self._settled.wait()

    def _settle(self, answered: Any) -> None:
        self._ids.discard(answered)
        self._settled.set()


async def _forward(
    lines: Any, server: MemoryObjectSendStream[SessionMessage | Exception], answers: Any, owed: _Owed
) -> None:
    """Hand requests on; answer what is none. The server hears of the end once nothing is owed."""
    async with server:
        async for line in lines:
            if isinstance(line, Exception):
                await answers.send(SessionMessage(_refusal(line)))
            else:
                owed.take(line.message)
                await server.send(line)
        await owed.settled()


async def _return(results: MemoryObjectReceiveStream[SessionMessage], answers: Any, owed: _Owed) -> None:
    async with results, answers:
        async for result in results:
            await answers.send(result)
            owed.answer(result.message)


def _refusal(error: Exception) -> JSONRPCError:
    broken = isinstance(error, ValidationError) and any(each["type"] == "json_invalid" for each in error.errors())
    data = (
        ErrorData(code=PARSE_ERROR, message="the line is no JSON")
        if broken
        else ErrorData(code=INVALID_REQUEST, message="the line is no JSON-RPC request")
    )
    return JSONRPCError(jsonrpc="2.0", id=None, error=data)


def _unfit(error: ValidationError) -> str:
    """Say which arguments do not fit, and how."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'the arguments'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )
