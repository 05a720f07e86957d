"""`DurableAgentSession`: one agent on one lease, from `open` to `close` (behaviours 61 to 66, 78 to 93, 166)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import Gadget, Listener, ScriptedModel, grants, proposes, says, until_cancelled
from emelex_core import AssetRef, DurableAgentSession, Event, MemoryStore
from emelex_core.agent.durable_setup import AgentSetup
from emelex_core.agent.ports import Arguments, CancelToken, Effect, ModelIdentity, ToolContext, ToolOutcome
from emelex_core.errors import (
    Cancelled,
    EngineFailure,
    Invalid,
    MissingModelIdentity,
    OutputRejected,
    Poisoned,
    SessionBusy,
    SessionModelMismatch,
    SnapshotMismatch,
    ToolFailed,
    UncertainToolInvocations,
)
from emelex_core.jobs import reading
from emelex_core.sessions.registry import SQL as SESSIONS
from journals import told
from pictures import picture
from stores import rows, sound


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "home", create=True) as opened:
        yield opened


def setup(*steps: Any, tools: tuple[Gadget, ...] = (), **changes: Any) -> AgentSetup:
    """A setup around a scripted model."""
    fields: dict[str, Any] = {"model": ScriptedModel(*steps), "system": "Be brief.", "tools": tools, **changes}
    return AgentSetup(**fields)


Scene = Callable[[DurableAgentSession], Any]


def play(store: MemoryStore, workspace: Path, agent: AgentSetup, scene: Scene, *, session: str | None = None) -> str:
    """Open, or resume, play a scene, and leave; return the Session's id."""

    async def run() -> str:
        opening = (
            DurableAgentSession.open(store, workspace, agent, title="parcels")
            if session is None
            else DurableAgentSession.resume(store, session, workspace, agent)
        )
        async with await opening as opened:
            await scene(opened)
            return opened.session_id

    return asyncio.run(run())


def say(*words: str) -> Scene:
    """Say so many things."""

    async def scene(session: DurableAgentSession) -> None:
        for word in words:
            await session.run(word)

    return scene


def kinds(store: MemoryStore, session_id: str) -> list[str]:
    """The kinds of a Session's events, in order."""
    return [kind for kind, _, _ in told(store, session_id)]


def labels(store: MemoryStore, session_id: str) -> list[str | None]:
    """The labels of a Session's events, in order."""
    return [label for _, label, _ in told(store, session_id)]


def test_a_conversation_is_kept_and_closed(store: MemoryStore, workspace: Path) -> None:
    """61 and 93: a clean close publishes one distillation and releases; nothing is inferred for it."""
    agent = setup(proposes(("gadget", {"n": 1})), says("done"), says("again"), tools=(Gadget(),))
    session_id = play(store, workspace, agent, say("hello", "more"))
    assert kinds(store, session_id) == [
        "user", "assistant", "tool", "audit", "audit", "assistant", "audit", "user", "assistant", "audit",
    ]  # fmt: skip
    assert store.get_session(session_id).held_until is None
    (job,) = reading.list_jobs(store.database)
    assert (job.kind.value, job.state.value, job.session_id) == ("distillation", "pending", session_id)
    assert len(agent.model.asked) == 3  # type: ignore[attr-defined]  # the scripted model keeps what it was asked
    assert store.interrupted_turn(session_id) is None
    assert sound(store.database.path)


def test_a_resume_goes_on_where_it_ended(store: MemoryStore, workspace: Path) -> None:
    """The model sees the exact history; closing again publishes all that was said since, and once."""
    first = setup(proposes(("gadget", {"n": 1})), says("done"), tools=(Gadget(),))
    session_id = play(store, workspace, first, say("hello"))
    again = setup(says("and on"), tools=(Gadget(),))

    async def scene(session: DurableAgentSession) -> None:
        assert session.take_interrupted_turn() is None
        assert [event.kind.value for event in session.agent.history] == ["user", "assistant", "tool", "assistant"]
        await session.run("more")
        job = await session.close()
        assert job is not None
        assert job.through_sequence == store.get_session(session_id).last_sequence
        assert await session.close() is None

    play(store, workspace, again, scene, session=session_id)


