"""A chat server on loopback that runs the built-in model through the llama.cpp engine. Run as a process of its own:

    python -P chat_server.py MODELS_DIR

It prints its port on one line and serves until its standard input closes, so it cannot outlive the test that started
it. It speaks chat completions, and llama.cpp's `grammar`, `/tokenize` and `/apply-template`. A client that goes away
cancels its generation.
"""

from __future__ import annotations

import json
import select
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
            status, answer = self.server.routes[self.path](body, self)
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

    def complete(self, body: dict, handler: Handler) -> tuple[int, dict]:
        stop = body.get("stop", ())
        request = Request(
            messages=tuple(Message(role=Role(item["role"]), text=item["content"]) for item in body["messages"]),
            output_tokens_max=body["max_tokens"],
            grammar=body.get("grammar"),
            stop=tuple(stop),
            sampling=Sampling(temperature=body["temperature"], seed=body["seed"]),
        )
        cancel = CancelToken()
        with self.turn, cancelled_by_hangup(handler, cancel):
            done = self.engine.generate(request, cancel)
        message = {"role": "assistant", "content": done.text}
        usage = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.output_tokens}
        return 200, {"choices": [{"message": message, "finish_reason": done.finish_reason}], "usage": usage}

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
