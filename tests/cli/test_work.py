"""`memory work` from outside: lines, exit codes, signals (behaviours 163, 165, 167, 173)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from program import Program

Talk = Callable[..., Session]

COMPLETE_KEYS = [
    "type",
    "compactions",
    "distillations",
    "knowledge_candidates",
    "retries_scheduled",
    "failed_jobs",
    "released_jobs",
    "remaining_jobs",
]
ENDED_KEYS = {
    "type",
    "job",
    "kind",
    "session",
    "attempt",
    "seconds",
    "engine_seconds",
    "prompt_tokens",
    "output_tokens",
}


@dataclass
class Server:
    """An endpoint on loopback that answers 500, or never."""

    asked: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    port: int = 0


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers nothing until the test is over."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.asked.set()
            state.let_go.wait(60)
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    state.port = http.server_port
    yield state
    state.let_go.set()
    http.shutdown()
    http.server_close()
    thread.join()


def _endpoint(emelex: Program, port: int, *, context_tokens: int = 8_192) -> None:
    (emelex.home / "config.toml").write_text(
        f'[models.endpoint.test]\nbase_url = "http://127.0.0.1:{port}/v1"\nmodel = "test"\n'
        f"context_tokens = {context_tokens}\n[compaction]\ncontext_tokens = 6000\nkeep_turns = 1\n",
        "utf-8",
    )


def _closed_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        return http.server_port


def test_nothing_to_do_succeeds_without_a_model(emelex: Program, store: MemoryStore) -> None:
    """No job, no Session: zeros, exit 0, whatever the model is (163)."""
    store.start_session(emelex.workspace, title="empty")
    result = emelex("memory", "work", "--model", "local:missing", "--json")
    assert result.code == 0, result.err
    assert list(result.json) == COMPLETE_KEYS
    assert [value for key, value in result.json.items() if key != "type"] == [0] * 7


@pytest.mark.model
def test_a_drain_tells_every_job(emelex: Program, talk: Talk) -> None:
    """`job_started` and `job_completed` for each, `memory_worker_complete` last, with the built-in model."""
    sessions = {talk(2).id, talk(3).id}
    run = emelex("memory", "work", "--json")
    assert "a faster copy of the model is written, once: " in run.err
    lines = run.lines
    started = [line for line in lines if line["type"] == "job_started"]
    completed = [line for line in lines if line["type"] == "job_completed"]
    assert {line["session"] for line in started} == {line["session"] for line in completed} == sessions
    assert all(set(line) == {"type", "job", "kind", "session", "attempt"} for line in started)
    assert all(set(line) == ENDED_KEYS | {"knowledge_candidates", "form"} for line in completed)
    assert list(lines[-1]) == COMPLETE_KEYS
    assert (lines[-1]["type"], lines[-1]["distillations"], lines[-1]["remaining_jobs"]) == (
        "memory_worker_complete",
        2,
        0,
    )
    assert emelex("memory", "status", "--json").json["coverage"]["distilled"] == 2
    talk(2)
    assert "copy" not in emelex("memory", "work", "--json").err


@pytest.mark.model
def test_max_jobs_kind_and_session_bound_a_drain(emelex: Program, talk: Talk) -> None:
    """One job of two; then only that Session's; a kind without jobs does nothing."""
    first, second = talk(1), talk(1)
    nothing = emelex("memory", "work", "--kind", "compaction", "--json").lines[-1]
    assert (nothing["compactions"], nothing["distillations"], nothing["remaining_jobs"]) == (0, 0, 0)
    only = emelex("memory", "work", "--session", second.id[:8], "--json").lines
    assert [line["session"] for line in only[:-1]] == [second.id] * 2
    talk(1)
    one = emelex("memory", "work", "--max-jobs", "1", "--max-time", "1h30m", "--json").lines
    assert [line["session"] for line in one[:-1]] == [first.id] * 2
    assert one[-1]["remaining_jobs"] == 1


