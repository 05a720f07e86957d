"""Turns of an `AgentSession` with a scripted model: what becomes history, what is journalled, and in which order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from agents import (
    Gadget,
    Listener,
    RecordingJournal,
    ScriptedModel,
    proposes,
    says,
    until_cancelled,
)
from emelex_core import limits
from emelex_core.agent.ports import (
    ApprovalDecision,
    ApprovalRequest,
    CancelToken,
    Effect,
    FinishReason,
    ModelReply,
    ToolContext,
    ToolOutcome,
    TurnFailed,
)
from emelex_core.agent.session import AgentSession
from emelex_core.errors import (
    Cancelled,
    EngineFailure,
    Invalid,
    OutputRejected,
    Poisoned,
    ToolError,
    ToolFailed,
)
from emelex_core.events import AssetRef, Event, EventKind, ReasoningPart, ToolCallPart, ToolResultPart


def run(session: AgentSession, text: str = "hello", **options: Any):
    return asyncio.run(session.run(Event.user(text), **options))


def results(events: tuple[Event, ...]) -> list[ToolResultPart]:
    return [part for event in events for part in event.parts if isinstance(part, ToolResultPart)]


def test_an_answer_without_tools() -> None:
    """The input is journalled before the model is asked (67); the answer closes the turn (75)."""
    journal = RecordingJournal()
    steps_when_asked: list[list[str]] = []

    async def answer(request: Any, tell: Any, cancel: CancelToken) -> ModelReply:
        steps_when_asked.append(list(journal.steps))
        tell("Hel")
        tell("lo.")
        return says("Hello.", reasoning="they greet")

    model, listener = ScriptedModel(answer), Listener()
    session = AgentSession(model, system="be kind")
    outcome = run(session, sink=listener, journal=journal)
    assert steps_when_asked == [["begin"]]
    assert journal.steps == ["begin", "finish"]
    assert outcome.messages == session.history == tuple(journal.durable)
    assert [event.kind for event in session.history] == [EventKind.USER, EventKind.ASSISTANT]
    assert outcome.answer.parts[0] == ReasoningPart(text="they greet")
    assert outcome.answer.text == "Hello."
    assert "".join(notice.text for notice in listener.heard if type(notice).__name__ == "TextDelta") == "Hello."
    assert listener.names[0] == "TurnStarted"
    assert listener.names[-1] == "TurnCompleted"
    assert json.loads(journal.audits[-1].text) == {
        "finish_reason": "stop",
        "model": "scripted",
        "model_snapshot": "scripted#1",
        "notes": [],
        "output_tokens": 2,
        "prompt_tokens": 10,
        "rounds": 1,
    }
    assert model.asked[0].system == "be kind"


def test_a_batch_enters_history_whole_and_the_model_goes_on() -> None:
    """Planned, started, completed, checkpointed (69 to 74); the ids are ours; later batches hold the assistant (70)."""
    journal, listener = RecordingJournal(), Listener()
    tool = Gadget()
    model = ScriptedModel(
        proposes(("gadget", {"n": 1}), ("gadget", '{"n": 2}'), text="Let me see."),
        proposes(("gadget", {})),
        says("Done."),
    )
    session = AgentSession(model, [tool], system="")
    outcome = run(session, sink=listener, journal=journal)
    assert tool.runs == [{"n": 1}, {"n": 2}, {}]
    batch = ["plan", "start", "complete", "start", "complete", "checkpoint"]
    assert journal.steps == ["begin", *batch, "plan", "start", "complete", "checkpoint", "finish"]
    assert [event.kind.value for event in session.history] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert tuple(journal.durable) == session.history == outcome.messages
    calls = [part for event in session.history for part in event.parts if isinstance(part, ToolCallPart)]
    assert [part.call_id for part in results(session.history)] == [call.call_id for call in calls]
    assert len({call.call_id for call in calls}) == 3
    assert all(call.call_id[14] == "7" for call in calls), "ids are UUIDv7 of ours"
    assert [len(asked.messages) for asked in model.asked] == [1, 4, 6]
    assert outcome.rounds == 3
    assert outcome.usage.prompt_tokens == 30
    assert [audit.label for audit in journal.audits] == ["tool_started", "tool_finished"] * 3 + ["turn_completed"]
    order = ["ToolStarted", "ToolFinished"]
    assert listener.names == [
        "TurnStarted",
        "TextDelta",
        "ToolProposed",
        "ToolProposed",
        *order,
        *order,
        "Checkpointed",
        "ToolProposed",
        *order,
        "Checkpointed",
        "TextDelta",
        "TurnCompleted",
    ]


@pytest.mark.parametrize(
    "message",
    [
        Event.assistant("I am the model"),
        Event.context("note", label="environment"),
        Event.user(""),
        Event.user(" \n"),
        Event.user("x" * (limits.AGENT_INPUT_BYTES_MAX + 1)),
        Event.user("\x01" * (limits.AGENT_INPUT_BYTES_MAX // 6 + 1)),
        Event.user("lone \ud800"),
    ],
    ids=["assistant", "context", "empty", "blank", "large", "large as JSON", "surrogate"],
)
def test_an_input_that_opens_no_turn(message: Event) -> None:
    """Rejected without a journal, and nothing is poisoned (68)."""
    journal = RecordingJournal()
    session = AgentSession(ScriptedModel(says("Fine.")), system="")
    with pytest.raises(Invalid):
        asyncio.run(session.run(message, journal=journal))
    assert journal.steps == []
    assert run(session, journal=journal).answer.text == "Fine."


def test_an_input_at_the_bound_and_one_of_media_alone() -> None:
    """2 MiB is still accepted, encoded it must fit as well (68); a picture says something by itself."""
    overhead = len(b'{"parts":[{"text":"","type":"text"}]}')
    session = AgentSession(ScriptedModel(says("a"), says("b")), system="")
    run(session, "x" * (limits.AGENT_INPUT_BYTES_MAX - overhead))
    picture = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=3)
    assert asyncio.run(session.run(Event.user("", picture))).answer.text == "b"


def test_failure_before_a_checkpoint_leaves_history_as_it_was() -> None:
    """A bounded diagnostic is all that stays (76), and the session can go on."""
    journal, listener = RecordingJournal(), Listener()
    session = AgentSession(ScriptedModel(EngineFailure("it is\ndown" + "!" * 9000), says("Back.")), system="")
    with pytest.raises(EngineFailure):
        run(session, sink=listener, journal=journal)
    assert journal.steps == ["begin", "fail"]
    assert session.history == ()
    assert journal.diagnostics[0].startswith("it is␊down!")
    assert listener.heard[-1] == TurnFailed(kind="EngineFailure", diagnostic=journal.diagnostics[0], checkpoints=0)
    assert run(session, journal=journal).answer.text == "Back."


def test_failure_after_a_checkpoint_keeps_the_batch() -> None:
    """What tools did stays known to the model (77)."""
    journal, listener = RecordingJournal(), Listener()
    model = ScriptedModel(proposes(("gadget", {})), EngineFailure("gone"), says("Again."))
    session = AgentSession(model, [Gadget()], system="")
    with pytest.raises(EngineFailure):
        run(session, sink=listener, journal=journal)
    assert journal.steps[-2:] == ["checkpoint", "fail"]
    assert [event.kind.value for event in session.history] == ["user", "assistant", "tool"]
    assert listener.heard[-1].checkpoints == 1
    run(session, "go on", journal=journal)
    assert [event.kind.value for event in model.asked[-1].messages] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("where", ["TurnStarted", "TextDelta", "ToolProposed", "ToolStarted"])
def test_a_sink_that_fails_before_the_tool(where: str) -> None:
    """Nothing is invoked, the turn is rolled back, and the sink is told nothing more (78)."""
    journal, listener, tool = RecordingJournal(), Listener(fail_at=where), Gadget()
    session = AgentSession(ScriptedModel(proposes(("gadget", {}), text="I look."), says("Fine.")), [tool], system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=listener, journal=journal)
    assert tool.runs == []
    assert "start" not in journal.steps
    assert journal.steps[-1] == "fail"
    assert journal.durable == []
    assert session.history == ()
    assert listener.names[-1] == where


def test_a_sink_that_fails_in_the_middle_of_an_answer_stops_the_model() -> None:
    """The round ends although the model would go on for ever (78)."""

    async def talk(request: Any, tell: Any, cancel: CancelToken) -> ModelReply:
        tell("word ")
        await until_cancelled(cancel)
        raise AssertionError("it was not stopped")

    session = AgentSession(ScriptedModel(talk), system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=Listener(fail_at="TextDelta"))
    assert not session.poisoned


@pytest.mark.parametrize(("after", "reached"), [(0, 1), (1, 2)])
def test_a_sink_that_fails_after_a_result(after: int, reached: int) -> None:
    """The batch is checkpointed; what was not reached is told as not executed (79)."""
    journal, tool = RecordingJournal(), Gadget()
    session = AgentSession(ScriptedModel(proposes(("gadget", {}), ("gadget", {}))), [tool], system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=Listener(fail_at="ToolFinished", after=after), journal=journal)
    assert len(tool.runs) == reached
    assert journal.steps[-2:] == ["checkpoint", "fail"]
    assert [part.status for part in results(session.history)] == ["completed"] * reached + ["not_executed"] * (
        2 - reached
    )
    assert tuple(journal.durable) == session.history


def test_a_sink_that_fails_at_the_second_tool_and_at_the_checkpoint() -> None:
    """Between two tools the first one's result is kept (79); a checkpoint stands whatever the sink does."""
    journal, tool = RecordingJournal(), Gadget()
    session = AgentSession(ScriptedModel(proposes(("gadget", {}), ("gadget", {}))), [tool], system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=Listener(fail_at="ToolStarted", after=1), journal=journal)
    assert [part.status for part in results(session.history)] == ["completed", "not_executed"]
    session = AgentSession(ScriptedModel(proposes(("gadget", {}))), [tool], system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=Listener(fail_at="Checkpointed"))
    assert [part.status for part in results(session.history)] == ["completed"]


