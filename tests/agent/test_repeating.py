"""An answer that goes in circles is stopped, whichever engine writes it, and what it said before is kept."""

from __future__ import annotations

import asyncio

import pytest

from emelex_core.agent.models import REPEATED, EngineModel
from emelex_core.agent.ports import CancelToken, FinishReason, ModelReply, ModelRequest
from emelex_core.agent.repeating import LoopWatch, before_loop
from emelex_core.engine import Generation, Request
from emelex_core.errors import Cancelled, OutputRejected
from emelex_core.events import Event
from scripted import ScriptedEngine

PROSE = " ".join(f"Sentence number {number} says something of its own." for number in range(200))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Well. " + "I do not know that at all. " * 3, "Well. I do not know that at all."),
        ("So: " + "word " * 200, "So: word"),
        ("So: " + "ab cd\n" * 100, "So: ab cd"),
        ("Start. " + "一二三四" * 150, "Start. 一二三四"),
        ("Ends. " + " ".join(f"w{n}" for n in range(40)) + (" " + " ".join(f"w{n}" for n in range(40))) * 3, None),
        (PROSE, None),
        ("Yes. " * 3, None),
        ("-" * 2_000, None),
        ("I do not know that at all. " * 2, None),
        ("", None),
    ],
)
def test_what_is_a_circle(text: str, kept: str | None) -> None:
    """Three equal sentences, or one passage over 120 tokens; short words, lines and prose are none."""
    found = before_loop(text)
    if text.startswith("Ends."):
        assert found is not None
        assert found.count("w39") == 1
    else:
        assert found == kept


def test_the_watch_stops_once_and_passes_nothing_on_after() -> None:
    """What comes while the engine is being stopped is nobody's answer."""
    heard: list[str] = []
    stops: list[bool] = []
    watch = LoopWatch(heard.append, lambda: stops.append(True))
    for _ in range(1_000):
        watch.hear("and so on and ")
    assert stops == [True]
    assert len(heard) < 50
    assert watch.kept == "and so on and"


def respond(model: EngineModel) -> ModelReply:
    request = ModelRequest(system="", messages=(Event.user("go"),), output_tokens_max=64)
    return asyncio.run(model.respond(request, tell=lambda piece: None, cancel=CancelToken()))


@pytest.mark.parametrize("hears", [True, False], ids=["cancelled", "ended by itself"])
def test_an_answer_in_circles_ends_at_its_bound(hears: bool) -> None:
    """The reply says so; an engine that ended before it heard is cut all the same."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        assert request.tell is not None
        for _ in range(60):
            request.tell("I cannot say more than that. ")
            if hears and cancel.cancelled:
                raise Cancelled("stopped")
        return Generation(text="x", finish_reason=FinishReason.STOP, prompt_tokens=1, output_tokens=1, seconds=0.0)

    with EngineModel(ScriptedEngine(write)) as model:
        reply = respond(model)
    assert reply.text == "I cannot say more than that."
    assert (reply.finish_reason, reply.note, reply.calls) == (FinishReason.LENGTH, REPEATED, ())
    assert reply.usage.output_tokens > 0


def test_a_call_in_circles_runs_nothing() -> None:
    """Arguments that go round are no words to keep."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        assert request.tell is not None
        request.tell('{"tool": "shell", "arguments": {"command": "')
        for _ in range(60):
            request.tell("echo and echo and ")
        raise Cancelled("stopped")

    with EngineModel(ScriptedEngine(write)) as model, pytest.raises(OutputRejected, match="repeated itself within"):
        respond(model)


def test_a_person_who_cancels_is_told_so() -> None:
    """A cancellation that nobody but the person asked for stays one."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        raise Cancelled("stopped")

    with EngineModel(ScriptedEngine(write)) as model, pytest.raises(Cancelled):
        respond(model)
