"""`emelex chat` and `emelex resume`: who is there, which Session, which model; the chat itself is in chat/.

The module owns these invariants:

- Whatever can refuse a Session does so before a model is loaded: its workspace, its model, calls of unknown effect.
- Without a terminal there is one message, and one turn; nobody is asked anything.
- A chat that stores nothing creates nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from emelex_cli import recover_cmd
from emelex_cli.call import Call, typed
from emelex_cli.chat import choosing, greeting, lines
from emelex_cli.chat.aftermath import explain_busy
from emelex_cli.chat.commands import ChatCommands, store_file
from emelex_cli.chat.conversation import Conversation, title_of
from emelex_cli.chat.interrupts import Interrupts
from emelex_cli.chat.slash import COMMANDS
from emelex_cli.chat.tellers import JsonTeller, PlainTeller, ScreenTeller, Teller
from emelex_cli.output import counted, neutralise, one_line, say
from emelex_cli.progress import can_show
from emelex_core import limits
from emelex_core.errors import Cancelled, SessionBusy, UsageError

if TYPE_CHECKING:
    from emelex_core.agent.attended import Choices
    from emelex_core.agent.calls import ToolDeclaration
    from emelex_core.agent.durable import DurableAgentSession
    from emelex_core.agent.durable_setup import AgentSetup
    from emelex_core.agent.ports import ApprovalDecision, ApprovalRequest
    from emelex_core.knowledge.records import Knowledge
    from emelex_core.sessions.records import Session
    from emelex_core.store import MemoryStore


def chat(
    call: Call,
    *,
    prompt: str | None = None,
    resume: str | None = None,
    model: str | None = None,
    tools: bool | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    attach: Sequence[str] = (),
) -> int:
    """Talk with a model, in a new Session or with `resume` in one that is there; return the exit code."""
    from emelex_core.agent.attended import Choices

    choices = Choices(tools=tools, output_tokens_max=max_tokens, temperature=temperature)
    words = _words(prompt)
    if not words and not _attended(call):
        raise UsageError("there is nothing to say: give a PROMPT, or text on standard input", hint="emelex chat --help")
    with call.writing(create=resume is None) as store, ExitStack() as stack:
        session = None if resume is None else choosing.chosen(call, store, resume)
        return asyncio.run(_Chat(call, store, stack, session, model, choices).run(words, attach))


def resume(call: Call, *, prompt: str | None = None, session: str | None = None) -> int:
    """Go on with a Session of this workspace, the newest one where none is named."""
    return chat(call, prompt=prompt, resume=session or choosing.NEWEST)


def _words(prompt: str | None) -> str:
    """The prompt, and what stands in a pipe behind it."""
    given = [text for text in (None if prompt is None else typed(prompt), lines.piped()) if text]
    return "\n\n".join(given)


def _attended(call: Call) -> bool:
    return lines.is_attended() and not call.out.json


class _Chat:
    """What one run of the command holds: a store, perhaps a Session, and the model once somebody has said something."""

    def __init__(
        self,
        call: Call,
        store: MemoryStore,
        stack: ExitStack,
        session: Session | None,
        model: str | None,
        choices: Choices,
    ) -> None:
        self._call = call
        self._store = store
        self._stack = stack
        self._session = session
        self._reference = model
        self._choices = choices
        self._attended = _attended(call)
        self._lines = (
            lines.TerminalLines(call.home.root / lines.HISTORY_NAME, tuple(COMMANDS)) if self._attended else None
        )
        self._loading: asyncio.Future[AgentSetup] | None = None
        self._interrupts: Interrupts | None = None

    async def run(self, words: str, attach: Sequence[str]) -> int:
        """Talk until it is over; return the exit code. Raises: EmelexError of a chat that nobody attends."""
        self._interrupts = interrupts = Interrupts()
        teller = self._teller()
        distill = self._call.config.distillation.enabled
        conversation = Conversation(self._call.out, teller, self._attach, interrupts, distill=distill)
        with interrupts.taken():
            try:
                for name in attach:
                    place = self._call.place(name)
                    conversation.media.append(await asyncio.to_thread(store_file, self._store, place))
                await self._talk(conversation, words)
            except Cancelled:
                if interrupts.exit_code is None:
                    raise
            except asyncio.CancelledError:
                if not interrupts.take_stopped():
                    raise
                if interrupts.exit_code is None:
                    raise Cancelled("stopped before anything was said") from None
            finally:
                await conversation.close()
        teller.finish()
        self._farewell(conversation)
        return interrupts.exit_code or 0

    async def _talk(self, conversation: Conversation, words: str) -> None:
        if self._session is not None:
            conversation.agent = await self._attach("")
        if self._lines is None:
            await conversation.say(words)
            return
        commands = ChatCommands(
            self._call,
            self._store,
            resume=self._resume,
            model=self._reference,
            media=conversation.media,
            offered=self._offered,
        )
        greeting.greet(self._call, self._model_reference(), tools=self._has_tools(conversation))
        await conversation.attend(self._lines, commands, words)

    async def _attach(self, message: str) -> DurableAgentSession:
        """Begin a Session with its first message, or go on with the one that was chosen."""
        from emelex_core.agent.durable import DurableAgentSession

        setup = await self._loaded()
        if self._session is not None:
            return await self._resume(self._session.id)
        title = title_of(message, bytes_max=limits.TITLE_BYTES_MAX)
        return await DurableAgentSession.open(self._store, self._call.directory, setup, title=title)

    async def _loaded(self) -> AgentSetup:
        """What the chat runs with. Loading goes on when the waiting is stopped, and is waited for the next time."""
        assert self._interrupts is not None
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            self._loading = loading = asyncio.ensure_future(asyncio.to_thread(self._prepared))
            loading.add_done_callback(_heard)
        waiting = asyncio.ensure_future(_until(loading))
        with self._interrupts.working(waiting):
            return await waiting

    async def _resume(self, session_id: str) -> DurableAgentSession:
        from emelex_core.agent.durable import DurableAgentSession

        setup = await self._loaded()
        try:
            agent = await DurableAgentSession.resume(self._store, session_id, self._call.directory, setup)
        except SessionBusy as error:
            explain_busy(error, session_id)
            raise
        interrupted = agent.take_interrupted_turn()
        if interrupted is not None:
            recover_cmd.tell(self._call, interrupted)
        return agent

    def _model_reference(self) -> str:
        """What answers, as far as that is known before a model is loaded."""
        begun_with = None if self._session is None else self._session.model_reference
        return self._reference or begun_with or self._call.config.models.default

    def _has_tools(self, conversation: Conversation) -> bool:
        if conversation.agent is not None:
            return bool(conversation.agent.agent.declarations)
        return greeting.has_tools(self._model_reference(), self._choices.tools)

    def _offered(self) -> Sequence[ToolDeclaration]:
        """The tools that a new chat will offer."""
        from emelex_cli.chat.preparing import offered

        return offered(self._call) if greeting.has_tools(self._model_reference(), self._choices.tools) else ()

    def _prepared(self) -> AgentSetup:
        from emelex_cli.chat.preparing import prepare
        from emelex_core.agent.approvals import deny

        return prepare(
            self._call,
            self._store,
            self._stack,
            session=self._session,
            reference=self._reference,
            choices=self._choices,
            approve=self._approve if self._attended else deny,
            recollect=self._recollect,
        )

    async def _recollect(self, words: str) -> tuple[Knowledge, ...]:
        """What the workspace knows that fits, and a word about it."""
        found = await asyncio.to_thread(self._store.recall, self._call.directory, words)
        if not found.entries:
            return ()
        if self._call.out.json:
            self._call.out.record(
                {"type": "knowledge_recalled", "keys": [entry.key for entry in found.entries]}, now=True
            )
        elif self._attended:
            say(f"  (reminded of {counted(len(found.entries), 'Knowledge entry')})")
        return found.entries

    async def _approve(self, request: ApprovalRequest) -> ApprovalDecision:
        """Show what would happen and ask; a Ctrl-C is a no, and stops the turn."""
        from emelex_core.agent.ports import ApprovalDecision

        assert self._lines is not None
        assert self._interrupts is not None
        say(f"\n{neutralise(request.text)}")
        if request.caution is not None:
            say(f"careful: {one_line(request.caution)}")
        asking = asyncio.ensure_future(self._lines.confirm("allow it?"))
        try:
            with self._interrupts.asking(asking):
                granted = await asking
        except lines.Interrupted:
            self._interrupts.typed()
            granted = False
        except asyncio.CancelledError:
            # By a signal, which has stopped the turn already; or by the turn, which was stopped.
            if not self._interrupts.take_stopped():
                raise
            granted = False
        return ApprovalDecision(granted=granted, reason="" if granted else "the person said no")

    def _teller(self) -> Teller:
        if self._call.out.json:
            return JsonTeller(self._call.out)
        if not self._attended or not can_show():
            return PlainTeller(self._call.out)
        from rich.console import Console

        return ScreenTeller(Console())

    def _farewell(self, conversation: Conversation) -> None:
        session = conversation.session_id
        if self._call.out.json:
            job = None if conversation.job is None else conversation.job.id
            self._call.out.record(
                {"type": "chat_complete", "session": session, "turns": conversation.turns, "distillation": job},
                now=True,
            )
        elif session is not None and self._attended:
            queued = "; queued for Knowledge, `emelex memory work` does it" if conversation.job is not None else ""
            self._call.out.note(f"Session {session[:8]} is closed{queued}")


async def _until(loading: asyncio.Future[AgentSetup]) -> AgentSetup:
    return await asyncio.shield(loading)


def _heard(loading: asyncio.Future[AgentSetup]) -> None:
    """Take note of a failure that nobody waits for any more; the next message meets it again."""
    if not loading.cancelled():
        loading.exception()