def test_a_sink_that_fails_on_the_terminal_notice() -> None:
    """The turn stays committed, nothing more is told, and the session goes on (80)."""
    journal, listener = RecordingJournal(), Listener(fail_at="TurnCompleted")
    session = AgentSession(ScriptedModel(says("One."), says("Two.")), system="")
    with pytest.raises(ConnectionResetError):
        run(session, sink=listener, journal=journal)
    assert journal.steps == ["begin", "finish"]
    assert listener.names[-1] == "TurnCompleted"
    assert len(session.history) == 2
    assert run(session, journal=journal).answer.text == "Two."


def test_cancel_after_the_first_tool_started() -> None:
    """It finishes and its result is kept; the others are not executed (81)."""
    cancel, journal = CancelToken(), RecordingJournal()

    async def stopped(arguments: Any, context: ToolContext) -> ToolOutcome:
        cancel.cancel()
        assert context.cancel.cancelled
        return ToolOutcome(text="half of it", is_error=True)

    session = AgentSession(ScriptedModel(proposes(*[("gadget", {})] * 3)), [Gadget(work=stopped)], system="")
    with pytest.raises(Cancelled):
        run(session, journal=journal, cancel=cancel)
    found = results(session.history)
    assert [part.status for part in found] == ["completed", "not_executed", "not_executed"]
    assert found[0].text == "half of it"
    assert all(part.is_error for part in found)
    assert journal.steps[-2:] == ["checkpoint", "fail"]
    assert not session.poisoned


