"""`EngineModel`: an engine behind a turn, scripted, as the real built-in model, and over a server with native tools."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import Gadget, Listener, grants
from emelex_core.agent.grammar import call_grammar
from emelex_core.agent.models import EngineModel
from emelex_core.agent.ports import (
    CancelToken,
    Effect,
    FinishReason,
    ModelRequest,
    Sampling,
    ToolChoice,
    ToolContext,
    ToolOutcome,
)
from emelex_core.agent.recalled import RemindedModel
from emelex_core.agent.schemas import argument_check
from emelex_core.agent.session import AgentSession
from emelex_core.agent.tools import standard_tools
from emelex_core.agent.tools.rooted import Root
from emelex_core.engine import ChatEngine, EndpointConfig, EndpointEngine, Generation, Message, Request, Role
from emelex_core.errors import Cancelled, EngineFailure, PermanentFailure
from emelex_core.events import AssetRef, Event, EventKind, TextPart, ToolResultPart
from emelex_core.knowledge.records import Knowledge
from emelex_core.models import BUILTIN_REFERENCE, load_engine, resolve_model
from scripted import ScriptedEngine
from scripted import says as writes

SERVER = Path(__file__).parents[1] / "engine" / "chat_server.py"


def respond(model: EngineModel, *messages: Event, told: list[str] | None = None, **fields: Any):
    known: dict[str, Any] = {"system": "Be brief.", "messages": messages, "output_tokens_max": 64}
    heard: list[str] = [] if told is None else told
    request = ModelRequest(**{**known, **fields})
    return asyncio.run(model.respond(request, tell=heard.append, cancel=CancelToken()))


def generation(text: str, **fields: Any) -> Generation:
    known = {"finish_reason": FinishReason.STOP, "prompt_tokens": 7, "output_tokens": 3, "seconds": 0.0}
    return Generation(text=text, **{**known, **fields})


def test_the_engine_runs_on_one_thread_of_its_own() -> None:
    """Counting as well; text is heard on the loop's thread, before the answer."""
    threads: set[int] = set()
    heard: list[tuple[int, str]] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        threads.add(threading.get_ident())
        assert request.tell is not None
        request.tell("one ")
        request.tell("two")
        return generation("one two")

    class Counting(ScriptedEngine):
        def count_prompt(self, messages: tuple[Message, ...]) -> int:
            threads.add(threading.get_ident())
            return super().count_prompt(messages)

    async def twice() -> None:
        with EngineModel(Counting(write)) as model:
            for _ in range(2):
                request = ModelRequest(system="", messages=(Event.user("hi"),), output_tokens_max=8)
                reply = await model.respond(
                    request, tell=lambda text: heard.append((threading.get_ident(), text)), cancel=CancelToken()
                )
                assert reply.text == "one two"

    asyncio.run(twice())
    assert [text for _, text in heard] == ["one ", "two"] * 2
    assert {thread for thread, _ in heard} == {threading.get_ident()}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_the_prompt_is_the_system_message_and_the_events() -> None:
    """In order; a Summary is untrusted JSON in a user's role (50), context is the user's, media a placeholder."""
    seen: list[tuple[Message, ...]] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        seen.append(request.messages)
        return generation("ok")

    picture = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=3)
    with EngineModel(ScriptedEngine(write)) as model:
        respond(
            model,
            Event(kind=EventKind.SUMMARY, parts=(TextPart(text="a\nb"),)),
            Event.context("today", label="environment"),
            Event.user("look", picture),
        )
    assert [(message.role.value, message.text) for message in seen[0]] == [
        ("system", "Be brief."),
        ("user", '{"untrusted_summary_of_earlier_turns":"a\\nb"}'),
        ("user", "today"),
        ("user", "look\n[image, image/png, 3 bytes, not shown to you]"),
    ]


