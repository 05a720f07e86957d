"""The way out of a turn: to a sink that may fail, and to a journal that must not.

The module owns these invariants:

- After its first failure a sink is told nothing more (behaviour 80: no error event follows).
- After its first failure a journal is asked nothing more, and the session knows (`broken`).
- Pieces of text reach the sink in order, joined when they come faster than it takes them, and a sink that fails in the
  middle of an answer ends the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, ToolCall
from emelex_core.agent.notices import AgentEvent, EventSink, TextDelta
from emelex_core.agent.rounds import AgentModel, ModelReply, ModelRequest
from emelex_core.agent.turn_journal import TurnJournal
from emelex_core.engine.cancel import CancelToken
from emelex_core.events import Event


class Delivery:
    """A sink that is told until it fails once."""

    def __init__(self, sink: EventSink | None) -> None:
        self._sink = sink
        self.broken = False

    async def tell(self, notice: AgentEvent) -> None:
        """Tell the sink. Raises: whatever it raises, once; afterwards nothing is told."""
        if self._sink is None or self.broken:
            return
        try:
            await self._sink(notice)
        except BaseException:
            self.broken = True
            raise

    async def tell_at_the_end(self, notice: AgentEvent) -> None:
        """Tell a sink while another error is on its way out, which a failure here must not replace."""
        with suppress(Exception):
            await self.tell(notice)


class Ledger:
    """A journal that is asked until it fails once."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self.broken = False

    async def begin(self, message: Event) -> None:
        """`TurnJournal.begin`."""
        await self._safely(self._journal.begin(message))

    async def plan(self, messages: tuple[Event, ...], calls: tuple[ToolCall, ...]) -> None:
        """`TurnJournal.plan`."""
        await self._safely(self._journal.plan(messages, calls))

    async def ask(self, request: ApprovalRequest) -> None:
        """`TurnJournal.ask`."""
        await self._safely(self._journal.ask(request))

    async def decide(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        """`TurnJournal.decide`."""
        await self._safely(self._journal.decide(request, decision))

    async def start(self, call: ToolCall) -> None:
        """`TurnJournal.start`."""
        await self._safely(self._journal.start(call))

    async def complete(self, call: ToolCall, result: Event, audits: tuple[Event, ...]) -> None:
        """`TurnJournal.complete`."""
        await self._safely(self._journal.complete(call, result, audits))

    async def checkpoint(self) -> None:
        """`TurnJournal.checkpoint`."""
        await self._safely(self._journal.checkpoint())

    async def finish(self, messages: tuple[Event, ...], audits: tuple[Event, ...]) -> None:
        """`TurnJournal.finish`."""
        await self._safely(self._journal.finish(messages, audits))

    async def fail(self, diagnostic: str) -> None:
        """`TurnJournal.fail`."""
        await self._safely(self._journal.fail(diagnostic))

    async def _safely(self, step: Awaitable[None]) -> None:
        try:
            await step
        except BaseException:
            self.broken = True
            raise


async def answer(model: AgentModel, request: ModelRequest, delivery: Delivery, cancel: CancelToken) -> ModelReply:
    """Ask a model, handing its text on while it comes.

    Raises: what the model raises; what the sink raises, after the model was stopped.
    """
    inner = CancelToken()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    with cancel.watched(inner.cancel):
        forwarding = asyncio.create_task(_forward(pieces, delivery, inner))
        try:
            reply = await model.respond(request, tell=pieces.put_nowait, cancel=inner)
        except Exception:
            # Where a sink that failed has stopped the model, the sink's error is the one to tell.
            pieces.put_nowait(None)
            await forwarding
            raise
        except BaseException:
            forwarding.cancel()
            raise
        pieces.put_nowait(None)
        await forwarding
    return reply


async def _forward(pieces: asyncio.Queue[str | None], delivery: Delivery, stop: CancelToken) -> None:
    try:
        while (piece := await pieces.get()) is not None:
            text, ended = _joined(piece, pieces)
            if text:
                await delivery.tell(TextDelta(text=text))
            if ended:
                return
    except BaseException:
        stop.cancel()
        raise


def _joined(piece: str, pieces: asyncio.Queue[str | None]) -> tuple[str, bool]:
    """Join a piece with all that wait behind it; also return whether the end waits there."""
    found = [piece]
    while not pieces.empty():
        following = pieces.get_nowait()
        if following is None:
            return "".join(found), True
        found.append(following)
    return "".join(found), False
