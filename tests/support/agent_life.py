"""A durable agent's life in a process of its own, for crash tests: open or resume, turns with tools, close.

Arguments: home, workspace, kind of tool (read, write, shell), Session id or `-`. Each tool really does something, and
each that changes the workspace writes its call's number down, so that a second run of it would show. `EMELEX_FAULT`
kills at a point; `DIE_IN` names the number of the call that dies after its effect, before its result.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from agents import Gadget, ScriptedModel, proposes, says
from emelex_core import DurableAgentSession, MemoryStore
from emelex_core.agent.durable_setup import AgentSetup
from emelex_core.agent.ports import ApprovalDecision, ApprovalRequest, Arguments, Effect, ToolContext, ToolOutcome
from emelex_core.errors import EngineFailure

EFFECTS = {"read": Effect.READS, "write": Effect.WRITES, "shell": Effect.EXECUTES}
Work = Callable[[Arguments, ToolContext], Awaitable[ToolOutcome]]


def tool(kind: str, workspace: Path) -> Gadget:
    """A tool of one kind whose effect can be counted in `out.txt`; a reading one counts in `read.txt` of the test."""

    def act(number: int) -> str:
        if kind == "read":
            with open(workspace.parent / "read.txt", "a", encoding="utf-8") as file:
                file.write(f"{number}\n")
            return (workspace / "notes.txt").read_text("utf-8")
        if kind == "write":
            with open(workspace / "out.txt", "a", encoding="utf-8") as file:
                file.write(f"{number}\n")
            return f"wrote {number}"
        done = subprocess.run(["/bin/sh", "-c", f"echo {number} >> out.txt"], cwd=workspace, check=True)
        return f"exit {done.returncode}"

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        del context
        text = await asyncio.to_thread(act, arguments["number"])
        if os.environ.get("DIE_IN") == str(arguments["number"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return ToolOutcome(text=text)

    return Gadget(name=kind, effect=EFFECTS[kind], work=work)


async def approve(request: ApprovalRequest) -> ApprovalDecision:
    """Grant everything but the call that is to be denied."""
    return ApprovalDecision(granted=request.call.arguments["number"] != 3, reason="as scripted")


def setup(kind: str, workspace: Path, model: ScriptedModel) -> AgentSetup:
    """The same semantics in every process: all effects are asked for."""
    return AgentSetup(
        model=model,
        system="count",
        tools=[tool(kind, workspace)],
        approve=approve,
        asks=frozenset(Effect),
    )


def script(kind: str) -> ScriptedModel:
    """Two rounds of calls and an answer; then a turn whose model fails; then one without tools."""
    return ScriptedModel(
        proposes((kind, {"number": 1}), (kind, {"number": 2}), (kind, {"number": 3})),
        proposes((kind, {"number": 4})),
        says("counted to four"),
        EngineFailure("the model is ill"),
        says("well again"),
    )


async def live(home: Path, workspace: Path, kind: str) -> None:
    """Live once."""
    with MemoryStore.open(home, create=True) as store:
        agent = setup(kind, workspace, script(kind))
        async with await DurableAgentSession.open(store, workspace, agent, title="count") as session:
            await session.run("count to four")
            try:
                await session.run("fail")
            except EngineFailure:
                print("failed as scripted", flush=True)
            await session.run("and now?")


async def resume(home: Path, workspace: Path, kind: str, session_id: str) -> None:
    """Resume, say one thing, close; print what was found interrupted."""
    with MemoryStore.open(home) as store:
        agent = setup(kind, workspace, ScriptedModel(says("still here")))
        async with await DurableAgentSession.resume(store, session_id, workspace, agent) as session:
            found = session.take_interrupted_turn()
            print("none" if found is None else found.label, flush=True)
            assert session.take_interrupted_turn() is None
            await session.run("are you there?")


def main() -> None:
    home, workspace, kind, session_id = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    asyncio.run(live(home, workspace, kind) if session_id == "-" else resume(home, workspace, kind, session_id))


if __name__ == "__main__":
    main()