def test_an_endpoint_that_is_down_schedules_a_retry(emelex: Program, talk: Talk) -> None:
    """`job_retry` names the cause and the instant; retries alone exit 0 (173)."""
    talk(1)
    _endpoint(emelex, _closed_port())
    result = emelex("memory", "work", "--model", "endpoint:test", "--json")
    retry, complete = result.lines[1:]
    assert result.code == 0
    assert set(retry) == ENDED_KEYS | {"error", "retry_at"}
    assert (retry["type"], retry["attempt"]) == ("job_retry", 1)
    assert retry["error"]
    assert retry["retry_at"].endswith("Z")
    assert (complete["retries_scheduled"], complete["failed_jobs"], complete["remaining_jobs"]) == (1, 0, 1)
    queue = emelex("memory", "status", "--json").json["queues"]["distillation"]
    assert (queue["waiting"], queue["pending"]) == (1, 0)


def test_a_terminal_job_has_an_exit_code_of_its_own(emelex: Program, talk: Talk) -> None:
    """A source over a tiny context with chunking off is permanent, before inference: exit 8, once (165, 173)."""
    talk(12)
    _endpoint(emelex, _closed_port(), context_tokens=600)
    arguments = ("memory", "work", "--kind", "compaction", "--model", "endpoint:test", "--no-chunking")
    first = emelex(*arguments, "--json")
    failed = [line for line in first.lines if line["type"] == "job_failed"]
    assert first.code == 8, first.err
    assert failed
    assert all((line["retry_at"], line["prompt_tokens"]) == (None, 0) and line["error"] for line in failed)
    assert first.lines[-1]["failed_jobs"] == len(failed)
    assert emelex(*arguments).code == 0
    assert len(emelex("memory", "failures", "--json").lines) == len(failed)


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_job_back(
    emelex: Program, talk: Talk, server: Server, asked: signal.Signals, code: int
) -> None:
    """Mid-inference: `job_released`, the documented code, no attempt counted, the claim gone (167)."""
    talk(1)
    _endpoint(emelex, server.port)
    with emelex.started("memory", "work", "--model", "endpoint:test", "--json") as process:
        assert server.asked.wait(60)
        process.send_signal(asked)
        out, err = process.communicate(timeout=30)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == code, err
    assert [line["type"] for line in lines] == ["job_started", "job_released", "memory_worker_complete"]
    assert lines[-1]["released_jobs"] == 1
    assert "Traceback" not in err
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["state"], job["failure_count"], job["lease_until"]) == ("pending", 0, None)


def test_a_cancelled_job_ends_within_a_second_and_the_drain_goes_on(
    emelex: Program, talk: Talk, server: Server
) -> None:
    """`jobs cancel` mid-inference: released, uncounted; with the queue paused the drain then finds nothing more."""
    talk(1)
    _endpoint(emelex, server.port)
    with emelex.started("memory", "work", "--model", "endpoint:test", "--json") as process:
        assert server.asked.wait(60)
        assert emelex("memory", "pause").code == 0
        (running,) = emelex("memory", "jobs", "list", "--state", "running", "--json").lines
        assert emelex("memory", "jobs", "cancel", running["id"]).code == 0
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["type"] for line in lines] == ["job_started", "job_released", "memory_worker_complete"]
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["id"], job["state"], job["failure_count"]) == (running["id"], "pending", 0)


