"""The chat's commands, each a few lines over what the store and the agent offer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from emelex_cli.call import Call
from emelex_cli.chat.conversation import Detached
from emelex_cli.chat.slash import COMMANDS, Command
from emelex_cli.output import neutralise, one_line, path_text
from emelex_cli.shapes import short, size
from emelex_core.errors import EmelexError, Invalid, NotFound, SessionBusy, UsageError

if TYPE_CHECKING:
    from emelex_core.agent.calls import ToolDeclaration
    from emelex_core.agent.durable import DurableAgentSession
    from emelex_core.events import AssetRef
    from emelex_core.knowledge.records import Knowledge
    from emelex_core.store import MemoryStore

    Handler = Callable[[str, DurableAgentSession | None], Awaitable[DurableAgentSession | None]]

_SHOWN: Final = 20
_CONTENT_SHOWN: Final = 160
_RETAKE_SECONDS: Final = 5.0
"""How long a Session that somebody else took meanwhile is waited for."""
_RETRY_SECONDS: Final = 0.2
_NOT_BEGUN: Final = "nothing was said yet, so there is no Session to do this with"


class ChatCommands:
    """Slash commands over one store and one workspace.

    `resume` attaches to a Session again; `offered` says which tools a Session that is not begun yet will have.
    """

    def __init__(
        self,
        call: Call,
        store: MemoryStore,
        *,
        resume: Callable[[str], Awaitable[DurableAgentSession]],
        model: str | None,
        media: list[AssetRef],
        offered: Callable[[], Sequence[ToolDeclaration]],
    ) -> None:
        self._call = call
        self._out = call.out
        self._store = store
        self._resume = resume
        self._model = model
        self._media = media
        self._offered = offered
        self._handlers: dict[str, Handler] = {
            "/help": self._help,
            "/compact": self._compact,
            "/attach": self._attach,
            "/tools": self._tools,
            "/title": self._title,
            "/knowledge": self._knowledge,
        }

    async def do(self, command: Command, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        """Run one command and return the agent to go on with. Raises: EmelexError."""
        return await self._handlers[command.name](command.argument, agent)

    async def _help(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        del argument
        for name, meaning in COMMANDS.items():
            self._out.line(f"{name:<12} {meaning}")
        self._out.line("Alt-Enter begins a new line; Ctrl-C stops an answer; twice, or Ctrl-D, leaves.")
        return agent

    async def _title(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        agent = _begun(agent)
        if argument:
            await agent.set_title(argument)
        self._out.line(one_line(agent.title))
        return agent

    async def _attach(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        if not argument:
            raise UsageError("/attach needs a file")
        ref = await asyncio.to_thread(store_file, self._store, self._call.directory / argument)
        self._media.append(ref)
        self._out.line(f"{ref.media_type}, {size(ref.size)}: it goes with the next message")
        return agent

    async def _tools(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        if agent is None and not argument:
            declared = await asyncio.to_thread(self._offered)
            self._list_tools(declared, {each.name for each in declared})
            return agent
        agent = _begun(agent)
        names = [declared.name for declared in agent.agent.declarations]
        verb, _, name = argument.partition(" ")
        if argument:
            if verb not in ("on", "off") or name.strip() not in names:
                raise UsageError(
                    f"/tools {argument[:60]}: it is `on` or `off`, and one of {', '.join(names) or 'none'}"
                )
            wanted = {*agent.agent.enabled, name.strip()} if verb == "on" else {*agent.agent.enabled} - {name.strip()}
            agent.enable_tools([each for each in names if each in wanted])
        self._list_tools(agent.agent.declarations, agent.agent.enabled)
        return agent

    def _list_tools(self, tools: Sequence[ToolDeclaration], enabled: Collection[str]) -> None:
        for declared in tools:
            state = "on " if declared.name in enabled else "off"
            self._out.line(f"{state}  {declared.name:<16} {one_line(short(declared.description, 90))}")
        if not tools:
            self._out.note("this chat has no tools; `emelex chat --tools` begins one with tools")

    async def _knowledge(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        found = await asyncio.to_thread(self._known, argument)
        for entry in found:
            self._out.line(f"{one_line(entry.key)}  ({entry.confidence:.2f})")
            self._out.line(f"    {neutralise(short(entry.content, _CONTENT_SHOWN))}")
        if not found:
            self._out.note("nothing is known of this workspace" if not argument else "nothing that is known fits")
        return agent

    def _known(self, words: str) -> list[Knowledge]:
        workspace = self._call.directory
        if not words:
            return self._store.list_knowledge(workspace, limit=_SHOWN)
        return [hit.entry for hit in self._store.search_knowledge(workspace, words, limit=_SHOWN)]

    async def _compact(self, argument: str, agent: DurableAgentSession | None) -> DurableAgentSession | None:
        agent = _begun(agent)
        if argument not in ("", "now"):
            raise UsageError("/compact takes nothing, or `now`")
        if not await asyncio.to_thread(self._plan, agent.session_id):
            return agent
        if not argument:
            self._out.note(
                "it waits while this chat holds the Session: `/compact now`, or leave and `emelex memory work`"
            )
            return agent
        return await self._work_and_resume(agent)

    def _plan(self, session_id: str) -> bool:
        """Publish the compaction, or say why there is none; whether one waits now, this one or another."""
        from emelex_core.jobs import reading
        from emelex_core.jobs.kinds import JobKind, JobState
        from emelex_core.publish import PublishedJob
        from emelex_workers.engines import configured_engines
        from emelex_workers.overrides import PolicyOverrides
        from emelex_workers.planning import plan_session

        config = self._call.config
        engines = configured_engines(config, self._call.home, model=self._model, threads=None)
        outcome = plan_session(self._store, session_id, engines, PolicyOverrides.configured(config.compaction))
        database, kind, state = self._store.database, JobKind.COMPACTION, JobState.PENDING
        waiting = reading.list_jobs(database, kind=kind, state=state, session_id=session_id, limit=1)
        if isinstance(outcome, PublishedJob):
            self._out.note(f"compaction {outcome.id[:8]} is {outcome.state}")
        elif waiting:
            self._out.note(f"compaction {waiting[0].id[:8]} waits already")
        else:
            self._out.note(f"no further compaction: {outcome.reason} ({outcome.tokens} tokens)")
        return bool(waiting)

    async def _work_and_resume(self, agent: DurableAgentSession) -> DurableAgentSession:
        """What a person would do by hand: leave, let a worker process work on this Session, come back.

        Stopped midway it comes back at once. Raises: Detached when the Session cannot be taken again.
        """
        await agent.close()
        try:
            code = await self._worker(agent.session_id)
        except asyncio.CancelledError:
            code = None
        try:
            resumed = await self._retake(agent.session_id)
        except EmelexError as error:
            raise Detached(error, session_id=agent.session_id) from error
        if code is None:
            self._out.note("stopped; the compaction waits as before")
        elif code != 0:
            self._out.note(f"the worker ended with exit code {code}; `emelex memory failures` may say why")
        return resumed

    async def _worker(self, session_id: str) -> int:
        """Run a worker process on one Session's compaction and return its exit code; cancelled, it is stopped first."""
        words = ["--home", path_text(self._call.home.root), "-C", path_text(self._call.directory), "memory", "work"]
        model = [] if self._model is None else ["--model", self._model]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "emelex_cli", *words, "--session", session_id, "--kind", "compaction"),
            *model,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            process_group=0,
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            # The terminal's Ctrl-C does not reach its group: it gets this one signal, and gives its claim back.
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise

    async def _retake(self, session_id: str) -> DurableAgentSession:
        """Take the Session again; whoever came between may be gone in a moment. Raises: EmelexError of the resume."""
        clock = asyncio.get_running_loop()
        end = clock.time() + _RETAKE_SECONDS
        while True:
            try:
                return await self._resume(session_id)
            except SessionBusy:
                if clock.time() >= end:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)


def store_file(store: MemoryStore, path: Path) -> AssetRef:
    """Store a file's bytes as an asset. Raises: NotFound, Invalid for what is no medium or no file, Storage."""
    try:
        if path.exists() and not path.is_file():
            raise Invalid(f"{path_text(path)} is no regular file")
        with path.open("rb") as file:
            return store.store_asset(file)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path_text(path)}") from None
    except OSError as error:
        raise Invalid(f"{path_text(path)} cannot be read: {error.strerror}") from None


def _begun(agent: DurableAgentSession | None) -> DurableAgentSession:
    if agent is None:
        raise UsageError(_NOT_BEGUN)
    return agent
