"""Fixtures of the engine's tests: the built-in model, loaded once, and a server that says what a test scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emelex_core.engine import EndpointConfig
from emelex_core.engine.counting import forget_servers
from emelex_core.engine.llama_cpp import LlamaEngine
from emelex_core.models import BUILTIN_REFERENCE, load_engine, resolve_model


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home") / "models"


@pytest.fixture(scope="session")
def llama(models_dir: Path) -> Iterator[LlamaEngine]:
    resolved = resolve_model(BUILTIN_REFERENCE, models_dir=models_dir, endpoints={})
    with load_engine(resolved) as engine:
        assert isinstance(engine, LlamaEngine)
        yield engine


@pytest.fixture(autouse=True)
def each_server_is_new() -> None:
    """A port may have been another test's."""
    forget_servers()


@dataclass(kw_only=True)
class Script:
    """What the server does next and what it was asked. `raw` bytes are sent instead of a whole HTTP answer."""

    status: int = 200
    body: bytes = b""
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    asked: list[dict] = field(default_factory=list)
    asked_headers: list[dict[str, str]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def say(self, content: object = "Fine.", finish_reason: object = "stop", **message: object) -> None:
        """Answer the next requests with one completion."""
        choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish_reason}
        self.body = json.dumps({"choices": [choice]}).encode()

    def config(self, **changes: object) -> EndpointConfig:
        fields: dict = {
            "name": "scripted",
            "base_url": f"http://127.0.0.1:{self.port}/v1",
            "model": "m",
            "context_tokens": 4_096,
            "timeout_seconds": 20.0,
            "tokenize": False,
        }
        return EndpointConfig(**{**fields, **changes})


def handler_of(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            script.asked_headers.append(dict(self.headers))
            script.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            script.arrived.set()
            if script.hold is not None:
                script.hold.wait(30)
            if script.raw is not None:
                self.wfile.write(script.raw)
                self.close_connection = True
                return
            self.send_response(script.status)
            for name, value in {"Content-Length": str(len(script.body)), **script.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(script.body)

        def log_message(self, *args: object) -> None:
            """Keep the test's output clean."""

    return Handler


class QuietServer(ThreadingHTTPServer):
    """Clients that hang up are what some tests are about."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a connection that the client closed."""


@pytest.fixture
def script() -> Iterator[Script]:
    scripted = Script()
    scripted.say()
    with QuietServer(("127.0.0.1", 0), handler_of(scripted)) as server:
        scripted.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        if scripted.hold is not None:
            scripted.hold.set()
        server.shutdown()
        thread.join()
