"""Counts of tokens for servers: llama.cpp's, vLLM's, one without a tokenizer, and those that say odd things (176)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from emelex_core.engine import CancelToken, EndpointConfig, Message, Request, Role
from emelex_core.engine import counting as counting_module
from emelex_core.engine.counting import Counter, EndpointTokenizer, forget_servers
from emelex_core.engine.openai import EndpointEngine
from emelex_core.engine.ports import Image
from emelex_core.errors import EngineFailure, PermanentFailure

Answer = tuple[int, Any]
PROSE = "The ships passed the light one after another during the whole night. " * 30


def tokens_of(text: str) -> int:
    """A tokenizer to test with: a token for each five bytes that were begun."""
    return -(-len(text.encode()) // 5)


def template(messages: list[dict[str, Any]]) -> str:
    return "".join(f"<{message['role']}>{message['content']}\n" for message in messages) + "<assistant>"


class Box:
    """A server on loopback; `routes` answer by path, all other paths with 404."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.routes: dict[str, Callable[[dict[str, Any]], Answer]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def config(self, **changes: Any) -> EndpointConfig:
        fields = {"name": "box", "base_url": f"http://127.0.0.1:{self.port}/v1", "model": "m", "context_tokens": 8_192}
        return EndpointConfig(**{**fields, **changes})

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def serving() -> Iterator[Box]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            box.asked.append((self.path, body))
            status, answer = box.routes.get(self.path, lambda _: (404, {"error": "no such path"}))(body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        box = Box(server.server_port)
        box.routes["/v1/chat/completions"] = generated
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield box
        server.shutdown()
        thread.join()


@pytest.fixture
def box() -> Iterator[Box]:
    with serving() as found:
        yield found


def generated(body: dict[str, Any]) -> Answer:
    """A completion with the server's own count of the prompt."""
    choice = {"message": {"content": "Fine."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": tokens_of(template(body["messages"])), "completion_tokens": 2}
    return 200, {"choices": [choice], "usage": usage}


def llama_cpp(box: Box) -> None:
    """llama.cpp's extensions."""

    def tokenize(body: dict[str, Any]) -> Answer:
        return 200, {"tokens": list(range(tokens_of(body.get("content", ""))))}

    box.routes["/tokenize"] = tokenize
    box.routes["/apply-template"] = lambda body: (200, {"prompt": template(body["messages"])})


def vllm(box: Box) -> None:
    """vLLM's, which wants a model and refuses what it does not know."""

    def tokenize(body: dict[str, Any]) -> Answer:
        if body.get("model") != "m" or not {"prompt", "messages"} & set(body):
            return 400, {"error": {"type": "BadRequestError", "code": 400}}
        text = body["prompt"] if "prompt" in body else template(body["messages"])
        count = tokens_of(text)
        return 200, {"count": count, "max_model_len": 8_192, "tokens": list(range(count))}

    box.routes["/tokenize"] = tokenize


def talk(*words: str) -> tuple[Message, ...]:
    return tuple(
        Message(role=Role.ASSISTANT if place % 2 else Role.USER, text=text) for place, text in enumerate(words)
    )


def ask(engine: EndpointEngine, messages: tuple[Message, ...], bound: int = 16) -> int:
    return engine.generate(Request(messages=messages, output_tokens_max=bound), CancelToken()).prompt_tokens


@pytest.mark.parametrize(("serve", "counter"), [(llama_cpp, Counter.LLAMA_CPP), (vllm, Counter.VLLM)])
def test_a_server_that_counts_is_found_and_relied_on(box: Box, serve: Callable[[Box], None], counter: Counter) -> None:
    """Unset means asked: by the first count, once in the engine's life, and once for all engines of a process."""
    serve(box)
    with EndpointEngine(box.config()) as engine:
        assert not engine.info.exact_tokens, "nothing is called exact before it is known"
        assert box.asked == []
        assert engine.count_text(PROSE) == tokens_of(PROSE)
        assert engine.info.exact_tokens
        assert engine.count_prompt(talk("Go.")) == ask(engine, talk("Go."))
    asked = len(box.asked)
    with EndpointTokenizer(box.config()) as tokenizer:
        assert tokenizer.ask() is counter
        assert tokenizer.exact_tokens
        assert len(box.asked) == asked


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}),
        (405, {}),
        (400, {"error": {"code": 400}}),
        (501, {"error": {"type": "not_supported_error"}}),
        (401, {}),
        (200, {"tokens": []}),
        (200, {"tokens": list(range(5_000))}),
        (200, {"tokens": 7}),
        (200, {"count": -1}),
        (200, {"count": 10**9}),
        (200, {"choices": []}),
        (200, b"<html>welcome</html>"),
        (200, b""),
    ],
)
def test_what_is_no_tokenizer_is_asked_once(box: Box, answer: Answer) -> None:
    """A refusal and nonsense are definite: the server is not asked at each count."""
    box.routes["/tokenize"] = lambda _: answer
    with EndpointTokenizer(box.config()) as tokenizer:
        assert tokenizer.ask() is Counter.NOBODY
        assert not tokenizer.exact_tokens
        asked = box.paths().count("/tokenize")
        tokenizer.count_prompt(talk("Go."))
        tokenizer.count_text("Go.")
        assert box.paths().count("/tokenize") == asked == 2