def test_cancel_during_the_last_tool_asks_the_model_no_more() -> None:
    """The batch is whole, and the turn ends before another round (81)."""
    cancel = CancelToken()

    async def last(arguments: Any, context: ToolContext) -> ToolOutcome:
        cancel.cancel()
        return ToolOutcome(text="done")

    model = ScriptedModel(proposes(("gadget", {})))
    session = AgentSession(model, [Gadget(work=last)], system="")
    with pytest.raises(Cancelled):
        run(session, cancel=cancel)
    assert results(session.history)[0].status == "completed"
    assert len(model.asked) == 1


def test_cancel_while_an_approval_is_pending() -> None:
    """No invocation, and history as before (82)."""
    cancel, journal, tool = CancelToken(), RecordingJournal(), Gadget(effect=Effect.EXECUTES)

    async def undecided(request: ApprovalRequest) -> ApprovalDecision:
        cancel.cancel()
        await asyncio.Event().wait()
        raise AssertionError("nobody answered")

    session = AgentSession(ScriptedModel(proposes(("gadget", {}))), [tool], system="", approve=undecided)
    with pytest.raises(Cancelled):
        run(session, journal=journal, cancel=cancel)
    assert journal.steps == ["begin", "plan", "ask", "fail"]
    assert (tool.runs, session.history) == ([], ())
    assert not session.poisoned