def test_a_session_in_which_nothing_was_said_publishes_nothing(store: MemoryStore, workspace: Path) -> None:
    """136: an empty Session has no distillation; it can be resumed with its snapshot."""
    session_id = play(store, workspace, setup(), say())
    assert reading.list_jobs(store.database) == []
    play(store, workspace, setup(says("now")), say("hello"), session=session_id)


async def _refused(store: MemoryStore, session_id: str, place: Path, agent: AgentSetup) -> BaseException:
    with pytest.raises(Exception) as refused:
        await DurableAgentSession.resume(store, session_id, place, agent)
    return refused.value


def test_another_configuration_or_authority_is_refused(store: MemoryStore, workspace: Path) -> None:
    """63: by the place that differs; the Session is free afterwards, and its snapshot as it was."""
    gadget = Gadget(parameters={"type": "object", "properties": {"n": {"type": "integer"}}})
    session_id = play(store, workspace, setup(says("hi"), tools=(gadget,)), say("hello"))
    before = store.session_snapshot(session_id)
    changed = {
        "system": setup(tools=(gadget,), system="Be long."),
        "rounds_max": setup(tools=(gadget,), rounds_max=3),
        "asks": setup(tools=(gadget,), asks=frozenset(Effect)),
        "persona": setup(tools=(gadget,), extra={"persona": "x"}),
        "tools.gadget": setup(),
        "tools.other": setup(tools=(gadget, Gadget(name="other"))),
        "tools.gadget.effect": setup(tools=(Gadget(parameters=gadget.parameters, effect=Effect.WRITES),)),
        "tools.gadget.parameters.properties.n.type": setup(
            tools=(Gadget(parameters={"type": "object", "properties": {"n": {"type": "string"}}}),)
        ),
    }
    for place, agent in changed.items():
        error = asyncio.run(_refused(store, session_id, workspace, agent))
        assert isinstance(error, SnapshotMismatch)
        assert error.difference.startswith(f"{place}: "), error.difference
        assert store.get_session(session_id).held_until is None
    assert store.session_snapshot(session_id) == before


def test_a_tool_s_own_settings_are_part_of_its_authority(store: MemoryStore, workspace: Path) -> None:
    """63: a timeout that was changed is named."""

    class Settled(Gadget):
        def __init__(self, timeout: int) -> None:
            super().__init__(name="shell")
            self.settings = {"timeout": timeout}

    session_id = play(store, workspace, setup(tools=(Settled(30),)), say())
    error = asyncio.run(_refused(store, session_id, workspace, setup(tools=(Settled(60),))))
    assert isinstance(error, SnapshotMismatch)
    assert error.difference == "tools.shell.timeout: 30 != 60"


def test_a_history_without_a_snapshot_is_refused(store: MemoryStore, workspace: Path) -> None:
    """62: none is stored for it."""
    session = store.start_session(workspace, title="imported words")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("hello"), Event.assistant("hi")])
    assert isinstance(asyncio.run(_refused(store, session.id, workspace, setup())), SnapshotMismatch)
    assert store.session_snapshot(session.id) is None
    assert store.get_session(session.id).held_until is None


def test_an_empty_session_may_be_resumed_into_its_first_snapshot(store: MemoryStore, workspace: Path) -> None:
    """61."""
    session = store.start_session(workspace, title="empty")
    play(store, workspace, setup(says("hi")), say("hello"), session=session.id)
    assert store.session_snapshot(session.id) is not None