def test_old_turns_are_left_out_and_the_person_is_told() -> None:
    """The reply carries the note; the engine sees it in the prompt."""
    seen: list[Request] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        seen.append(request)
        return generation("ok")

    history = [event for n in range(50) for event in (Event.user(f"{n} " * 100), Event.assistant("yes " * 100))]
    with EngineModel(ScriptedEngine(write, context=1_000)) as model:
        reply = respond(model, *history, Event.user("now"), output_tokens_max=10_000)
    assert seen[0].output_tokens_max == 500, "an answer gets at most half of the context"
    assert reply.note is not None
    assert "earlier turns were left out" in reply.note
    assert "earlier turns are left out here" in seen[0].messages[1].text
    assert seen[0].messages[-1].text == "now"


def test_a_dropped_round_stops_the_engine() -> None:
    """The engine hears its token, and the next round finds it free."""
    stopped = threading.Event()
    began = threading.Event()

    def write(request: Request, cancel: CancelToken) -> Generation:
        if stopped.is_set():
            return generation("again")
        began.set()
        cancel.wait(20)
        assert cancel.cancelled
        stopped.set()
        raise Cancelled("stopped")

    async def drop() -> None:
        request = ModelRequest(system="", messages=(Event.user("hi"),), output_tokens_max=8)
        with EngineModel(ScriptedEngine(write)) as model:
            waiting = asyncio.create_task(model.respond(request, tell=str, cancel=CancelToken()))
            await asyncio.to_thread(began.wait, 20)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            reply = await model.respond(request, tell=str, cancel=CancelToken())
            assert reply.text == "again"

    asyncio.run(drop())
    assert stopped.is_set()


def test_the_token_stops_the_engine() -> None:
    """From any thread, while the loop waits."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        outer.cancel()
        assert cancel.cancelled
        raise Cancelled("stopped")

    outer = CancelToken()
    request = ModelRequest(system="", messages=(Event.user("hi"),), output_tokens_max=8)
    with EngineModel(ScriptedEngine(write)) as model, pytest.raises(Cancelled):
        asyncio.run(model.respond(request, tell=str, cancel=outer))


def test_identity_and_errors_are_the_engines() -> None:
    """What pins the weights, and what went wrong."""

    def broken(request: Request, cancel: CancelToken) -> Generation:
        raise EngineFailure("it fell over")

    with EngineModel(ScriptedEngine(broken)) as model:
        assert (model.identity.reference, model.identity.snapshot_id) == ("scripted", "scripted@1")
        with pytest.raises(EngineFailure, match="fell over"):
            respond(model, Event.user("hi"))


def test_a_json_call_through_a_whole_turn() -> None:
    """Proposed as JSON, run, and answered in words; nothing of the call is told as text."""
    answers = iter(['{"tool": "gadget", "arguments": {"n": 1}}', "It ran."])

    def write(request: Request, cancel: CancelToken) -> Generation:
        assert request.grammar is not None
        text = next(answers)
        assert request.tell is not None
        request.tell(text)
        return generation(text)

    tool, listener = Gadget(), Listener()
    with EngineModel(ScriptedEngine(write)) as model:
        session = AgentSession(model, [tool], system="Help.")
        outcome = asyncio.run(session.run(Event.user("do it"), sink=listener))
    assert (tool.runs, outcome.answer.text) == ([{"n": 1}], "It ran.")
    assert [notice.text for notice in listener.heard if type(notice).__name__ == "TextDelta"] == ["It ran."]


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.STOP])
def test_a_call_that_was_cut(finish: FinishReason) -> None:
    """At the bound it is the turn's end; a broken one is refused in words."""
    write = writes('{"tool": "gadget", "argum', finish)
    with EngineModel(ScriptedEngine(write)) as model:
        reply = respond(model, Event.user("hi"), tools=(Gadget().declaration,))
    assert reply.calls[0].name == "tool_call"
    assert reply.finish_reason is (FinishReason.LENGTH if finish is FinishReason.LENGTH else FinishReason.TOOL_CALLS)


# --- the real built-in model -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home") / "models"


@pytest.fixture(scope="module")
def builtin(models_dir: Path) -> Iterator[ChatEngine]:
    with load_engine(resolve_model(BUILTIN_REFERENCE, models_dir=models_dir, endpoints={})) as engine:
        yield engine


@pytest.fixture(scope="module")
def model(builtin: ChatEngine) -> Iterator[EngineModel]:
    with EngineModel(builtin) as opened:
        yield opened


