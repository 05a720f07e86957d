"""A server on loopback that answers chat completions with what a test wrote down, whole or as a stream."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Reply:
    """One answer: words, or calls as (name, arguments as JSON text)."""

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "index": place,
                    "id": f"theirs-{place}",
                    "type": "function",
                    "function": {"name": name, "arguments": words},
                }
                for place, (name, words) in enumerate(self.calls)
            ]
        return message


@dataclass
class Endpoint:
    """What the server was asked, and what it will say; the last reply is said again and again."""

    replies: list[Reply] = field(default_factory=list[Reply])
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    port: int = 0

    def configure(self, home: Path, *, context_tokens: int = 8_192, images: bool = False) -> None:
        """Make it the default model of a Home."""
        home.mkdir(mode=0o700, exist_ok=True)
        config = home / "config.toml"
        config.write_text(
            '[models]\ndefault = "endpoint:scripted"\n[models.endpoint.scripted]\nmodel = "scripted"\ntools = true\n'
            f'base_url = "http://127.0.0.1:{self.port}/v1"\ncontext_tokens = {context_tokens}\n'
            f"images = {str(images).lower()}\n"
        )
        config.chmod(0o600)

    def next(self, body: dict[str, Any]) -> Reply:
        self.asked.append(body)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def serving(*replies: Reply) -> Iterator[Endpoint]:
    """Serve until the block ends."""
    endpoint = Endpoint(replies=list(replies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/chat/completions"):
                self.send_error(404)
                return
            reply = endpoint.next(body)
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            if body.get("stream"):
                self._send("text/event-stream", _stream(reply, usage))
            else:
                choice = {"index": 0, "message": reply.message, "finish_reason": reply.finish_reason}
                self._send("application/json", json.dumps({"choices": [choice], "usage": usage}).encode())

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _stream(reply: Reply, usage: dict[str, int]) -> bytes:
    """The answer as server-sent events, its text in pieces of four characters."""
    pieces = [reply.text[start : start + 4] for start in range(0, len(reply.text), 4)]
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    if reply.calls:
        deltas.append({"tool_calls": reply.message["tool_calls"]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reply.finish_reason})
    events = [{"choices": [choice]} for choice in choices]
    events.append({"choices": [], "usage": usage})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