def test_a_renamed_workspace_rewrites_the_root(store: MemoryStore, workspace: Path) -> None:
    """64: the same directory under another path; all else of the snapshot stands."""
    session_id = play(store, workspace, setup(says("hi")), say("hello"))
    moved = workspace.rename(workspace.with_name("moved"))
    play(store, moved, setup(says("still")), say("there?"), session=session_id)
    found = store.session_snapshot(session_id)
    assert found is not None
    assert found.root_path == str(moved)
    assert store.get_session(session_id).workspace_path == str(moved)


def test_the_model_is_the_one_that_it_began_with(store: MemoryStore, workspace: Path) -> None:
    """65: no identity, another identity; and a bound Session goes by its binding."""
    session_id = play(store, workspace, setup(says("hi")), say("hello"))
    nameless, other = ScriptedModel(), ScriptedModel()
    nameless.identity = None
    other.identity = ModelIdentity(reference="scripted", snapshot_id="scripted#2")
    for model, expected in ((nameless, MissingModelIdentity), (other, SessionModelMismatch)):
        error = asyncio.run(_refused(store, session_id, workspace, setup(model=model)))
        assert type(error) is expected
        assert store.get_session(session_id).held_until is None
    with pytest.raises(MissingModelIdentity):
        play(store, workspace, setup(model=nameless), say())
    assert len(store.list_sessions()) == 1
    with store.database.write() as transaction:
        bound = {"reference": "local:x", "snapshot_id": "local:x@1", "id": session_id, "token": None, "now": 1}
        assert transaction.run(SESSIONS["bind_model"], bound)
    assert isinstance(asyncio.run(_refused(store, session_id, workspace, setup())), SessionModelMismatch)


def test_a_setup_that_makes_no_snapshot_begins_no_session(store: MemoryStore, workspace: Path) -> None:
    """66: a schema that is too deep, two tools of one name, a model without a name; no empty Session is left."""
    deep: Any = {"type": "object"}
    for _ in range(70):
        deep = {"type": "object", "properties": {"x": deep}}
    for agent in (
        setup(tools=(Gadget(parameters=deep),)),
        setup(tools=(Gadget(), Gadget())),
        setup(extra={"x": float("nan")}),
    ):
        with pytest.raises(Invalid):
            play(store, workspace, agent, say())
    assert store.list_sessions() == []


def test_a_session_in_use_is_not_resumed(store: MemoryStore, workspace: Path) -> None:
    """K2: a second terminal is told until when; the first goes on."""

    async def scene(session: DurableAgentSession) -> None:
        error = await _refused(store, session.session_id, workspace, setup())
        assert isinstance(error, SessionBusy)
        assert error.held_until > store.clock()
        await session.run("hello")

    play(store, workspace, setup(says("hi")), scene)


def test_a_failed_turn_leaves_the_agent_usable(store: MemoryStore, workspace: Path) -> None:
    """76 and 77: `failed_turn` before a checkpoint, `failed_turn_after_checkpoint` behind one."""
    agent = setup(
        EngineFailure("ill"),
        proposes(("gadget", {"n": 1})),
        EngineFailure("ill again"),
        says("well"),
        tools=(Gadget(),),
    )

    async def scene(session: DurableAgentSession) -> None:
        for _ in range(2):
            with pytest.raises(EngineFailure):
                await session.run("hello")
            assert not session.poisoned
        await session.run("at last")

    session_id = play(store, workspace, agent, scene)
    assert [label for label in labels(store, session_id) if label and label.startswith("failed")] == [
        "failed_turn",
        "failed_turn_after_checkpoint",
    ]
    assert len(reading.list_jobs(store.database)) == 1


def test_an_input_that_is_refused_is_not_journalled(store: MemoryStore, workspace: Path) -> None:
    """68 and 105: the agent is not poisoned by what it did not begin."""
    agent = setup(says("hi"))

    async def scene(session: DurableAgentSession) -> None:
        unknown = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=1)
        for message in ("", Event.assistant("x"), Event.user("x" * (2 * 1024 * 1024 + 1)), Event.user("look", unknown)):
            with pytest.raises(Invalid):
                await session.run(message)
            assert not session.poisoned
        assert store.interrupted_turn(session.session_id) is None
        await session.run("hello")

    session_id = play(store, workspace, agent, scene)
    assert kinds(store, session_id) == ["user", "assistant", "audit"]


