"""A chat server on loopback that runs the built-in model through the llama.cpp engine. Run as a process of its own:

    python -P chat_server.py MODELS_DIR

It prints its port on one line and serves until its standard input closes, so it cannot outlive the test that started
it. It speaks chat completions, whole or as a stream, and llama.cpp's `grammar`, `/tokenize` and `/apply-template`. A
client that goes away cancels its generation. Where tools are offered, the model has to call one until a tool has
answered: a small model would not do so by itself.
"""

from __future__ import annotations

import json
import select
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from emelex_core.agent.calls import ToolDeclaration
from emelex_core.agent.grammar import call_grammar
from emelex_core.engine import CancelToken, Message, Request, Role, Sampling
from emelex_core.engine.llama_cpp import LlamaEngine
from emelex_core.engine.native import bindings
from emelex_core.errors import Cancelled, EmelexError
from emelex_core.models import BUILTIN_REFERENCE, load_engine, resolve_model

SYSTEM_OF_TEMPLATE = "<|im_start|>{role}\n{content}<|im_end|>\n"


class Handler(BaseHTTPRequestHandler):
    """Answers one connection at a time; the engine's lock serialises generations."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            found = self.server.routes[self.path](body, self)
            if found is None:
                return
            status, answer = found
        except Cancelled:
            self.close_connection = True
            return
        except EmelexError as error:
            status, answer = 400, {"error": {"type": "invalid_request_error", "message": error.message}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""


class ModelServer(ThreadingHTTPServer):
    """One engine behind HTTP."""

    daemon_threads = True

    def __init__(self, engine: LlamaEngine) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine
        self.turn = threading.Lock()
        self.routes = {
            "/v1/chat/completions": self.complete,
            "/tokenize": self.tokenize,
            "/apply-template": self.apply_template,
        }

    def complete(self, body: dict, handler: Handler) -> tuple[int, dict] | None:
        stream = Stream(handler) if body["stream"] else None
        calls = bool(body.get("tools")) and body["messages"][-1]["role"] != "tool"
        request = Request(
            messages=tuple(map(plain, body["messages"])),
            output_tokens_max=body["max_tokens"],
            grammar=grammar_of(body["tools"]) if calls else body.get("grammar"),
            stop=tuple(body.get("stop", ())),
            sampling=Sampling(temperature=body["temperature"], seed=body["seed"]),
            tell=None if stream is None or calls else lambda piece: stream.send({"content": piece}),
        )
        cancel = CancelToken()
        with self.turn, cancelled_by_hangup(handler, cancel):
            done = self.engine.generate(request, cancel)
        message: dict = {"role": "assistant", "content": done.text}
        if calls:
            call = json.loads(done.text)
            function = {"name": call["tool"], "arguments": json.dumps(call["arguments"])}
            message = {
                "content": None,
                "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}],
            }
        reason = "tool_calls" if calls else done.finish_reason
        usage = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.output_tokens}
        if stream is None:
            return 200, {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}
        stream.end(message if calls else {}, reason, usage)
        return None

    def tokenize(self, body: dict, handler: Handler) -> tuple[int, dict]:
        data = body["content"].encode()
        library = bindings()
        buffer = (library.llama_token * (len(data) + 1))()
        vocabulary = self.engine._vocabulary.handle
        count = library.llama_tokenize(
            vocabulary, data, len(data), buffer, len(buffer), body["add_special"], body["parse_special"]
        )
        return 200, {"tokens": list(buffer[:count])}

    def apply_template(self, body: dict, handler: Handler) -> tuple[int, dict]:
        parts = [SYSTEM_OF_TEMPLATE.format(**message) for message in body["messages"]]
        return 200, {"prompt": "".join(parts) + "<|im_start|>assistant\n"}


class Stream:
    """A reply in pieces; a call's arguments are cut in the middle, as servers do."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()

    def send(self, delta: dict, **fields: object) -> None:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **fields}]}
        self.handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def end(self, message: dict, reason: str, usage: dict) -> None:
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            half = len(arguments) // 2
            first = {**call, "function": {**call["function"], "arguments": arguments[:half]}}
            self.send({"tool_calls": [first]})
            self.send({"tool_calls": [{"index": call["index"], "function": {"arguments": arguments[half:]}}]})
        self.send({}, finish_reason=reason)
        self.handler.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        self.handler.wfile.write(b"data: [DONE]\n\n")


def plain(item: dict) -> Message:
    """A message of the protocol as words, with its calls and as whose answer."""
    words = item["content"] or ""
    words += "".join(json.dumps(call["function"]) for call in item.get("tool_calls", ()))
    return Message(role=Role.USER if item["role"] == "tool" else Role(item["role"]), text=words)


def grammar_of(tools: list[dict]) -> str:
    """Have the model call one of the tools that were offered."""
    offered = [ToolDeclaration(**tool["function"]) for tool in tools]
    return call_grammar(offered, required=True)


@contextmanager
def cancelled_by_hangup(handler: Handler, cancel: CancelToken):
    """Cancel when the client closes its connection; a client that waits sends nothing, so readable means gone."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if select.select([handler.connection], [], [], 0.02)[0]:
                cancel.cancel()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def main() -> None:
    resolved = resolve_model(BUILTIN_REFERENCE, models_dir=Path(sys.argv[1]), endpoints={})
    with load_engine(resolved) as engine:
        server = ModelServer(engine)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
