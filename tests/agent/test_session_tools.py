"""What stands between a proposal and a tool: registration, schemas, subsets, approvals and bounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agents import Gadget, Listener, RecordingJournal, ScriptedModel, grants, proposes, says
from emelex_core import limits
from emelex_core.agent.budget import TurnBudget, reserved_bytes
from emelex_core.agent.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Arguments,
    Effect,
    ToolCall,
    ToolContext,
    ToolOutcome,
)
from emelex_core.agent.session import AgentSession
from emelex_core.agent.wording import shortened, visible
from emelex_core.errors import Invalid, OutputRejected, ToolError
from emelex_core.events import Event, ToolCallPart, ToolResultPart

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def run(session: AgentSession, **options: Any):
    return asyncio.run(session.run(Event.user("hello"), **options))


def answers(session: AgentSession) -> list[ToolResultPart]:
    return [part for event in session.history for part in event.parts if isinstance(part, ToolResultPart)]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        (("other", {}), "There is no tool called other. The tools are: gadget."),
        (("oth\x1b[2Jer", {}), "There is no tool called oth␛[2Jer"),
        (("gadget", {}), "'n' is a required property"),
        (("gadget", {"n": "1"}), "$.n: '1' is not of type 'integer'"),
        (("gadget", {"n": 1, "m": 2}), "Additional properties"),
        (("gadget", "[1]"), "not a JSON object"),
        (("gadget", '{"n": 1, "n": 2}'), "stands twice"),
        (("gadget", '{"n": NaN}'), "NaN is not a finite number"),
        (("gadget", '{"n": 1e999}'), "not finite"),
        (("gadget", '{"n": 18446744073709551616}'), "does not fit 64 bits"),
        (("gadget", f'{{"n": {"9" * 5000}}}'), "integer of 5000 digits"),
        (("gadget", '{"n": "\\ud83d"}'), "lone surrogate"),
        (("gadget", "{" + '"a":{' * 70 + "}" * 71), "nested deeper than 64"),
        (("gadget", "rm -rf"), "not JSON"),
    ],
)
def test_a_wrong_proposal_is_refused_in_words(proposal: tuple[str, Any], words: str) -> None:
    """Nothing starts and nobody is asked; the model reads why (183, K10)."""
    journal, tool = RecordingJournal(), Gadget(parameters=NUMBER, effect=Effect.EXECUTES)
    session = AgentSession(ScriptedModel(proposes(proposal), says("Sorry.")), [tool], system="", approve=grants())
    run(session, journal=journal)
    (found,) = answers(session)
    assert words in found.text
    assert (found.is_error, found.status) == (True, "not_executed")
    assert journal.steps == ["begin", "plan", "complete", "checkpoint", "finish"]
    assert tool.runs == []


def test_text_that_is_no_object_is_kept_as_it_was() -> None:
    """It stands under `input`, so that history shows what the model said."""
    session = AgentSession(ScriptedModel(proposes(("gadget", "rm -rf")), says("Sorry.")), [Gadget()], system="")
    run(session)
    (call,) = [part for event in session.history for part in event.parts if isinstance(part, ToolCallPart)]
    assert call.arguments == {"input": "rm -rf"}


def test_a_call_without_arguments_is_an_empty_object() -> None:
    """Servers send an empty text for it."""
    tool = Gadget()
    run(AgentSession(ScriptedModel(proposes(("gadget", " ")), says("Fine.")), [tool], system=""))
    assert tool.runs == [{}]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "$dynamicRef": "other"},
        {"type": "object", "$id": "https://example.org/"},
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"type": "object", "description": "x" * limits.TOOL_SCHEMA_BYTES_MAX},
        {"type": "object", "minProperties": float("inf")},
        nested(40),
    ],
)
def test_schemas_that_are_not_accepted(schema: dict[str, Any]) -> None:
    """Bounded in size and depth, an object, and closed: nothing is ever fetched (66)."""
    with pytest.raises(Invalid):
        AgentSession(ScriptedModel(), [Gadget(parameters=schema)], system="")


def test_schemas_that_refer_to_themselves() -> None:
    """A reference within is followed, one that leads nowhere or in a circle refuses the call and harms nothing."""
    good = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    nowhere = {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}
    circle = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
    for schema, fits in ((good, True), (nowhere, False), (circle, False)):
        tool = Gadget(parameters=schema)
        run(AgentSession(ScriptedModel(proposes(("gadget", {"a": 1})), says("Fine.")), [tool], system=""))
        assert bool(tool.runs) is fits
    assert nested(20), "a schema of depth 41 is within the bound"
    AgentSession(ScriptedModel(), [Gadget(parameters=nested(20))], system="")


def test_names_of_tools() -> None:
    """One name, one tool; at most 256 bytes."""
    with pytest.raises(Invalid):
        AgentSession(ScriptedModel(), [Gadget(), Gadget()], system="")
    with pytest.raises(Invalid):
        AgentSession(ScriptedModel(), [Gadget(name="g" * 257)], system="")
    with pytest.raises(Invalid):
        AgentSession(ScriptedModel(), [Gadget(name="")], system="")


def test_a_disabled_tool_is_not_asked_about_and_not_started() -> None:
    """It stays declared, so that earlier calls are understood (89, 92); enabling it again brings it back."""
    journal, tool = RecordingJournal(), Gadget(effect=Effect.WRITES)
    model = ScriptedModel(proposes(("gadget", {})), says("Oh."), proposes(("gadget", {})), says("Good."))
    approve = grants(True)
    session = AgentSession(model, [tool, Gadget(name="other")], system="", approve=approve)
    session.enable(["other"])
    run(session, journal=journal)
    (found,) = answers(session)
    assert "disabled" in found.text
    assert approve.asked == []
    assert "start" not in journal.steps
    assert [item.name for item in model.asked[0].tools] == ["other"]
    assert [item.name for item in model.asked[0].declared] == ["gadget", "other"]
    session.enable(["gadget", "other"])
    run(session)
    assert len(tool.runs) == len(approve.asked) == 1


def test_an_unknown_tool_cannot_be_enabled() -> None:
    """The old subset stays (90); a new session has all (91)."""
    session = AgentSession(ScriptedModel(), [Gadget(), Gadget(name="other")], system="")
    session.enable(["other"])
    with pytest.raises(Invalid, match="no tool is called thing"):
        session.enable(["gadget", "thing"])
    assert session.enabled == {"other"}
    again = AgentSession(ScriptedModel(), [Gadget(), Gadget(name="other")], system="")
    assert again.enabled == {"gadget", "other"}


def test_approvals_are_asked_each_time() -> None:
    """The same call twice is two questions, and a denial is an answer (one-shot, never cached)."""
    journal, listener, tool = RecordingJournal(), Listener(), Gadget(effect=Effect.EXECUTES)
    approve = grants(True, False, True)
    model = ScriptedModel(proposes(*[("gadget", {"n": 1})] * 3), says("Done."))
    session = AgentSession(model, [tool], system="", approve=approve)
    run(session, sink=listener, journal=journal)
    assert len(approve.asked) == 3
    assert len({request.call.call_id for request in approve.asked}) == 3
    assert len(tool.runs) == 2
    assert [part.status for part in answers(session)] == ["completed", "not_executed", "completed"]
    assert "denied" in answers(session)[1].text
    assert "as scripted" in answers(session)[1].text
    granted = ["ask", "decide", "start", "complete"]
    assert journal.steps == ["begin", "plan", *granted, "ask", "decide", "complete", *granted, "checkpoint", "finish"]
    labels = [audit.label for audit in journal.audits]
    assert labels[:6] == [
        "approval_asked",
        "approval_decided",
        "tool_started",
        "tool_finished",
        "approval_asked",
        "approval_decided",
    ]
    assert json.loads(journal.audits[5].text)["granted"] is False
    assert listener.names.count("ApprovalAsked") == listener.names.count("ApprovalDecided") == 3


@pytest.mark.parametrize("answer", [1, "yes", None])
def test_only_true_grants(answer: object) -> None:
    """What is not exactly a grant is none."""

    async def approve(request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(granted=answer)  # type: ignore[arg-type]  # what a careless caller might return

    tool = Gadget(effect=Effect.WRITES)
    run(AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [tool], system="", approve=approve))
    assert tool.runs == []


def test_nobody_there_means_no() -> None:
    """Without somebody who approves, what would have to be asked does not run; reading does."""
    tools = [Gadget(name=effect.value, effect=effect) for effect in Effect]
    calls = [(effect.value, {}) for effect in Effect]
    session = AgentSession(ScriptedModel(proposes(*calls), says("Oh.")), tools, system="")
    run(session)
    assert [len(tool.runs) for tool in tools] == [1, 0, 0]


def test_a_careful_tool_asks_although_it_only_reads() -> None:
    """Its reason stands beside the text, and the tool hears that it was approved."""
    heard: list[ToolContext] = []

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        heard.append(context)
        return ToolOutcome(text="secret")

    approve = grants(True)
    tool = Gadget(careful="it holds\nkeys", work=work)
    run(AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [tool], system="", approve=approve))
    assert approve.asked[0].caution == "it holds␊keys"
    assert heard[0].approved is True
    free = Gadget(work=work)
    run(AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [free], system=""))
    assert heard[1].approved is False


def test_a_tool_that_cannot_say_what_it_would_do() -> None:
    """Its error is the refusal; nobody is asked, nothing starts, and the turn goes on."""

    class Mute(Gadget):
        def caution(self, arguments: Arguments) -> str | None:
            raise ToolError("these arguments mean nothing")

    journal, tool = RecordingJournal(), Mute(effect=Effect.EXECUTES)
    session = AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [tool], system="", approve=grants())
    run(session, journal=journal)
    (found,) = answers(session)
    assert (found.text, found.status) == ("these arguments mean nothing", "not_executed")
    assert journal.steps == ["begin", "plan", "complete", "checkpoint", "finish"]
    assert tool.runs == []


def test_the_text_of_an_approval_is_bounded_and_visible() -> None:
    """At most 4 KiB, and no control character, no bidirectional override, no invisible one (limits table)."""

    class Loud(Gadget):
        def preview(self, arguments: Arguments) -> str:
            return "echo a\r\nrm b\x1b[2K\x00\x9b\u202e\u200b" + "😀" * 900

    approve = grants(False)
    tool = Loud(effect=Effect.EXECUTES)
    run(AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [tool], system="", approve=approve))
    text = approve.asked[0].text
    assert text.startswith("gadget: echo a␍\nrm b␛[2K␀<U+009B control><U+202E RIGHT-TO-LEFT OVERRIDE><U+200B ZERO")
    assert len(text.encode()) <= limits.APPROVAL_TEXT_BYTES_MAX
    assert text.endswith("😀" * 900)
    assert all(character.isprintable() or character == "\n" for character in text)


def test_too_many_calls_are_told_to_the_model_and_none_runs() -> None:
    """16 a round (limits table): of 17 each that is kept is refused, and the turn goes on."""
    journal, tool = RecordingJournal(), Gadget(effect=Effect.WRITES)
    model = ScriptedModel(proposes(*[("gadget", {})] * (limits.AGENT_CALLS_PER_ROUND_MAX + 1)), says("Oh."))
    session = AgentSession(model, [tool], system="", approve=grants())
    run(session, journal=journal)
    found = answers(session)
    assert len(found) == limits.AGENT_CALLS_PER_ROUND_MAX
    assert {part.status for part in found} == {"not_executed"}
    assert "17 calls were proposed at once, and at most 16 are accepted" in found[0].text
    assert tool.runs == []
    assert "start" not in journal.steps


def test_outputs_are_bounded_each_and_a_turn() -> None:
    """256 KiB each, 768 KiB together; what is cut says so (limits table)."""

    async def loud(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        allowed.append(context.output_bytes_max)
        return ToolOutcome(text="é" * limits.TOOL_OUTPUT_BYTES_MAX)

    allowed: list[int] = []
    session = AgentSession(
        ScriptedModel(proposes(*[("gadget", {})] * 5), says("Done.")), [Gadget(work=loud)], system=""
    )
    run(session)
    sizes = [len(part.text.encode()) for part in answers(session)]
    assert all(size <= limits.TOOL_OUTPUT_BYTES_MAX for size in sizes)
    assert sum(sizes[:3]) <= limits.TURN_OUTPUT_BYTES_MAX
    assert all("bytes in all; the rest is not shown]" in part.text for part in answers(session)[:3])
    assert allowed[0] == limits.TOOL_OUTPUT_BYTES_MAX
    assert allowed[4] < 1024
    assert sum(sizes) < limits.TURN_OUTPUT_BYTES_MAX + 1024
    assert answers(session)[4].text


def test_output_that_is_no_text_is_made_text() -> None:
    """A lone surrogate from a tool is replaced, since no history can hold it."""

    async def odd(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(text="a\udcffb")

    session = AgentSession(ScriptedModel(proposes(("gadget", {})), says("Done.")), [Gadget(work=odd)], system="")
    run(session)
    assert answers(session)[0].text == "a?b"


def test_a_batch_whose_worst_case_does_not_fit_is_rejected_before_any_tool() -> None:
    """15 MiB and 2,048 events a turn, with 12 times 768 KiB and 116 KiB a call reserved (69)."""
    call = ToolCall(call_id="c", name="gadget", arguments={})
    assert reserved_bytes([call]) == 12 * 768 * 1024 + 4 * 1024 + 112 * 1024 + 2
    tool, journal = Gadget(), RecordingJournal()
    big = proposes(("gadget", {}), text="x" * (4 * limits.MIB - 1024))
    small = proposes(("gadget", {}))
    session = AgentSession(ScriptedModel(small, big, big), [tool], system="")
    with pytest.raises(OutputRejected, match="15728640"):
        asyncio.run(session.run(Event.user("y" * (2 * limits.MIB - 1024)), journal=journal))
    assert len(tool.runs) == 1
    assert journal.steps.count("plan") == 1


def test_the_bound_on_events_counts_what_calls_may_leave() -> None:
    """Five a call (69)."""
    budget = TurnBudget(Event.user("x"))
    budget.add(*[Event.user("y")] * (limits.AGENT_TURN_EVENTS_MAX - 1 - 6))
    call = ToolCall(call_id="c", name="gadget", arguments={})
    budget.reserve(Event.assistant("z"), [call])
    budget.add(Event.user("one more"))
    with pytest.raises(OutputRejected, match="2048"):
        budget.reserve(Event.assistant("z"), [call])


def test_arguments_are_counted_over_the_turn() -> None:
    """512 KiB together, however many rounds they come in (limits table)."""
    tool = Gadget()
    half = proposes(("gadget", {"t": "x" * (limits.TURN_ARGUMENT_BYTES_MAX // 2)}))
    session = AgentSession(ScriptedModel(half, half), [tool], system="")
    with pytest.raises(OutputRejected, match="arguments"):
        run(session)
    assert len(tool.runs) == 1


def test_text_is_shortened_at_a_character_and_says_so() -> None:
    """Never in the middle of one, never silently."""
    assert shortened("é" * 10, 20) == "é" * 10
    cut = shortened("é" * 1000, 101)
    assert len(cut.encode()) <= 101
    assert "2000 bytes in all" in cut
    assert visible("a\tb\u00a0c") == "a␉b\u00a0c"