@pytest.mark.parametrize(
    ("fail_at", "expected", "ran"),
    [
        ("ToolStarted", ["unanswered_input", "failed_turn"], 0),
        ("ToolFinished", ["tool_started", "tool_finished", "failed_turn_after_checkpoint"], 1),
        ("TurnCompleted", ["tool_started", "tool_finished", "turn_completed"], 1),
    ],
)
def test_a_sink_that_fails_never_leaves_a_turn_half_told(
    store: MemoryStore, workspace: Path, fail_at: str, expected: list[str], ran: int
) -> None:
    """78: nothing invoked. 79: the batch is checkpointed. 80: the turn stays committed, without an error event."""
    gadget = Gadget()
    agent = setup(proposes(("gadget", {"n": 1})), says("done"), says("more"), tools=(gadget,))

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises(ConnectionResetError):
            await session.run("hello", sink=Listener(fail_at))
        assert not session.poisoned
        assert len(gadget.runs) == ran
        assert [label for label in labels(store, session.session_id) if label] == expected
        agent.model.steps = [says("more")]  # type: ignore[attr-defined]  # the scripted model's script
        await session.run("still there?")

    play(store, workspace, agent, scene)


def test_a_cancelled_turn_keeps_what_ran(store: MemoryStore, workspace: Path) -> None:
    """81: the first call's result stays, the others are not executed; the agent goes on."""
    cancel = CancelToken()

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        cancel.cancel()
        return ToolOutcome(text="finished all the same")

    gadget = Gadget(work=work)
    agent = setup(proposes(*[("gadget", {"n": n}) for n in range(3)]), says("later"), tools=(gadget,))

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises(Cancelled):
            await session.run("hello", cancel=cancel)
        await session.run("go on")

    session_id = play(store, workspace, agent, scene)
    assert [gist for kind, _, gist in told(store, session_id) if kind == "tool"] == [
        "completed",
        "not_executed",
        "not_executed",
    ]
    assert len(gadget.runs) == 1


def test_a_cancelled_approval_leaves_no_trace(store: MemoryStore, workspace: Path) -> None:
    """82: no invocation, the history unchanged; what was journalled of the batch is gone."""
    cancel = CancelToken()
    gadget = Gadget(effect=Effect.WRITES)

    async def approve(request: Any) -> Any:
        assert rows(store.database.path, "SELECT state FROM pending_approvals") == [("asked",)]
        cancel.cancel()
        await until_cancelled(cancel)

    agent = setup(proposes(("gadget", {"n": 1})), tools=(gadget,), approve=approve)

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises(Cancelled):
            await session.run("hello", cancel=cancel)
        assert session.agent.history == ()

    session_id = play(store, workspace, agent, scene)
    assert labels(store, session_id) == ["unanswered_input", "failed_turn"]
    assert gadget.runs == []


def test_a_broken_tool_has_a_possible_effect(store: MemoryStore, workspace: Path) -> None:
    """83: the batch is complete, the broken call of unknown effect; a resume needs no acceptance for it."""

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        raise OSError("the disk is gone")

    agent = setup(proposes(("gadget", {"n": 1}), ("gadget", {"n": 2})), says("later"), tools=(Gadget(work=work),))

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises(ToolFailed):
            await session.run("hello")
        await session.run("go on")

    session_id = play(store, workspace, agent, scene)
    statuses = [gist for kind, _, gist in told(store, session_id) if kind == "tool"]
    assert statuses == ["unknown_effect", "not_executed"]
    play(store, workspace, setup(tools=(Gadget(),)), say(), session=session_id)


