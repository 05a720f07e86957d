"""The tools of `emelex mcp`. Their names, types and docstrings are what an agent is told.

The module owns these invariants:

- The store is opened for one call and closed again, so that a server that idles for days holds nothing.
- Every argument is bounded in its schema.
- What is refused is an answer that the agent can read; the server goes on.

Annotations are evaluated while tools are declared, so their types are names of this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from emelex_cli import knowledge_shapes, search_cmd, shapes
from emelex_cli.call import Call, has_database
from emelex_core import limits
from emelex_core.errors import EmelexError, NotFound
from emelex_core.store import MemoryStore

Found = TypeVar("Found")

Prompt = Annotated[str, Field(min_length=1, max_length=32_768)]
Words = Annotated[str, Field(min_length=1, max_length=limits.SEARCH_QUERY_BYTES_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=limits.KNOWLEDGE_KEY_BYTES_MAX)]
Limit = Annotated[int, Field(ge=1, le=100)]
Sequence = Annotated[int, Field(ge=0, le=2**63 - 1)]

_SEARCH: Final = 20
_PAGE: Final = 20


def tools(call: Call) -> tuple[Callable[..., Any], ...]:
    """The tools over one workspace. Their names, types and docstrings are what an agent is told."""

    async def recall_knowledge(prompt: Prompt) -> dict[str, Any]:
        """What is known of this workspace that fits a prompt: pinned entries first, then the most relevant, bounded."""
        found = await _asked(call, lambda store: store.recall(call.directory, prompt))
        entries = [] if found is None else [knowledge_shapes.entry(each) for each in found.entries]
        return {"entries": entries, "left_out": 0 if found is None else found.left_out}

    async def search_knowledge(words: Words, limit: Limit = _SEARCH) -> dict[str, Any]:
        """Knowledge entries that hold every word, literally; the best first."""
        found = await _asked(call, lambda store: store.search_knowledge(call.directory, words, limit=limit))
        return {"entries": [knowledge_shapes.entry(hit.entry) for hit in found or ()]}

    async def show_knowledge(key: Name) -> dict[str, Any]:
        """One Knowledge entry by its exact key, with the quoted words that it rests on."""
        found = await _asked(call, lambda store: store.get_knowledge(call.directory, key))
        if found is None:
            raise NotFound("nothing is stored yet")
        return knowledge_shapes.entry(found)

    async def list_sessions(limit: Limit = _PAGE) -> dict[str, Any]:
        """Earlier conversations in this workspace, the most recently active first."""
        found = await _asked(call, lambda store: store.list_sessions(call.directory, limit=limit))
        return {"sessions": [shapes.session(each) for each in found or ()]}

    async def search_sessions(words: Words, limit: Limit = _SEARCH) -> dict[str, Any]:
        """Events of earlier conversations that hold every word, literally; the best first."""
        if not has_database(call.home):
            return {"hits": [], "unindexed": 0}
        found = await _on_a_thread(lambda: search_cmd.find(call, words, everywhere=False, session=None, limit=limit))
        return {"hits": [knowledge_shapes.transcript_hit(hit) for hit in found.hits], "unindexed": found.unindexed}

    async def read_session(session: Name, after: Sequence = 0, limit: Limit = _PAGE) -> dict[str, Any]:
        """Events of one conversation after a sequence number, in order, as they were said."""

        def page(store: MemoryStore) -> list[dict[str, Any]]:
            found = call.session(store, session, everywhere=False)
            return [shapes.event(event) for event in store.read_events(found.id, after=after, limit=limit)]

        return {"events": await _asked(call, page) or []}

    return recall_knowledge, search_knowledge, show_knowledge, list_sessions, search_sessions, read_session


async def _asked(call: Call, question: Callable[[MemoryStore], Found]) -> Found | None:
    """Ask the store; None when nothing was ever stored. Raises: the client's kind of error."""

    def ask() -> Found | None:
        with call.reading() as store:
            return None if store is None else question(store)

    return await _on_a_thread(ask)


async def _on_a_thread(ask: Callable[[], Found]) -> Found:
    try:
        return await asyncio.to_thread(ask)
    except EmelexError as error:
        raise ToolError(error.message if error.hint is None else f"{error.message} ({error.hint})") from None
