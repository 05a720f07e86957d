"""Metrics in the text format of Prometheus (issue 7, item 7): names, values, the file, the exporter beside a pool."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from emelex_core import MemoryStore, Session
from emelex_core.errors import Storage, UsageError
from emelex_core.home import Home
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from emelex_workers.observe import metrics
from emelex_workers.observe.export import Exporter, Recorder, parse_target
from emelex_workers.observe.metrics import Counters, Histogram
from emelex_workers.pool.events import JobLost
from emelex_workers.progress import JobEnded, JobStarted
from program import Program
from stores import child

NAMES = {
    "emelex_jobs",
    "emelex_job_oldest_seconds",
    "emelex_job_attempts_total",
    "emelex_job_wait_seconds",
    "emelex_job_run_seconds",
    "emelex_lease_expirations_total",
    "emelex_db_bytes",
    "emelex_wal_bytes",
    "emelex_assets_bytes",
    "emelex_store_readable",
}
SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?P<labels>\{([a-z]+="[^"\\\n]*",?)+\})? (?P<value>[0-9.e+-]+)')


def _ended(outcome: str = "completed", seconds: float = 1.5, error: str | None = None) -> JobEnded:
    return JobEnded(
        outcome=outcome,
        job="j" * 36,
        kind="distillation",
        session="s" * 36,
        attempt=1,
        seconds=seconds,
        engine_seconds=0.0,
        prompt_tokens=1,
        output_tokens=1,
        error=error,
    )


def _samples(text: str) -> dict[str, float]:
    """Read the format strictly: each family has HELP, then TYPE, then its samples."""
    found: dict[str, float] = {}
    family = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert next(lines).startswith(f"# TYPE {family} ")
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match["name"].startswith(family), line
        found[match["name"] + (match["labels"] or "")] = float(match["value"])
    assert text.endswith("\n")
    return found


def test_the_names_are_those_that_are_documented(store: MemoryStore, talk: Callable[..., Session]) -> None:
    """measured.md, "Metrics"; no id, no path and no word of a transcript is a label."""
    session = talk()
    counters = Counters()
    counters.hear(_ended())
    text = metrics.render(counters, metrics.look(store))
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == NAMES
    samples = _samples(text)
    assert samples['emelex_jobs{kind="distillation",state="pending"}'] == 1
    assert samples['emelex_job_attempts_total{kind="distillation",outcome="completed"}'] == 1
    assert samples["emelex_db_bytes"] == store.totals().database_bytes
    for secret in (session.id, "SECRET", str(store.assets_directory), "parcels"):
        assert secret not in text


def test_buckets_are_cumulative_and_bounded() -> None:
    """A value on a bound belongs to its bucket; the last bucket holds all."""
    histogram = Histogram((1.0, 10.0))
    for seconds in (-3.0, 0.5, 1.0, 1.1, 10.0, 11.0):
        histogram.observe(seconds)
    assert histogram.counts == [3, 2, 1]
    counters = Counters()
    for seconds in (0.05, 0.1, 700.0):
        counters.hear(_ended(seconds=seconds))
    samples = _samples(metrics.render(counters, None))
    assert samples['emelex_job_run_seconds_bucket{le="0.1"}'] == 2
    assert samples['emelex_job_run_seconds_bucket{le="600"}'] == 2
    assert samples['emelex_job_run_seconds_bucket{le="+Inf"}'] == samples["emelex_job_run_seconds_count"] == 3
    assert samples["emelex_job_run_seconds_sum"] == pytest.approx(700.15)


def test_one_shot_drains_add_up_in_their_file(tmp_path: Path, store: MemoryStore, emelex: Program) -> None:
    """Each goes on from what the one before left; the file is replaced whole and readable by a collector."""
    path = tmp_path / "emelex.prom"
    for _ in range(3):
        recorder = Recorder(Home(emelex.home))
        recorder.go_on_from(path)
        recorder.hear(_ended())
        recorder.hear(_ended("retry", 50.0))
        for _ in range(2):
            recorder.hear(replace(_ended("retry"), lost=True))
        recorder.write(path)
    samples = _samples(path.read_text("utf-8"))
    assert samples['emelex_job_attempts_total{kind="distillation",outcome="completed"}'] == 3
    assert samples['emelex_job_attempts_total{kind="distillation",outcome="retry"}'] == 9
    assert samples["emelex_lease_expirations_total"] == 6
    assert samples['emelex_job_run_seconds_bucket{le="2"}'] == 3
    assert samples["emelex_job_run_seconds_count"] == 6
    assert samples["emelex_job_run_seconds_sum"] == pytest.approx(154.5)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    """The old one is whole, nothing else is left behind."""
    path = tmp_path / "there" / "emelex.prom"
    with pytest.raises(Storage, match=r"emelex\.prom"):
        metrics.write_file(path, "x\n")
    path.parent.mkdir()
    path.mkdir()
    with pytest.raises(Storage):
        metrics.write_file(path, "x\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["emelex.prom"]


@pytest.mark.parametrize("garbage", ["", "\0\1", 'emelex_job_run_seconds_bucket{le="2"} nan\n', "emelex_db_bytes x\n"])
def test_a_file_that_is_none_of_ours_leaves_nothing(tmp_path: Path, garbage: str) -> None:
    """Counters begin at zero."""
    counters = Counters()
    counters.go_on_from(garbage)
    assert set(_samples(metrics.render(counters, None)).values()) == {0.0}


def test_a_store_that_cannot_be_read_is_said(emelex: Program) -> None:
    """189: "cannot read" never looks like "nothing there": no gauge is shown at all."""
    samples = _samples(Recorder(Home(emelex.home)).text())
    assert samples["emelex_store_readable"] == 0
    assert not any(name.startswith("emelex_jobs") for name in samples)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        (":9464", "127.0.0.1", 9464),
        ("localhost:1", "127.0.0.1", 1),
        ("[::1]:9464", "::1", 9464),
    ],
)
def test_loopback_is_where_metrics_are_served(text: str, host: str, port: int) -> None:
    """Spelled as people spell it."""
    target = parse_target(text)
    assert (target.host, target.port, target.file) == (host, port, None)


@pytest.mark.parametrize(
    "text", ["0.0.0.0:9464", "192.168.1.2:80", "example.org:80", "9464", "127.0.0.1", "127.0.0.1:x", "[::]:1", ":70000"]
)
def test_nothing_is_served_to_the_network(text: str) -> None:
    """Refused before a process is started."""
    with pytest.raises(UsageError):
        parse_target(text)


@pytest.fixture
def port() -> int:
    """A free port."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