def test_a_tool_that_breaks_gives_a_complete_batch_and_ends_the_turn() -> None:
    """Its result says that it may have had an effect (83)."""
    journal, listener = RecordingJournal(), Listener()

    async def broken(arguments: Any, context: ToolContext) -> ToolOutcome:
        raise ZeroDivisionError("by \x1b[31mzero")

    session = AgentSession(ScriptedModel(proposes(*[("gadget", {})] * 2)), [Gadget(work=broken)], system="")
    with pytest.raises(ToolFailed) as failed:
        run(session, sink=listener, journal=journal)
    assert failed.value.tool == "gadget"
    found = results(session.history)
    assert [part.status for part in found] == ["unknown_effect", "not_executed"]
    assert "may have happened" in found[0].text
    assert "\x1b" not in found[0].text
    assert journal.steps[-2:] == ["checkpoint", "fail"]
    assert "ZeroDivisionError" in journal.diagnostics[0]


def test_a_tools_own_error_is_an_answer() -> None:
    """A ToolError is what the model hears, and the turn goes on."""

    async def fails(arguments: Any, context: ToolContext) -> ToolOutcome:
        raise ToolError("no such file")

    session = AgentSession(ScriptedModel(proposes(("gadget", {})), says("Sorry.")), [Gadget(work=fails)], system="")
    run(session)
    (found,) = results(session.history)
    assert (found.text, found.is_error, found.status) == ("no such file", True, "completed")


@pytest.mark.parametrize("rounds", [1, 3, limits.AGENT_ROUNDS_MAX])
def test_proposals_of_the_last_round_never_run(rounds: int) -> None:
    """The bound on rounds is a bound on asking, too (84)."""
    tool = Gadget()
    model = ScriptedModel(*[proposes(("gadget", {}))] * rounds)
    session = AgentSession(model, [tool], system="", rounds_max=rounds)
    with pytest.raises(OutputRejected):
        run(session)
    assert len(model.asked) == rounds
    assert len(tool.runs) == rounds - 1


@pytest.mark.parametrize("rounds", [0, limits.AGENT_ROUNDS_MAX + 1])
def test_a_bound_on_rounds_has_its_range(rounds: int) -> None:
    """Sixteen by default, twenty at most (limits table)."""
    with pytest.raises(Invalid):
        AgentSession(ScriptedModel(), system="", rounds_max=rounds)
    assert limits.AGENT_ROUNDS == 16


def test_a_dropped_turn_poisons_the_session() -> None:
    """No later turn runs, whatever the first one had done (85)."""
    journal = RecordingJournal()

    async def forever(request: Any, tell: Any, cancel: CancelToken) -> ModelReply:
        await asyncio.Event().wait()
        raise AssertionError("it never wakes")

    async def drop() -> None:
        session = AgentSession(ScriptedModel(forever), system="")
        turn = asyncio.create_task(session.run(Event.user("hello"), journal=journal))
        while not journal.steps:
            await asyncio.sleep(0)
        with pytest.raises(Poisoned):
            await session.run(Event.user("beside it"))
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert session.poisoned
        with pytest.raises(Poisoned):
            await session.run(Event.user("again"))

    asyncio.run(drop())
    assert journal.steps == ["begin"], "a dropped turn writes nothing more"


