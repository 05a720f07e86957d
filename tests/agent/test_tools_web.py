"""web_fetch and datetime: which addresses may be asked, how much is read, and what comes out as text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from emelex_core.agent.ports import CancelToken
from emelex_core.agent.tools import web
from emelex_core.agent.tools.dates import DateTime
from emelex_core.agent.tools.web import WebFetch, is_public
from emelex_core.errors import ToolError
from toolcalls import call

PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/plain": (200, {"Content-Type": "text/plain; charset=utf-8"}, "naïve 😀".encode()),
    "/latin": (200, {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9"),
    "/wrong": (200, {"Content-Type": "text/plain; charset=no-such"}, b"caf\xe9"),
    "/html": (
        200,
        {"Content-Type": "text/html"},
        b"<title>T</title><script>evil()</script><p>One &amp; <b>two</b></p><a href='https://e.example/x'>link</a>",
    ),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/packed": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"\x1f\x8b"),
    "/nul": (200, {"Content-Type": "text/plain"}, b"a\0b"),
    "/large": (200, {"Content-Type": "text/plain"}, b"x" * (web.PAGE_BYTES_MAX + 1)),
    "/gone": (404, {"Content-Type": "text/plain"}, b"nothing here"),
    "/there": (302, {"Location": "/plain"}, b""),
    "/round": (302, {"Location": "/round"}, b""),
    "/ftp": (302, {"Location": "ftp://127.0.0.1/x"}, b""),
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        if self.path == "/slow":
            self.server.hold.wait(20)
            return
        status, headers, body = PAGES[self.path]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


class PageServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.hold = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what some tests are about."""


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.hold.set()
        running.shutdown()
        thread.join()


def fetch(server: PageServer, path: str, **options: Any):
    tool = WebFetch(private_allowed=True)
    return call(tool, approved=True, url=f"http://127.0.0.1:{server.server_port}{path}", **options)


def test_text_comes_back(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own encoding; no proxy of the environment is used."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    outcome = fetch(server, "/plain")
    assert outcome.text.endswith("/plain, text/plain]\nnaïve 😀")
    assert fetch(server, "/latin").text.endswith("café")
    assert fetch(server, "/wrong").text.endswith("shown as \ufffd]\ncaf\ufffd")
    assert server.asked[0][1]["Accept-Encoding"] == "identity"
    assert server.asked[0][1]["Host"] == f"127.0.0.1:{server.server_port}"
    missing = fetch(server, "/gone")
    assert missing.is_error
    assert "404" in missing.text


def test_pages_become_words(server: PageServer) -> None:
    """No markup, no scripts; links keep where they lead."""
    assert fetch(server, "/html").text.split("\n")[1:] == ["T", "One & two", "link (https://e.example/x)"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/image", "not text"),
        ("/packed", "compressed"),
        ("/nul", "no text"),
        ("/large", "more than"),
        ("/round", "redirected more than 5 times"),
        ("/ftp", "not an http or https address"),
    ],
)
def test_what_is_not_taken(server: PageServer, path: str, words: str) -> None:
    """Each in words, and nothing of it is kept."""
    with pytest.raises(ToolError, match=words):
        fetch(server, path)


def test_redirects_are_followed_and_checked(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address anew: a public page cannot lead to a private one."""
    assert "naïve" in fetch(server, "/there").text
    tool = WebFetch()
    asked: list[str] = []

    def first_only(address: str) -> bool:
        asked.append(address)
        return len(asked) == 1

    monkeypatch.setattr(web, "is_public", first_only)
    with pytest.raises(ToolError, match="not a public address"):
        call(tool, approved=True, url=f"http://127.0.0.1:{server.server_port}/there")
    assert [path for path, _ in server.asked][-1] == "/there"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:8080/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/",
        "http://2130706433/",
    ],
)
def test_private_addresses_are_refused(url: str) -> None:
    """Before anything is sent, in whatever form they are written."""
    with pytest.raises(ToolError, match=r"not a public address|no such host"):
        call(WebFetch(), approved=True, url=url)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1", True),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    """Also where an IPv4 address is wrapped into another."""
    assert is_public(address) is public


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x", "http://user:word@example.org/", "http:///x", "//x"]
)
def test_other_addresses_are_refused(url: str) -> None:
    """Only http and https, and never with a password."""
    with pytest.raises(ToolError):
        call(WebFetch(), approved=True, url=url)


def test_it_asks_each_time(server: PageServer) -> None:
    """The address itself tells somebody something; without approval nothing is sent."""
    tool = WebFetch(private_allowed=True)
    assert tool.caution({"url": "https://example.org"}) is not None
    with pytest.raises(ToolError, match="approval"):
        call(tool, url=f"http://127.0.0.1:{server.server_port}/plain")
    assert server.asked == []


def test_slow_pages_end(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, or by the token."""
    monkeypatch.setattr(web, "SECONDS_MAX", 0.3)
    with pytest.raises(ToolError, match=r"within 0\.3 seconds|ReadTimeout"):
        fetch(server, "/slow")
    monkeypatch.undo()
    cancel = CancelToken()
    stopper = threading.Timer(0.2, cancel.cancel)
    stopper.start()
    with pytest.raises(ToolError, match="cancelled"):
        fetch(server, "/slow", cancel=cancel)
    stopper.join()


def test_the_date() -> None:
    """By the clock that it is given, in UTC or in a zone."""
    tool = DateTime(lambda: 1_790_000_000_123)
    assert call(tool).text == "2026-09-21T14:13:20+00:00 (Monday, UTC)"
    with pytest.raises(ToolError, match="no time zone"):
        call(tool, zone="Nowhere/Land")
    with pytest.raises(ToolError, match="no time zone"):
        call(tool, zone="../../etc/passwd")
