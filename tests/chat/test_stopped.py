"""A Ctrl-C between two turns: what is loaded or worked on stops, words are kept, and nothing is begun."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable

from emelex_cli.chat.conversation import Conversation
from emelex_cli.chat.interrupts import Interrupts
from emelex_cli.chat.lines import TerminalLines
from emelex_cli.chat.slash import Command
from emelex_cli.chat.tellers import PlainTeller
from emelex_cli.output import Output
from emelex_core.agent.durable import DurableAgentSession


class Typed(TerminalLines):
    """Lines that a test wrote down; what each prompt began with is kept."""

    def __init__(self, *waiting: str | None) -> None:
        self._waiting = list(waiting)
        self.defaults: list[str] = []

    async def ask(self, default: str = "") -> str | None:
        self.defaults.append(default)
        return self._waiting.pop(0)


class Endless:
    """A command that works until it is stopped."""

    async def do(self, command: Command, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        del command, agent
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return None


def attended(lines: Typed) -> Conversation:
    """Attend a chat whose model is loaded for ever, with a Ctrl-C meanwhile."""

    async def run() -> Conversation:
        interrupts = Interrupts()

        async def forever() -> DurableAgentSession:
            await asyncio.Event().wait()
            raise AssertionError("it was never loaded")

        async def attach(message: str) -> DurableAgentSession:
            del message
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            return await worked(interrupts, forever())

        out = Output(json=False)
        conversation = Conversation(out, PlainTeller(out), attach, interrupts)
        with interrupts.taken():
            await conversation.attend(lines, Endless(), "")
        assert interrupts.exit_code is None
        return conversation

    return asyncio.run(run())


async def worked(interrupts: Interrupts, work: Awaitable[DurableAgentSession]) -> DurableAgentSession:
    task = asyncio.ensure_future(work)
    with interrupts.working(task):
        return await task


def test_words_that_were_stopped_while_the_model_loads_are_the_next_lines_first_text() -> None:
    lines = Typed("PIN-7731 hello", None)
    conversation = attended(lines)
    assert lines.defaults == ["", "PIN-7731 hello"]
    assert (conversation.agent, conversation.turns) == (None, 0)


def test_a_command_that_was_stopped_is_kept_too() -> None:
    lines = Typed("/compact now", None)
    attended(lines)
    assert lines.defaults == ["", "/compact now"]