def test_calls_of_the_last_round_never_run(store: MemoryStore, workspace: Path) -> None:
    """84."""
    gadget = Gadget()
    agent = setup(proposes(("gadget", {"n": 1})), proposes(("gadget", {"n": 2})), tools=(gadget,), rounds_max=2)

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises(OutputRejected):
            await session.run("hello")

    session_id = play(store, workspace, agent, scene)
    assert gadget.runs == [{"n": 1}]
    assert labels(store, session_id)[-1] == "failed_turn_after_checkpoint"


def test_an_answer_that_is_too_large_is_a_failed_turn(store: MemoryStore, workspace: Path) -> None:
    """88: the failure is kept, the agent goes on."""
    agent = setup(says("x" * (5 * 1024 * 1024)), says("short"))

    async def scene(session: DurableAgentSession) -> None:
        with pytest.raises((OutputRejected, Invalid)):
            await session.run("hello")
        assert not session.poisoned
        await session.run("shorter, please")

    session_id = play(store, workspace, agent, scene)
    assert labels(store, session_id)[:2] == ["unanswered_input", "failed_turn"]


def test_an_approval_is_journalled_with_its_answer(store: MemoryStore, workspace: Path) -> None:
    """Asked and decided are durable before the call starts; a denial is the call's result."""
    seen: list[list[tuple[Any, ...]]] = []

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        seen.append(rows(store.database.path, "SELECT state FROM pending_approvals ORDER BY ordinal"))
        seen.append(rows(store.database.path, "SELECT state FROM pending_tools ORDER BY ordinal"))
        return ToolOutcome(text="ok")

    gadget = Gadget(effect=Effect.WRITES, work=work)
    agent = setup(
        proposes(("gadget", {"n": 1}), ("gadget", {"n": 2})), says("done"), tools=(gadget,), approve=grants(False, True)
    )
    session_id = play(store, workspace, agent, say("hello"))
    assert seen == [[("denied",), ("granted",)], [("completed",), ("started",)]]
    assert [gist for kind, _, gist in told(store, session_id) if kind == "tool"] == ["not_executed", "completed"]


def test_the_subset_of_tools_lives_in_memory(store: MemoryStore, workspace: Path) -> None:
    """89 to 92: an error result and no start; an unknown name changes nothing; a fresh resume has all of them."""
    one, two = Gadget(name="one"), Gadget(name="two", effect=Effect.WRITES)
    agent = setup(proposes(("two", {"n": 1})), says("done"), tools=(one, two))

    async def scene(session: DurableAgentSession) -> None:
        session.enable_tools(["one"])
        with pytest.raises(Invalid):
            session.enable_tools(["one", "three"])
        assert session.agent.enabled == {"one"}
        await session.run("hello")
        assert rows(store.database.path, "SELECT count(*) FROM pending_tools") == [(0,)]

    session_id = play(store, workspace, agent, scene)
    assert two.runs == []
    before = store.session_snapshot(session_id)

    async def again(session: DurableAgentSession) -> None:
        assert session.agent.enabled == {"one", "two"}
        await session.run("more")

    later = setup(says("fine"), tools=(one, two))
    play(store, workspace, later, again, session=session_id)
    (request,) = later.model.asked  # type: ignore[attr-defined]  # the scripted model keeps what it was asked
    assert [declared.name for declared in request.declared] == ["one", "two"]
    assert store.session_snapshot(session_id) == before


def test_title_and_media_go_through_the_live_claim(store: MemoryStore, workspace: Path) -> None:
    """30 and 102: neither contends with the adapter's own lease."""
    agent = setup(says("I see"))

    async def scene(session: DurableAgentSession) -> None:
        ref = await session.store_asset(picture())
        await session.set_title("pictures")
        assert session.title == "pictures"
        await session.run(Event.user("look", ref))
        with pytest.raises(Invalid):
            await session.set_title(" ")

    session_id = play(store, workspace, agent, scene)
    assert store.get_session(session_id).title == "pictures"
    assert len(store.list_session_assets(session_id)) == 1


