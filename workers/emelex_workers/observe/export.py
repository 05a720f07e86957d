"""Where metrics go: an exporter process beside a pool, or the file of a one-shot drain.

A pool's parent forks, so that it may have no second thread and no connection. Its metrics are therefore kept by a
process of their own, which hears the pool's events on its standard input and ends when that does: when the pool closes
it, or dies.

    pool ── events, one JSON object a line ──▶ exporter ──▶ http://127.0.0.1:PORT/metrics, or FILE every 15 s
                                                  └── reads the store, read-only, when it is asked

The HTTP server listens on loopback only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from emelex_core.clock import Clock, system_clock
from emelex_core.errors import EmelexError, Storage, UsageError
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.store import MemoryStore
from emelex_workers.observe.metrics import Counters, Gauges, look, render, write_file
from emelex_workers.pool.events import JobLost, PoolEvent
from emelex_workers.progress import JobEnded, JobStarted

FILE_SECONDS: Final = 15.0
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEARD: Final = {kind.__name__: kind for kind in (JobStarted, JobEnded, JobLost)}
_START: Final = "from emelex_workers.observe.export import main; main()"
_READY: Final = b"ready\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where metrics go: a `file`, or a loopback address and a port."""

    file: Path | None = None
    host: str = ""
    port: int = 0


class _Line(msgspec.Struct):
    type: str
    body: msgspec.Raw


def parse_target(text: str) -> Target:
    """Read a path, or ADDRESS:PORT on loopback. Raises: UsageError."""
    if "/" in text or text.endswith(".prom"):
        return Target(file=Path(text))
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{text[:80]!r} is no place for metrics", hint="a path, or 127.0.0.1:9464")
    host = host.strip("[]") or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise UsageError(f"metrics are served on loopback only, not on {host[:80]!r}", hint="127.0.0.1:9464")
    return Target(host=host, port=int(port))


class Recorder:
    """Counters that know the store: for a one-shot drain, and inside the exporter."""

    def __init__(self, home: Home, *, clock: Clock = system_clock) -> None:
        self._home = home
        self._clock = clock
        self._mutex = threading.Lock()
        self.counters = Counters()

    def hear(self, event: PoolEvent) -> None:
        """Count one event; of a job that was just claimed, also how long it had been due."""
        waited = self._waited(event) if isinstance(event, JobStarted) else None
        with self._mutex:
            self.counters.hear(event)
            if waited is not None:
                self.counters.waited(waited)

    def text(self) -> str:
        """The metrics as they are now."""
        gauges = self._gauges()
        with self._mutex:
            return render(self.counters, gauges)

    def write(self, path: Path) -> None:
        """Replace the file. Raises: Storage."""
        write_file(path, self.text())

    def go_on_from(self, path: Path) -> None:
        """Add what an earlier run left in a file; one that is missing or unreadable has left nothing."""
        with contextlib.suppress(OSError, ValueError):
            self.counters.go_on_from(path.read_text("utf-8"))

    def _gauges(self) -> Gauges | None:
        try:
            with MemoryStore.open(self._home, read_only=True) as store:
                return look(store)
        except EmelexError:
            return None

    def _waited(self, event: JobStarted) -> float | None:
        """Seconds from when the job was due until now; None when that cannot be told any more."""
        try:
            with MemoryStore.open(self._home, read_only=True) as store:
                job, _ = reading.get_job(store.database, event.job)
        except EmelexError:
            return None
        return (self._clock() - job.run_at) / 1000 if job.attempt == event.attempt else None


class Exporter:
    """A pool's line to its exporter process. Never waits and never raises: metrics are no reason to stop working."""

    def __init__(self, home: Home, target: str) -> None:
        """Start the process and wait until it can be asked. Raises: UsageError; Storage when it cannot start."""
        parse_target(target)
        # The interpreter and the words are ours; nothing of a user but the two paths is passed.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(home.root), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A terminal's Ctrl-C goes to a whole group; this process ends with the pool, not with the signal.
            process_group=0,
        )
        self._pipe = cast(BinaryIO, self._process.stdin)
        with cast(BinaryIO, self._process.stdout) as answers:
            ready = answers.readline() == _READY
        if not ready:
            self.close()
            raise Storage(f"metrics cannot be given at {target}")
        os.set_blocking(self._pipe.fileno(), False)

    def hear(self, event: PoolEvent) -> None:
        """Pass one event on, if it counts and there is room."""
        if type(event).__name__ not in _HEARD:
            return
        if isinstance(event, JobEnded | JobLost):
            # Short enough to be written at once or not at all, and without a word that may quote anybody.
            event = replace(event, error=None) if isinstance(event, JobEnded) else replace(event, reason="")
        line = msgspec.json.encode(_Line(type=type(event).__name__, body=msgspec.Raw(msgspec.json.encode(event))))
        with contextlib.suppress(OSError):
            os.write(self._pipe.fileno(), line + b"\n")

    def close(self) -> None:
        """End the process and wait for it; a file is then written for the last time."""
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.wait()


def main() -> None:
    """Be the exporter: arguments are the Home and the target."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    recorder = Recorder(Home(Path(sys.argv[1])))
    target = parse_target(sys.argv[2])
    try:
        if target.file is None:
            _serve(recorder, target)
        else:
            _write_on(recorder, target.file)
    except (OSError, Storage):
        # The pool, which waits for our first word, names the place.
        sys.exit(Storage.exit_code)


def _serve(recorder: Recorder, target: Target) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = recorder.text().encode() if found else b"metrics are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own word
            """Say nothing: who scrapes is no news."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in target.host else socket.AF_INET

    with Server((target.host, target.port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _hear_all(recorder)
        server.shutdown()


def _write_on(recorder: Recorder, path: Path) -> None:
    recorder.go_on_from(path)
    over = threading.Event()

    def write() -> None:
        with contextlib.suppress(Storage):
            recorder.write(path)

    def keep_writing() -> None:
        while not over.wait(FILE_SECONDS):
            write()

    recorder.write(path)
    writer = threading.Thread(target=keep_writing, daemon=True)
    writer.start()
    _hear_all(recorder)
    over.set()
    writer.join()
    write()


def _hear_all(recorder: Recorder) -> None:
    """Hear events until the pool is gone."""
    os.write(1, _READY)
    os.close(1)
    for line in sys.stdin.buffer:
        sent = msgspec.json.decode(line, type=_Line)
        recorder.hear(cast(PoolEvent, msgspec.json.decode(sent.body, type=_HEARD[sent.type])))
