"""The chat's loop: a line, a command or a turn, until somebody leaves.

    line ── /command ──▶ done here, with the store
       └─── message ───▶ a turn of the durable agent, told as it runs

The module owns these invariants:

- A Session begins with its first message: opening a chat and leaving it stores nothing.
- A turn that fails leaves the chat going; one that left the agent poisoned ends it, and says how to go on.
- However it ends, the Session is released; what was said is queued for Knowledge, unless the agent is poisoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from emelex_cli.chat.interrupts import Interrupts
from emelex_cli.chat.lines import Interrupted, TerminalLines
from emelex_cli.chat.slash import Command, parse
from emelex_cli.chat.tellers import Teller
from emelex_cli.output import Output, one_line
from emelex_core.errors import Cancelled, EmelexError, Poisoned, UsageError

if TYPE_CHECKING:
    from emelex_core.agent.durable import DurableAgentSession
    from emelex_core.events import AssetRef
    from emelex_core.publish import PublishedJob

Attach = Callable[[str], Awaitable["DurableAgentSession"]]
"""Begins or resumes the Session; the text is the first message, which names a new one."""


class Commands(Protocol):
    """What slash commands do. Each returns the agent to go on with."""

    async def do(self, command: Command, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        """Run one command. Raises: EmelexError, after which the chat goes on with the agent that it had."""
        ...


class Conversation:
    """One chat, from its first line to its release."""

    def __init__(
        self, out: Output, teller: Teller, attach: Attach, interrupts: Interrupts, *, distill: bool = True
    ) -> None:
        self._out = out
        self._teller = teller
        self._attach = attach
        self._interrupts = interrupts
        self._distill = distill
        self._turns = 0
        self.agent: DurableAgentSession | None = None
        self.media: list[AssetRef] = []
        self.job: PublishedJob | None = None
        self.session_id: str | None = None

    @property
    def turns(self) -> int:
        """How many turns were answered."""
        return self._turns

    async def say(self, message: str) -> None:
        """Run one turn with the media that wait for it. Raises: EmelexError of the turn, which is closed then."""
        from emelex_core.events import Event

        if self.agent is None:
            self.agent = await self._attach(message)
        with self._interrupts.turn() as cancel:
            await self.agent.run(Event.user(message, *self.media), sink=self._teller.hear, cancel=cancel)
        self.media.clear()
        self._turns += 1
        self._teller.finish()

    async def attend(self, lines: TerminalLines, commands: Commands, first: str) -> None:
        """Ask and answer until somebody leaves. Raises: Poisoned; ReaderGone, Storage for the terminal."""
        line: str | None = first
        while line is not None and self._interrupts.exit_code is None:
            if line.strip():
                try:
                    if not await self._take(line, commands):
                        return
                except Cancelled:
                    self._out.note("stopped; the turn is closed, and what you wrote is kept")
                except EmelexError as error:
                    self._out.error(error)
                    if self.agent is not None and self.agent.poisoned:
                        raise Poisoned(
                            "this chat cannot go on", hint="`emelex resume` shows what is durable"
                        ) from error
            line = await self._next(lines)

    async def close(self) -> None:
        """Release the Session and queue it for Knowledge. Raises: Storage, StaleSessionLease."""
        agent, self.agent = self.agent, None
        if agent is None:
            return
        self.session_id = agent.session_id
        if agent.poisoned or not self._distill:
            await agent.abandon()
        else:
            self.job = await agent.close()

    async def _take(self, line: str, commands: Commands) -> bool:
        """Do what a line asks for; False when it asks to leave."""
        found = parse(line)
        if isinstance(found, str):
            await self.say(found)
        elif found.name == "/exit":
            return False
        else:
            self.agent = await commands.do(found, self.agent)
        return True

    async def _next(self, lines: TerminalLines) -> str | None:
        """The next line; None to leave. The first Ctrl-C clears the line and says how to leave."""
        while self._interrupts.exit_code is None:
            asking = asyncio.ensure_future(lines.ask())
            try:
                with self._interrupts.asking(asking):
                    return await asking
            except Interrupted:
                self._interrupts.typed()
                if self._interrupts.exit_code is None:
                    self._out.note("Ctrl-C again, /exit or Ctrl-D leaves")
            except asyncio.CancelledError:
                if self._interrupts.exit_code is None:
                    raise
        return None


def title_of(message: str, *, bytes_max: int) -> str:
    """A new Session's title: its first line with words in it, cut to a bound in bytes.

    Raises: UsageError when nothing can be said with it.
    """
    for line in message.splitlines():
        words = one_line(" ".join(line.split()))
        if words:
            data = words.encode("utf-8", "replace")
            return words if len(data) <= bytes_max else data[: bytes_max - 3].decode("utf-8", "ignore") + "…"
    raise UsageError("there is nothing to say in an empty message")