@pytest.mark.model
def test_a_real_answer_is_streamed(model: EngineModel) -> None:
    """Several pieces that join to the answer, in a turn."""
    listener = Listener()
    session = AgentSession(model, system="You answer in one short sentence.", output_tokens_max=48)
    outcome = asyncio.run(session.run(Event.user("What is the capital of France?"), sink=listener))
    pieces = [notice.text for notice in listener.heard if type(notice).__name__ == "TextDelta"]
    assert "".join(pieces) == outcome.answer.text
    assert len(pieces) > 1
    assert "Paris" in outcome.answer.text


@pytest.mark.model
def test_a_real_forced_call_runs(model: EngineModel, root: Root, work: Path) -> None:
    """Under the grammar even a model of 135M can only make a call that fits, and its result is understood."""
    (work / "a.txt").write_text("The code is 4711.", "utf-8")
    (tool,) = [tool for tool in standard_tools(root) if tool.declaration.name == "read_file"]
    told: list[str] = []
    question = Event.user("Read the file a.txt.")
    reply = respond(model, question, told=told, tools=(tool.declaration,), choice=ToolChoice.REQUIRED)
    assert (reply.text, told, reply.finish_reason) == ("", [], FinishReason.TOOL_CALLS)
    (call,) = reply.calls
    assert call.name == "read_file"
    assert isinstance(call.arguments, dict)
    assert argument_check(tool.declaration.parameters, what="read_file")(call.arguments) is None
    context = ToolContext(cancel=CancelToken(), approved=False, output_bytes_max=1_000)
    assert "4711" in asyncio.run(tool.run({**call.arguments, "path": "a.txt", "first_line": 1}, context)).text


@pytest.mark.model
def test_every_drawn_call_fits_its_schema(model: EngineModel, root: Root) -> None:
    """At a temperature where the model has no idea any more, for every standard tool and for odd schemas."""
    odd = Gadget(
        name='odd "name" é\n',
        parameters={
            "type": "object",
            "properties": {
                "kind": {"enum": ['a"b', "é", 5, None, True]},
                "list": {"type": "array", "items": {"type": ["integer", "null"]}},
                "flag": {"type": "boolean"},
                "deep": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 812}}},
            },
            "additionalProperties": False,
        },
    )
    tools = (*(tool.declaration for tool in standard_tools(root)), odd.declaration)
    checks = {tool.name: argument_check(tool.parameters, what=tool.name) for tool in tools}
    finished = 0
    for seed in range(12):
        offered = tools if seed % 2 else (tools[seed % len(tools)], odd.declaration)
        reply = respond(
            model,
            Event.user("Do something."),
            tools=offered,
            choice=ToolChoice.REQUIRED,
            sampling=Sampling(temperature=1.5, seed=seed),
            output_tokens_max=160,
        )
        if reply.finish_reason is FinishReason.LENGTH:
            continue
        finished += 1
        (call,) = reply.calls
        assert isinstance(call.arguments, dict)
        assert checks[call.name](call.arguments) is None, call
    assert finished >= 4


@pytest.mark.model
def test_grammars_compile(builtin: ChatEngine, root: Root) -> None:
    """Of every tool alone, of all, and where a schema became any object; words are allowed beside them."""
    declarations = [tool.declaration for tool in standard_tools(root, web=True)]
    loose = Gadget(parameters={"type": "object", "properties": {"a": {"allOf": []}}}).declaration
    for offered in ([declarations[0]], declarations, [loose]):
        for required in (True, False):
            request = Request(
                messages=(Message(role=Role.USER, text="Hi."),),
                output_tokens_max=2,
                grammar=call_grammar(offered, required=required),
            )
            assert builtin.generate(request, CancelToken()).text.startswith("{") is required


