"""The chat's loop: a line, a command or a turn, until somebody leaves.

    line ── /command ──▶ done here, with the store
       └─── message ───▶ a turn of the durable agent, told as it runs

The module owns these invariants:

- A Session begins with its first message: opening a chat and leaving it stores nothing.
- Nothing is begun for a message that no turn would take.
- A turn that fails leaves the chat going; one that left the agent poisoned ends it, and says how to go on, once.
- Words that were stopped before they were said are the next line's first text.
- However it ends, the Session is released; what was said is queued for Knowledge, unless the agent is poisoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from emelex_cli.chat.aftermath import Aftermath
from emelex_cli.chat.interrupts import Interrupts
from emelex_cli.chat.lines import Interrupted, TerminalLines
from emelex_cli.chat.slash import Command, parse
from emelex_cli.chat.tellers import Teller
from emelex_cli.output import Output, one_line
from emelex_core.errors import Cancelled, EmelexError, StaleLease, UsageError

if TYPE_CHECKING:
    from emelex_core.agent.durable import DurableAgentSession
    from emelex_core.agent.ports import AgentEvent
    from emelex_core.events import AssetRef
    from emelex_core.publish import PublishedJob

Attach = Callable[[str], Awaitable["DurableAgentSession"]]
"""Begins or resumes the Session; the text is the first message, which names a new one."""


class Commands(Protocol):
    """What slash commands do. Each returns the agent to go on with."""

    async def do(self, command: Command, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        """Run one command. Raises: EmelexError, after which the chat goes on with the agent that it had; Detached."""
        ...


class Detached(Exception):
    """The Session was given back for a command and could not be taken again; `error` says why."""

    def __init__(self, error: EmelexError, *, session_id: str) -> None:
        super().__init__(error.message)
        self.error = error
        self.session_id = session_id


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
        self._unsaid = ""
        self._broken = False
        self._aftermath = Aftermath()
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
        from emelex_core.agent.budget import check_input
        from emelex_core.events import Event

        said = Event.user(message, *self.media)
        check_input(said)
        if self.agent is None:
            self.agent = await self._attach(message)
        self._unsaid = ""
        with self._interrupts.turn() as cancel:
            await self.agent.run(said, sink=self._hear, cancel=cancel)
        self.media.clear()
        self._turns += 1
        self._teller.finish()

    async def attend(self, lines: TerminalLines, commands: Commands, first: str) -> None:
        """Ask and answer until somebody leaves. Raises: what broke the chat; ReaderGone, Storage for the terminal."""
        line: str | None = first
        while line is not None and self._interrupts.exit_code is None:
            if line.strip():
                try:
                    if not await self._take(line, commands):
                        return
                except Cancelled:
                    self._out.note("stopped; the turn is closed, and what you wrote is kept")
                except Detached as detached:
                    self.session_id, self.agent = detached.session_id, None
                    raise detached.error from None
                except EmelexError as error:
                    if self._is_broken(error):
                        self._aftermath.explain(error)
                        raise
                    self._out.error(error)
            line = await self._next(lines)

    async def close(self) -> None:
        """Release the Session and queue it for Knowledge. Raises: Storage, StaleSessionLease."""
        agent, self.agent = self.agent, None
        if agent is None:
            return
        self.session_id = agent.session_id
        if agent.poisoned or self._broken:
            # What broke the chat is told already. A hold that cannot be given back now runs out by itself.
            with suppress(EmelexError):
                await agent.abandon()
        elif not self._distill:
            await agent.abandon()
        else:
            try:
                self.job = await agent.close()
            except StaleLease as error:
                self._aftermath.explain(error)
                raise

    def _is_broken(self, error: EmelexError) -> bool:
        """Whether the chat cannot go on behind an error."""
        agent = self.agent
        self._broken = agent is not None and (agent.poisoned or isinstance(error, StaleLease))
        return self._broken

    async def _hear(self, event: AgentEvent) -> None:
        """The sink of a turn; its first event says that the input is durable."""
        from emelex_core.agent.ports import TurnStarted

        if isinstance(event, TurnStarted):
            self._interrupts.begun()
        self._aftermath.hear(event)
        await self._teller.hear(event)

    async def _take(self, line: str, commands: Commands) -> bool:
        """Do what a line asks for; False when it asks to leave. What was stopped before it began is asked again."""
        found = parse(line)
        if isinstance(found, Command) and found.name == "/exit":
            return False
        self._unsaid = line
        try:
            if isinstance(found, str):
                await self.say(found)
            else:
                task = asyncio.ensure_future(commands.do(found, self.agent))
                with self._interrupts.working(task):
                    self.agent = await task
        except asyncio.CancelledError:
            if not self._interrupts.take_stopped():
                raise
            if self._interrupts.exit_code is None:
                self._out.note("stopped; your words are kept")
            return True
        except BaseException:
            # What was refused is not asked again: the person has read why.
            self._unsaid = ""
            raise
        self._unsaid = ""
        return True

    async def _next(self, lines: TerminalLines) -> str | None:
        """The next line; None to leave. The first Ctrl-C clears the line and says how to leave."""
        while self._interrupts.exit_code is None:
            default, self._unsaid = self._unsaid, ""
            asking = asyncio.ensure_future(lines.ask(default))
            try:
                with self._interrupts.asking(asking):
                    return await asking
            except Interrupted:
                self._interrupts.typed()
            except asyncio.CancelledError:
                if not self._interrupts.take_stopped():
                    raise
            if self._interrupts.exit_code is None:
                self._out.note("Ctrl-C again, /exit or Ctrl-D leaves")
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