def test_a_block_that_fails_only_releases(store: MemoryStore, workspace: Path) -> None:
    """An error of the caller is no clean close: nothing is published, and the Session is free."""

    async def scene(session: DurableAgentSession) -> None:
        await session.run("hello")
        raise LookupError("the caller's own")

    with pytest.raises(LookupError):
        play(store, workspace, setup(says("hi")), scene)
    (found,) = store.list_sessions()
    assert found.held_until is None
    assert reading.list_jobs(store.database) == []


def test_a_dropped_adapter_frees_its_session(store: MemoryStore, workspace: Path) -> None:
    """26: nobody closed it; the Session can be claimed at once, although its keeper thread had a hold of the lease."""

    async def run() -> str:
        session = await DurableAgentSession.open(store, workspace, setup(), title="dropped")
        return session.session_id

    session_id = asyncio.run(run())
    gc.collect()
    store.claim_session(session_id, workspace).release()


def test_a_turn_that_was_left_is_reported_once(store: MemoryStore, workspace: Path) -> None:
    """85 and 86: a dropped future poisons run and close, publishes nothing; the resume tells of it, once."""
    asked = asyncio.Event()

    async def never(request: Any, tell: Any, cancel: CancelToken) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async def run() -> str:
        session = await DurableAgentSession.open(store, workspace, setup(never), title="left")
        turn = asyncio.create_task(session.run("hello"))
        await asked.wait()
        with pytest.raises(Poisoned):
            await session.run("beside it")
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert session.poisoned
        with pytest.raises(Poisoned):
            await session.run("again")
        with pytest.raises(Poisoned):
            await session.close()
        return session.session_id

    session_id = asyncio.run(run())
    assert store.get_session(session_id).held_until is None
    assert reading.list_jobs(store.database) == []

    async def scene(session: DurableAgentSession) -> None:
        found = session.take_interrupted_turn()
        assert found is not None
        assert (found.label, found.input.text) == ("failed_turn", "hello")
        assert session.take_interrupted_turn() is None
        await session.run("once more")

    play(store, workspace, setup(says("hi")), scene, session=session_id)
    assert labels(store, session_id)[:2] == ["unanswered_input", "failed_turn"]
    assert len(reading.list_jobs(store.database)) == 1


def test_a_dropped_tool_is_of_unknown_effect(store: MemoryStore, workspace: Path) -> None:
    """85 and 96: the call had started; the next resume refuses until somebody accepts that."""
    running = asyncio.Event()

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    agent = setup(proposes(("gadget", {"n": 1})), tools=(Gadget(work=work),))

    async def run() -> str:
        session = await DurableAgentSession.open(store, workspace, agent, title="left")
        turn = asyncio.create_task(session.run("hello"))
        await running.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await session.abandon()
        return session.session_id

    session_id = asyncio.run(run())
    error = asyncio.run(_refused(store, session_id, workspace, setup(tools=(Gadget(),))))
    assert isinstance(error, UncertainToolInvocations)
    assert [name for _, name in error.calls] == ["gadget"]
    assert store.get_session(session_id).held_until is None
    store.recover_session(session_id, workspace, accept_unknown_effects=True)

    async def scene(session: DurableAgentSession) -> None:
        assert session.take_interrupted_turn() is None
        statuses = [part.status for event in session.agent.history for part in event.parts if hasattr(part, "status")]
        assert statuses == ["unknown_effect"]

    play(store, workspace, setup(tools=(Gadget(),)), scene, session=session_id)


def test_a_closed_adapter_runs_nothing(store: MemoryStore, workspace: Path) -> None:
    """After close there is no authority."""

    async def scene(session: DurableAgentSession) -> None:
        await session.close()
        with pytest.raises(Poisoned):
            await session.run("hello")
        await session.abandon()

    play(store, workspace, setup(), scene)