def _get(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def test_the_exporter_serves_what_a_pool_tells(
    port: int, store: MemoryStore, talk: Callable[..., Session], emelex: Program
) -> None:
    """Events of the pool, gauges of the store, and how long a claimed job had been due."""
    talk()
    exporter = Exporter(Home(emelex.home), f"127.0.0.1:{port}")
    try:
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        exporter.hear(JobStarted(job=lease.job.id, kind="distillation", session=lease.job.session_id, attempt=1))
        exporter.hear(_ended("retry", error="x" * 4_096))
        exporter.hear(JobLost(job="j", kind="compaction", session="s", attempt=1, reason="y" * 9_000))
        samples: dict[str, float] = {}
        while samples.get('emelex_job_attempts_total{kind="compaction",outcome="lost"}') != 1:
            samples = _samples(_get(port))
        assert samples['emelex_job_attempts_total{kind="distillation",outcome="retry"}'] == 1
        assert samples['emelex_jobs{kind="distillation",state="running"}'] == 1
        assert samples["emelex_job_wait_seconds_count"] == 1
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(port, "/")
        assert refused.value.code == 404
        refused.value.close()
        lease.release()
    finally:
        exporter.close()
    assert exporter._process.returncode == 0


def test_the_exporter_dies_with_its_pool(port: int, store: MemoryStore, emelex: Program) -> None:
    """190: SIGKILL of the parent leaves nobody."""
    code = """
        import os, sys
        from pathlib import Path
        from emelex_core.home import Home
        from emelex_workers.observe.export import Exporter
        exporter = Exporter(Home(Path(sys.argv[1])), sys.argv[2])
        print(exporter._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    process = child(code, emelex.home, f"127.0.0.1:{port}")
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    psutil.wait_procs([psutil.Process(int(out))] if psutil.pid_exists(int(out)) else [], timeout=30)
    assert not psutil.pid_exists(int(out)) or psutil.Process(int(out)).status() == psutil.STATUS_ZOMBIE


def test_the_exporter_keeps_a_file(tmp_path: Path, store: MemoryStore, emelex: Program) -> None:
    """Written when it starts, and for the last time when the pool ends."""
    path = tmp_path / "emelex.prom"
    exporter = Exporter(Home(emelex.home), str(path))
    exporter.hear(_ended())
    exporter.close()
    assert _samples(path.read_text("utf-8"))['emelex_job_attempts_total{kind="distillation",outcome="completed"}'] == 1


def test_a_taken_port_is_an_error(port: int, emelex: Program) -> None:
    """Said at the start, not in a log afterwards."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(Storage, match=str(port)):
            Exporter(Home(emelex.home), f"127.0.0.1:{port}")


def test_events_to_a_dead_exporter_are_dropped(port: int, emelex: Program, store: MemoryStore) -> None:
    """Metrics are no reason to stop working."""
    exporter = Exporter(Home(emelex.home), f"127.0.0.1:{port}")
    os.kill(exporter._process.pid, signal.SIGKILL)
    exporter._process.wait()
    for _ in range(10):
        exporter.hear(_ended())
    exporter.close()