def test_a_tokenizer_without_its_template_does_not_count(box: Box) -> None:
    """A prompt that is counted without the template's tokens could exceed the context."""
    llama_cpp(box)
    del box.routes["/apply-template"]
    with EndpointTokenizer(box.config()) as tokenizer:
        assert tokenizer.ask() is Counter.NOBODY


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(box: Box, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is none: until there is one, counts are called estimated, and nobody waits at each of them."""
    box.routes["/tokenize"] = lambda _: (status, {})
    with EndpointTokenizer(box.config()) as tokenizer:
        assert not tokenizer.exact_tokens
        assert not tokenizer.exact_tokens
        assert box.paths() == ["/tokenize"]
        llama_cpp(box)
        later = counting_module.time.monotonic() + counting_module.AGAIN_SECONDS + 1
        monkeypatch.setattr(counting_module.time, "monotonic", lambda: later)
        assert tokenizer.exact_tokens


def test_what_is_configured_is_not_asked(box: Box) -> None:
    """`true` relies on it, and a server that then does not count is a failure; `false` lets it be."""
    llama_cpp(box)
    with EndpointTokenizer(box.config(tokenize=False)) as tokenizer:
        assert not tokenizer.exact_tokens
    with EndpointTokenizer(box.config(tokenize=True)) as tokenizer:
        assert tokenizer.exact_tokens
    assert box.asked == []
    box.routes["/tokenize"] = lambda _: (200, {"tokens": 3})
    with EndpointTokenizer(box.config(tokenize=True)) as tokenizer, pytest.raises(EngineFailure):
        tokenizer.count_text("Go.")


def test_planning_measures_a_server_that_has_generated_nothing(box: Box) -> None:
    """Breaker's finding: a Session was taken for four times its size. One token is generated, once a process."""
    for _ in range(2):
        with EndpointTokenizer(box.config()) as tokenizer:
            estimate = tokenizer.count_text(PROSE)
            assert tokens_of(PROSE) <= estimate <= 2 * tokens_of(PROSE)
            assert not tokenizer.exact_tokens
    bodies = [body for path, body in box.asked if path == "/v1/chat/completions"]
    assert [body["max_tokens"] for body in bodies] == [1]
    assert PROSE not in json.dumps(bodies), "nothing of a Session is sent for a count"


@pytest.mark.parametrize("answer", [(200, {"choices": []}), (500, {}), (401, {}), (200, b"")])
def test_without_a_measure_a_text_has_its_bytes(box: Box, answer: Answer) -> None:
    """A server that shows nothing is bounded, not guessed at."""
    box.routes["/v1/chat/completions"] = lambda _: answer
    with EndpointTokenizer(box.config()) as tokenizer:
        assert tokenizer.count_text(PROSE) == len(PROSE)
        assert tokenizer.count_text("naïve 😀") == len("naïve 😀".encode())


def test_a_prompt_is_refused_by_its_bound_and_not_by_an_estimate(box: Box) -> None:
    """Behaviour 165: a server that cuts silently would answer half a question."""
    words = talk(PROSE)
    context = tokens_of(PROSE) + 200
    with EndpointEngine(box.config(context_tokens=context)) as engine:
        engine.count_text(PROSE)
        with pytest.raises(PermanentFailure, match="context"):
            ask(engine, words)
        assert "/v1/chat/completions" not in box.paths()


def test_messages_that_the_server_counted_stand_with_its_count(box: Box) -> None:
    """A conversation may fill the context that is there: only what is new stands with its bytes."""
    words = [PROSE[:800], "Short.", PROSE[800:1_600], "Fine."]
    with EndpointEngine(box.config(tokenize=False, context_tokens=8_192)) as engine:
        for turns in (1, 3):
            ask(engine, talk(*words[:turns]))
        whole = talk(*words)
        exact = tokens_of(template([{"role": item.role.value, "content": item.text} for item in whole]))
        assert exact <= engine.count_prompt(whole) <= exact + 64 + 16 + len("Fine.")
        # Where the first turn is left out, the others are known all the same.
        later = engine.count_prompt(talk(*words)[1:3])
        assert tokens_of("".join(words[1:3])) <= later <= tokens_of("".join(words[1:3])) + 100


def test_an_estimate_is_never_below_what_was_observed(box: Box) -> None:
    """Whatever was observed: dense text raises it, and the bytes bound it."""
    dense = "x1{};" * 300
    box.routes["/v1/chat/completions"] = lambda body: (
        200,
        {
            "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": len(body["messages"][0]["content"]) // (2 if "x1" in str(body) else 5)},
        },
    )
    with EndpointEngine(box.config(tokenize=False)) as engine:
        ask(engine, talk(PROSE))
        before = engine.count_text(PROSE)
        assert before >= len(PROSE) // 5
        mixed = dense + PROSE
        used = ask(engine, talk(mixed))
        assert used <= engine.count_text(mixed) <= len(mixed)
        assert engine.count_text(PROSE) >= before


@pytest.mark.parametrize("counts", [[400, 90], [400, 400], [400, 399]])
def test_a_server_whose_counts_contradict_each_other_is_not_believed(box: Box, counts: list[int]) -> None:
    """One that leaves out what it had cached, or cut the prompt: a longer prompt cannot have fewer tokens."""
    said = iter(counts)
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    box.routes["/v1/chat/completions"] = lambda _: (
        200,
        {"choices": [choice], "usage": {"prompt_tokens": next(said)}},
    )
    with EndpointEngine(box.config(tokenize=False)) as engine:
        ask(engine, talk(PROSE))
        assert engine.count_text(PROSE) < len(PROSE)
        ask(engine, talk(PROSE, "and", "more"))
        assert engine.count_text(PROSE) == len(PROSE)
        assert engine.count_prompt(talk(PROSE)) >= len(PROSE)


@pytest.mark.parametrize("count", [0, 1, 10, 10**6])
def test_a_count_that_cannot_be_is_not_taken(box: Box, count: int) -> None:
    """Nor one in which a server counts only what it had not cached."""
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    box.routes["/v1/chat/completions"] = lambda _: (200, {"choices": [choice], "usage": {"prompt_tokens": count}})
    with EndpointEngine(box.config(tokenize=False)) as engine:
        ask(engine, talk(PROSE))
        assert engine.count_text(PROSE) == len(PROSE)


@pytest.mark.parametrize("serve", [llama_cpp, vllm, None])
def test_a_picture_takes_its_place_in_the_prompt(box: Box, serve: Callable[[Box], None] | None) -> None:
    """Whoever counts: words alone are counted, and each picture takes what is configured, or a cautious guess."""
    if serve is not None:
        serve(box)
    picture = Image(media_type="image/png", data=b"\x89PNG" * 1_000)
    bare = Message(role=Role.USER, text="What is it?")
    seen = Message(role=Role.USER, text="What is it?", images=(picture, picture))
    for configured, each in ((None, 2_048), (300, 300)):
        forget_servers()
        with EndpointTokenizer(box.config(images=True, image_tokens=configured)) as tokenizer:
            assert tokenizer.count_prompt((seen,)) == tokenizer.count_prompt((bare,)) + 2 * each
    with EndpointEngine(box.config(images=True, image_tokens=4_096)) as engine, pytest.raises(PermanentFailure):
        ask(engine, (seen,))
    assert "iVBOR" not in json.dumps([body for path, body in box.asked if path != "/v1/chat/completions"])