def test_metrics_of_drains_add_up(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """One file, replaced whole by each run that had something to do or not; its counters go on."""
    path = tmp_path / "emelex.prom"
    _endpoint(emelex, _closed_port())
    for count in (1, 2):
        talk(1)
        done = emelex(
            "memory", "work", "--kind", "distillation", "--model", "endpoint:test", "--metrics", path, "--json"
        )
        assert done.code == 0, done.err
        assert f'emelex_job_attempts_total{{kind="distillation",outcome="retry"}} {count}\n' in path.read_text("utf-8")
    text = path.read_text("utf-8")
    assert 'emelex_jobs{kind="distillation",state="waiting"} 2\n' in text
    assert "emelex_job_run_seconds_count 2\n" in text
    assert emelex("memory", "work", "--kind", "compaction", "--metrics", path).code == 0
    assert 'outcome="retry"} 2\n' in path.read_text("utf-8")
    assert [found.name for found in tmp_path.glob("*.prom*")] == ["emelex.prom"]


def test_a_place_for_metrics_is_looked_at_first(emelex: Program, talk: Talk) -> None:
    """No address, no missing directory: refused before any job is claimed."""
    talk(1)
    for place, code in (("127.0.0.1:9464", 2), ("nowhere", 2), ("no/where.prom", 3)):
        assert emelex("memory", "work", "--metrics", place).code == code, place
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["state"], job["failure_count"]) == ("pending", 0)


def test_metrics_are_written_however_a_drain_ends(emelex: Program, talk: Talk) -> None:
    """Its own error is what a person sees; a path is relative to `-C`, as git does."""
    talk(1)
    missing = ("memory", "work", "--model", "local:missing", "--json")
    failed = emelex(*missing, "--metrics", "m.prom", "-C", emelex.home)
    assert (failed.code, failed.error["message"]) == (3, emelex(*missing).error["message"])
    assert 'emelex_jobs{kind="distillation",state="pending"} 1\n' in (emelex.home / "m.prom").read_text("utf-8")


def test_a_reader_that_goes_away_gives_the_job_back(emelex: Program, talk: Talk, server: Server) -> None:
    """The next line cannot be written: the drain stops as for Ctrl-C, and the exit code is 0."""
    for _ in range(2):
        talk(1)
    _endpoint(emelex, server.port)
    with emelex.started("memory", "work", "--model", "endpoint:test", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["type"] == "job_started"
        assert server.asked.wait(60)
        process.stdout.close()
        server.let_go.set()
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
    states = [line["state"] for line in emelex("memory", "jobs", "list", "--json").lines]
    assert states == ["pending", "pending"]


def test_a_project_may_not_choose_an_endpoint(emelex: Program, talk: Talk) -> None:
    """Text would leave the machine: refused by name, no job is touched."""
    talk(1)
    (emelex.workspace / ".git").mkdir()
    (emelex.workspace / ".emelex.toml").write_text('[models]\ndefault = "endpoint:theirs"\n', "utf-8")
    result = emelex("memory", "work", "--json")
    assert (result.code, result.error["kind"]) == (6, "Refused")
    assert "models.default" in result.error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-time", "soon"],
        ["--max-time", "0"],
        ["--max-time", "-5"],
        ["--max-time", "9" * 40],
        ["--max-jobs", "0"],
        ["--max-jobs", "many"],
        ["--kind", "dreaming"],
        ["--model", "gpt"],
        ["--workers", "2"],
        ["surplus"],
    ],
)
def test_bad_options_are_usage_errors(emelex: Program, talk: Talk, arguments: list[str]) -> None:
    """Exit 2, one error, and the job is as before."""
    talk(1)
    result = emelex("memory", "work", *arguments, "--json")
    assert (result.code, result.error["kind"]) == (2, "UsageError")
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["state"], job["failure_count"]) == ("pending", 0)


def test_an_unknown_session_is_not_found(emelex: Program, talk: Talk) -> None:
    """Before any job is claimed."""
    talk(1)
    assert emelex("memory", "work", "--session", "00000000").code == 3


def test_a_drain_is_nice(emelex: Program, talk: Talk, server: Server) -> None:
    """The process runs at the configured niceness while it works."""
    talk(1)
    _endpoint(emelex, server.port)
    arguments = ("memory", "work", "--model", "endpoint:test", "--json")
    with emelex.started(*arguments, env={"EMELEX_WORKER_NICE": "13"}) as process:
        assert server.asked.wait(60)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= 13
