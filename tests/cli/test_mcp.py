"""`emelex mcp`: a real client over real pipes reads Knowledge and Sessions, and cannot write (contract)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from emelex_core import Event, MemoryStore
from program import PROGRAM, Program

READING = {
    "recall_knowledge",
    "search_knowledge",
    "show_knowledge",
    "list_sessions",
    "search_sessions",
    "read_session",
}


def talk(emelex: Program, chat: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    """Start the server as a client does, and talk with it."""

    async def run() -> Any:
        command, *arguments = [*PROGRAM, "mcp"]
        server = StdioServerParameters(command=command, args=arguments, env=emelex.env(), cwd=str(emelex.workspace))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await chat(session)

    return asyncio.run(run())


async def ask(client: ClientSession, tool: str, /, **arguments: Any) -> Any:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    return found.structured_content


@pytest.fixture
def filled(emelex: Program) -> str:
    """A workspace that knows something; the id of its Session."""
    with MemoryStore.open(emelex.home, create=True) as store:
        session = store.start_session(emelex.workspace, title="Cargo")
        with store.claim_session(session.id, emelex.workspace) as lease:
            lease.append_turn([Event.user("Weigh the parcels with care."), Event.assistant("Weighed.")])
        store.remember(emelex.workspace, "rule.weigh", "Parcels are weighed before they are sorted.")
        return session.id


def test_an_agent_reads_what_is_known(emelex: Program, filled: str) -> None:
    """Each tool answers with the shapes of docs/json.md; all are declared as reading."""

    async def chat(session: ClientSession) -> None:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        recalled = await ask(session, "recall_knowledge", prompt="how are parcels weighed?")
        assert [entry["key"] for entry in recalled["entries"]] == ["rule.weigh"]
        found = await ask(session, "search_knowledge", words="sorted")
        assert found["entries"][0]["content"] == "Parcels are weighed before they are sorted."
        assert (await ask(session, "show_knowledge", key="rule.weigh"))["confidence"] == 1.0
        assert [each["id"] for each in (await ask(session, "list_sessions"))["sessions"]] == [filled]
        hits = (await ask(session, "search_sessions", words="care"))["hits"]
        assert [(hit["session"], hit["sequence"]) for hit in hits] == [(filled, 1)]
        events = (await ask(session, "read_session", session=filled[:8], after=1))["events"]
        assert [event["parts"][0]["text"] for event in events] == ["Weighed."]

    talk(emelex, chat)


def test_what_is_refused_is_an_answer_and_the_server_goes_on(emelex: Program, filled: str) -> None:
    async def chat(session: ClientSession) -> None:
        for tool, arguments, words in (
            ("show_knowledge", {"key": "no.such"}, "no Knowledge under the key"),
            ("search_knowledge", {"words": ""}, "at least 1 character"),
            ("read_session", {"session": "00000000"}, "no Session"),
            ("list_sessions", {"limit": 0}, "limit"),
        ):
            found = await session.call_tool(tool, arguments)
            assert found.is_error
            assert words in found.content[0].text  # type: ignore[union-attr]  # every answer here is text
        assert (await ask(session, "list_sessions"))["sessions"][0]["id"] == filled

    talk(emelex, chat)


def test_a_home_without_a_store_answers_and_stays_empty(emelex: Program) -> None:
    async def chat(session: ClientSession) -> None:
        assert (await ask(session, "recall_knowledge", prompt="anything"))["entries"] == []
        assert (await ask(session, "list_sessions"))["sessions"] == []

    talk(emelex, chat)
    assert not Path(emelex.home).exists()


def test_lines_that_are_no_requests_are_answered_and_what_is_owed_is_finished(emelex: Program, filled: str) -> None:
    """stdin ends right behind the last request, and it is answered all the same; what does not fit names no address."""
    begin = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    asked: list[Any] = [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "list_sessions", "arguments": {"limit": 101}}},
        {"id": 3, "method": "tools/call", "params": {"name": "search_sessions", "arguments": {"words": "care"}}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **each}) for each in asked]
    text = "\n".join([*lines[:2], "no json", '{"a": 1}', *lines[2:], ""])
    done = subprocess.run(
        [*PROGRAM, "mcp"],
        cwd=emelex.workspace,
        env=emelex.env(),
        input=text.encode(),
        capture_output=True,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["error"]["code"] for each in answers if each["id"] is None] == [-32700, -32600]
    by_id = {each["id"]: each for each in answers}
    refused = by_id[2]["result"]
    assert refused["isError"]
    assert "limit" in refused["content"][0]["text"]
    assert "http" not in refused["content"][0]["text"]
    assert by_id[3]["result"]["structuredContent"]["hits"][0]["session"] == filled