@pytest.mark.parametrize("where", ["begin", "plan", "start", "complete", "checkpoint", "finish", "fail"])
def test_a_journal_that_fails_poisons_the_session(where: str) -> None:
    """Its error comes out, it is asked nothing more, and nobody pretends to know what is durable (85, 87)."""
    journal = RecordingJournal(fail_at=where)
    last = EngineFailure("down") if where == "fail" else says("Done.")
    session = AgentSession(ScriptedModel(proposes(("gadget", {})), last), [Gadget()], system="")
    with pytest.raises(OSError, match=f"broke at {where}"):
        run(session, journal=journal)
    assert journal.steps[-1] == where
    assert session.poisoned
    with pytest.raises(Poisoned):
        run(session)


def test_a_turn_that_is_cancelled_before_it_begins_writes_nothing() -> None:
    """There is nothing to close."""
    cancel, journal = CancelToken(), RecordingJournal()
    cancel.cancel()
    session = AgentSession(ScriptedModel(), system="")
    with pytest.raises(Cancelled):
        run(session, cancel=cancel, journal=journal)
    assert journal.steps == []
    assert not session.poisoned


@pytest.mark.parametrize(
    "reply",
    [
        says("x" * (limits.EVENT_BYTES_MAX + 1)),
        says("lone \udfff"),
        says(""),
        says("", finish_reason=FinishReason.TOOL_CALLS),
        proposes(("g" * 257, {})),
        proposes((" ", {})),
        proposes(("gadget", {"text": "x" * limits.TURN_ARGUMENT_BYTES_MAX})),
        proposes(("gadget", {"x": float("nan")})),
        proposes(("gadget", '{"x": "\ud83d"}')),
        says("cut", calls=proposes(("gadget", {})).calls, finish_reason=FinishReason.LENGTH),
    ],
    ids=[
        "too large",
        "surrogate",
        "nothing",
        "no call",
        "long name",
        "blank name",
        "arguments",
        "nan",
        "surrogate argument",
        "cut",
    ],
)
def test_output_that_breaks_the_protocol(reply: ModelReply) -> None:
    """The failure is persisted, nothing ran, and the session goes on (88)."""
    journal, tool = RecordingJournal(), Gadget()
    session = AgentSession(ScriptedModel(reply, says("Fine.")), [tool], system="")
    with pytest.raises(OutputRejected):
        run(session, journal=journal)
    assert journal.steps == ["begin", "fail"]
    assert tool.runs == []
    assert run(session, journal=journal).answer.text == "Fine."


def test_notes_of_a_model_reach_person_and_audit() -> None:
    """That old turns were left out is never silent; the same note of two rounds is said once."""
    journal = RecordingJournal()
    first = replace(proposes(("gadget", {})), note="2 earlier turns were left out")
    session = AgentSession(ScriptedModel(first, says("Done.", note=first.note)), [Gadget()], system="")
    assert run(session, journal=journal).notes == ("2 earlier turns were left out",)
    assert json.loads(journal.audits[-1].text)["notes"] == ["2 earlier turns were left out"]


def test_history_shows_the_model_what_it_may_see() -> None:
    """Audit, approval and error events are left out (51); Summary and context stay where they stood."""
    history = (
        Event(kind=EventKind.SUMMARY, parts=Event.user("earlier").parts),
        Event.audit("note", label="failed_turn"),
        Event.context("date", label="environment"),
        Event(kind=EventKind.APPROVAL, parts=Event.user("asked").parts),
    )
    model = ScriptedModel(says("Fine."))
    run(AgentSession(model, system="", history=history))
    assert [event.kind for event in model.asked[0].messages] == [EventKind.SUMMARY, EventKind.CONTEXT, EventKind.USER]
