"""The real pool under real supervision: supervisord, and a service manager's socket of our own (issue 7, item 6)."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from emelex_cli import services
from emelex_core import MemoryStore, Session
from processes import keep
from program import PROGRAM, Program

pytestmark = pytest.mark.model
SUPERVISORD = importlib.util.find_spec("supervisor")
CONFIG = """
[unix_http_server]
file={folder}/socket
[supervisord]
nodaemon=true
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
childlogdir={folder}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/socket
[include]
files={folder}/conf.d/*.conf
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _none_left(family: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs([one for one in family if one.is_running()], timeout=20)
    return not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


@pytest.fixture
def supervised(tmp_path: Path, emelex: Program, store: MemoryStore, port: int) -> Iterator[Callable[..., str]]:
    """A supervisord that reads the file which `service install supervisord` has written; calls are supervisorctl's."""
    folder = Path(os.path.realpath(tmp_path)) / "s"
    (folder / "conf.d").mkdir(parents=True)
    program = folder / "emelex"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m emelex_cli "$@"\n', "utf-8")
    program.chmod(0o755)
    installed = emelex("service", "install", "supervisord", "--program", program, "--to", folder / "conf.d")
    assert installed.code == 0, installed.err
    ours = folder / "conf.d" / "emelex.conf"
    ours.write_text(ours.read_text("utf-8").replace("127.0.0.1:9464", f"127.0.0.1:{port} --workers 1"), "utf-8")
    config = folder / "supervisord.conf"
    config.write_text(CONFIG.format(folder=folder), "utf-8")
    daemon = keep(
        subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "supervisor.supervisord", "-c", str(config)],
            env=emelex.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )

    def control(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", "-m", "supervisor.supervisorctl", "-c", str(config), *words],
            capture_output=True,
            text=True,
            timeout=80,
        )
        return done.stdout

    yield control
    family = _family(psutil.Process(daemon.pid))
    daemon.terminate()
    daemon.wait(timeout=80)
    assert _none_left(family)


def _until(look: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for what another process does; there is no event of it to wait for."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.1)


def _nobody_maintains(store: MemoryStore) -> bool:
    """Whether the lock that a run of maintenance holds is free."""
    path = store.database.path
    with path.with_name(path.name + ".maintenance.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _pid(control: Callable[..., str]) -> int:
    return int(control("pid", "emelex-pool"))


@pytest.mark.skipif(SUPERVISORD is None, reason="supervisor is not installed")
def test_supervisord_runs_restarts_and_stops_the_pool(
    supervised: Callable[..., str], store: MemoryStore, talk: Callable[..., Session], port: int
) -> None:
    """It works off a job, comes back after SIGKILL with no process left over, and stops within its grace."""
    _until(lambda: "RUNNING" in supervised("status", "emelex-pool"))
    talk()
    _until(lambda: 'emelex_job_attempts_total{kind="distillation",outcome="completed"} 1' in _scrape(port))
    first = _pid(supervised)
    family = _family(psutil.Process(first))
    os.kill(first, signal.SIGKILL)
    assert _none_left(family)
    _until(lambda: "RUNNING" in supervised("status", "emelex-pool") and _pid(supervised) != first)
    family = _family(psutil.Process(_pid(supervised)))
    assert "stopped" in supervised("stop", "emelex-pool")
    assert "STOPPED" in supervised("status", "emelex-pool")
    assert _none_left(family)


def test_a_service_manager_hears_ready_work_and_stopping(
    tmp_path: Path, emelex: Program, store: MemoryStore, talk: Callable[..., Session]
) -> None:
    """READY before any work, a watchdog that is fed, counts in STATUS, STOPPING at TERM, and exit code 143."""
    talk()
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        process = keep(
            subprocess.Popen(
                [*PROGRAM, "memory", "pool", "--workers", "1"],
                env=emelex.env({"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "4000000"}),
                cwd=emelex.workspace,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        told = [manager.recv(4_096).decode()]
        assert told[0].startswith("READY=1\n")
        while "1 completed" not in told[-1]:
            told.append(manager.recv(4_096).decode())
        assert "WATCHDOG=1" in told
        process.terminate()
        while not told[-1].startswith("STOPPING=1"):
            told.append(manager.recv(4_096).decode())
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "SECRET" not in err
    assert '"event":"job_ended","outcome":"completed"' in err


def test_a_stopped_pool_feeds_no_watchdog(tmp_path: Path, emelex: Program, store: MemoryStore) -> None:
    """SIGSTOP stands for a pool that hangs: silence, until it goes on."""
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        process = keep(
            subprocess.Popen(
                [*PROGRAM, "memory", "pool", "--workers", "1"],
                env=emelex.env({"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "2000000"}),
                cwd=emelex.workspace,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        while manager.recv(4_096) != b"WATCHDOG=1":
            continue
        os.kill(process.pid, signal.SIGSTOP)
        manager.settimeout(2.5)
        # What it sent before it was stopped may still be on its way.
        assert len(_heard(manager)) < 3
        os.kill(process.pid, signal.SIGCONT)
        manager.settimeout(60)
        assert manager.recv(4_096) == b"WATCHDOG=1"
        process.terminate()
        assert process.wait(timeout=60) == 143


def test_the_pool_maintains_its_store(emelex: Program, store: MemoryStore) -> None:
    """A slot that was missed is made up for at the start; --no-maintenance leaves it to others."""
    from emelex_core.retention import slots
    from emelex_workers.maintain import SCHEDULE_NAME

    for options, runs in ((("--no-maintenance",), False), ((), True)):
        process = keep(
            subprocess.Popen(
                [*PROGRAM, "memory", "pool", "--workers", "1", *options],
                env=emelex.env(),
                cwd=emelex.workspace,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        if runs:
            # The slot of a run that was broken off is given back: it must have ended.
            _until(lambda: slots.last(store.database, SCHEDULE_NAME) is not None and _nobody_maintains(store))
        else:
            assert process.stderr is not None
            while "worker=Worker-1" not in process.stderr.readline():
                continue
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 143
        assert (slots.last(store.database, SCHEDULE_NAME) is not None) is runs


def _heard(manager: socket.socket) -> list[bytes]:
    """What comes until nothing does for as long as the socket waits."""
    found: list[bytes] = []
    try:
        while True:
            found.append(manager.recv(4_096))
    except TimeoutError:
        return found


def test_the_files_name_what_is_there() -> None:
    """The words of every command line in them are words of the grammar."""
    from emelex_cli import grammar

    for folder in services.FOLDERS:
        for file in services.usual_files(folder):
            for line in file.text.splitlines():
                if "emelex --home" not in line:
                    continue
                words = line.partition("memory ")[2].removesuffix(" >/dev/null").split()
                assert callable(grammar.parse(["memory", *words]))
    assert shutil.which("sh")