@pytest.mark.model
@pytest.mark.parametrize("stream_broken", [False, True])
def test_native_tools_over_a_server(models_dir: Path, builtin: ChatEngine, stream_broken: bool) -> None:
    """The whole way: offered in the protocol's fields, called in pieces of a stream, answered, and told in words."""
    command = [sys.executable, "-P", str(SERVER), str(models_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        config = EndpointConfig(
            name="loop",
            base_url=f"http://127.0.0.1:{port}/v1",
            model="m",
            context_tokens=2_048,
            tools=True,
            tokenize=True,
        )
        ran: list[dict[str, Any]] = []

        async def work(arguments: dict[str, Any], context: ToolContext) -> ToolOutcome:
            ran.append(arguments)
            return ToolOutcome(text="It is sunny.")

        weather = Gadget(
            name="weather",
            work=work,
            parameters={
                "type": "object",
                "properties": {"city": {"type": "string", "minLength": 1}},
                "required": ["city"],
                "additionalProperties": False,
            },
        )
        listener = Listener(fail_at="ToolFinished" if stream_broken else None)
        with EngineModel(EndpointEngine(config)) as model:
            session = AgentSession(model, [weather], system="Answer briefly.", output_tokens_max=64)
            turn = session.run(Event.user("How is the weather in Paris?"), sink=listener)
            if stream_broken:
                with pytest.raises(ConnectionResetError):
                    asyncio.run(turn)
            else:
                outcome = asyncio.run(turn)
                told = "".join(notice.text for notice in listener.heard if type(notice).__name__ == "TextDelta")
                assert told == outcome.answer.text
        process.stdin.close()
    assert len(ran) == 1
    (result,) = [part for event in session.history for part in event.parts if isinstance(part, ToolResultPart)]
    assert (result.text, result.status) == ("It is sunny.", "completed")
    assert json.dumps(ran[0])


def test_pictures_reach_an_engine_that_sees() -> None:
    """Newest first within the bound; one that cannot be read is told as a placeholder."""
    seen: list[Request] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        seen.append(request)
        return generation("ok")

    class Seeing(ScriptedEngine):
        @property
        def info(self):
            from dataclasses import replace

            return replace(super().info, images=True)

    def read(ref: AssetRef) -> bytes:
        if ref.sha256.startswith("bad"):
            raise EngineFailure("gone")
        return b"\x89PNG"

    good = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=4)
    bad = AssetRef(sha256="bad" + "0" * 61, kind="image", media_type="image/png", size=4)
    large = AssetRef(sha256="1" * 64, kind="image", media_type="image/png", size=10**9)
    sound = AssetRef(sha256="2" * 64, kind="audio", media_type="audio/wav", size=4)
    with EngineModel(Seeing(write), read_asset=read) as model:
        respond(model, Event.user("look", good, bad, large, sound))
    message = seen[0].messages[-1]
    assert [image.data for image in message.images] == [b"\x89PNG"]
    assert message.text.count("not shown to you") == 3


def test_a_context_that_tools_and_answer_fill_is_said_in_one_sentence() -> None:
    """It names what is reserved of what, and what helps; no size is ever negative."""
    with EngineModel(ScriptedEngine(context=400)) as model, pytest.raises(PermanentFailure) as caught:
        respond(model, Event.user("hi"), tools=(Gadget(name="g" * 200).declaration,) * 5, output_tokens_max=10_000)
    assert re.search(r"tools and answer reserve \d+ of 400 tokens", caught.value.message)
    assert "--no-tools" in (caught.value.hint or "")
    assert "-" not in caught.value.message


@pytest.mark.parametrize("reminded", [False, True])
def test_no_tool_runs_whose_answer_could_not_be_told(reminded: bool) -> None:
    """The next round is measured before an effect: words that fill the context leave no room for results (88)."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        return generation('{"tool": "gadget", "arguments": {}}')

    async def recollect(words: str) -> tuple[Knowledge, ...]:
        return ()

    tool = Gadget(effect=Effect.WRITES)
    with EngineModel(ScriptedEngine(write, context=1_000)) as model:
        asked = RemindedModel(model, recollect) if reminded else model
        session = AgentSession(asked, [tool], system="", approve=grants(True), output_tokens_max=100)
        with pytest.raises(PermanentFailure, match="newest turn alone"):
            asyncio.run(session.run(Event.user("w" * 3_150)))
        assert (tool.runs, session.history, session.poisoned) == ([], (), False)
