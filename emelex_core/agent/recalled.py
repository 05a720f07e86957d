"""A model that is reminded: what the workspace knows stands before the person's words, for one answer and labelled.

The module owns these invariants:

- What is recalled is put before the model and nowhere else: it is not stored, so that it never becomes new evidence
  (behaviour 177).
- It is a `context` event, which every adapter shows as untrusted material and never as a system message.
- A recall that fails must not cost an answer: the turn goes on without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import orjson

from emelex_core.agent.rounds import AgentModel, ModelIdentity, ModelReply, ModelRequest, RoomChecked
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import EmelexError
from emelex_core.events import Event, EventKind
from emelex_core.knowledge.records import Knowledge

LABEL: Final = "recalled_knowledge"

Recollect = Callable[[str], Awaitable[tuple[Knowledge, ...]]]
"""Chooses, for a person's words, what the model is reminded of."""


class RemindedModel:
    """An `AgentModel` around another one. One turn uses it at a time."""

    def __init__(self, model: AgentModel, recollect: Recollect) -> None:
        self._model = model
        self._recollect = recollect
        self._for: Event | None = None
        self._context: Event | None = None

    @property
    def identity(self) -> ModelIdentity | None:
        """What answers."""
        return self._model.identity

    async def respond(self, request: ModelRequest, *, tell: Callable[[str], None], cancel: CancelToken) -> ModelReply:
        """Run one round with the reminder before the turn's input. Raises: as the model."""
        return await self._model.respond(await self._reminded(request), tell=tell, cancel=cancel)

    async def require_room(self, request: ModelRequest) -> None:
        """`RoomChecked.require_room`, with the reminder; nothing where the model cannot tell."""
        if isinstance(self._model, RoomChecked):
            await self._model.require_room(await self._reminded(request))

    async def _reminded(self, request: ModelRequest) -> ModelRequest:
        place = _input_place(request.messages)
        if place is not None:
            message = request.messages[place]
            if message is not self._for:
                # The rounds of one turn are reminded of the same.
                self._for, self._context = message, await self._reminder(message.text)
            if self._context is not None:
                messages = (*request.messages[:place], self._context, *request.messages[place:])
                return replace(request, messages=messages)
        return request

    async def _reminder(self, words: str) -> Event | None:
        try:
            known = await self._recollect(words)
        except EmelexError:
            return None
        return reminder(known) if known else None


def reminder(known: tuple[Knowledge, ...]) -> Event:
    """What a model is told of some entries: JSON, so that no content can pose as anything else."""
    entries = [{"key": entry.key, "content": entry.content, "confidence": entry.confidence} for entry in known]
    return Event.context(orjson.dumps({"untrusted_workspace_knowledge": entries}).decode(), label=LABEL)


def _input_place(messages: tuple[Event, ...]) -> int | None:
    """Where the turn's input stands: the last event that a person said."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].kind is EventKind.USER:
            return place
    return None
