"""Notifications to a service manager, received on a socket of our own (issue 7, item 6; sd_notify(3))."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_workers.observe.notify import Notifier, Supervision
from emelex_workers.pool.events import PoolStarted, PoolStopping, WorkerEnded, WorkerFault
from emelex_workers.progress import JobEnded, JobStarted, JobStep
from stores import child


class Manager:
    """The other end: what a service manager reads."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind("\0" + address[1:] if address.startswith("@") else address)
        self._line.setblocking(False)

    def told(self) -> list[dict[str, str]]:
        """Every message that has arrived."""
        found: list[dict[str, str]] = []
        while True:
            try:
                text = self._line.recv(65_536).decode()
            except BlockingIOError:
                return found
            found.append(dict(line.split("=", 1) for line in text.splitlines()))

    def close(self) -> None:
        self._line.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A manager with each kind of address."""
    opened = Manager(str(tmp_path / "notify") if request.param == "path" else f"@emelex-{tmp_path}")
    yield opened
    opened.close()


class Seconds:
    """A stopwatch that tests turn."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


JOB = {"job": "j1", "kind": "distillation", "session": "s1", "attempt": 1}
STARTED = PoolStarted(pid=1, workers=2, threads=1, reason="as asked for")


def _ended(outcome: str) -> JobEnded:
    return JobEnded(outcome=outcome, seconds=1, engine_seconds=1, prompt_tokens=1, output_tokens=1, **JOB)  # type: ignore[arg-type]  # of two types


def _supervised(manager: Manager, watch: Seconds) -> Supervision:
    notifier = Notifier({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "90000000"})
    assert notifier.watchdog_seconds == 90
    return Supervision(notifier, monotonic=watch, stall_seconds=600)


def test_a_pool_says_ready_status_and_stopping(manager: Manager) -> None:
    """READY when its processes have been started on an open database, counts as they come, STOPPING at the end."""
    told = _supervised(manager, Seconds())
    told.hear(STARTED)
    assert manager.told()[0] == {"READY": "1", "STATUS": "2 workers, 0 jobs running; none done yet"}
    told.hear(JobStarted(**JOB))  # type: ignore[arg-type]  # of two types
    told.hear(_ended("completed"))
    assert manager.told()[-1]["STATUS"] == "2 workers, 0 jobs running; 1 completed"
    told.hear(PoolStopping(reason="SIGTERM\nREADY=1", grace_seconds=30))
    assert manager.told()[-1] == {"STOPPING": "1", "STATUS": "stopping: SIGTERM READY=1"}


def test_an_idle_pool_feeds_the_watchdog_with_its_rounds(manager: Manager) -> None:
    """At most every quarter of the interval; a loop that no longer turns feeds nothing."""
    watch = Seconds()
    told = _supervised(manager, watch)
    told.tick()
    assert manager.told() == [{"WATCHDOG": "1"}]
    for _ in range(20):
        watch.now += 1
        told.tick()
    assert manager.told() == []
    watch.now += 3
    told.tick()
    assert manager.told() == [{"WATCHDOG": "1"}]


def test_a_stuck_job_starves_the_watchdog(manager: Manager) -> None:
    """Rounds are no progress while every running job is silent; one step is."""
    watch = Seconds()
    told = _supervised(manager, watch)
    told.hear(JobStarted(**JOB))  # type: ignore[arg-type]  # of two types
    manager.told()
    watch.now += 599
    told.tick()
    assert len(manager.told()) == 1
    for _ in range(10):
        watch.now += 60
        told.tick()
        told.hear(WorkerFault(worker="Worker-2", kind="Storage", message="m"))
    assert manager.told() == []
    told.hear(JobStep(job="j1", done=1, total=2))
    assert manager.told() == [{"WATCHDOG": "1"}]


def test_a_dead_workers_jobs_are_not_waited_for(manager: Manager) -> None:
    """Whoever counts them may be another pool, of which this one hears nothing: they would starve the watchdog."""
    watch = Seconds()
    told = _supervised(manager, watch)
    told.hear(JobStarted(**JOB))  # type: ignore[arg-type]  # of two types
    told.hear(WorkerEnded(worker="Worker-1", pid=1, why="killed", signal="SIGKILL", jobs=(str(JOB["job"]),)))
    manager.told()
    watch.now += 10_000
    told.tick()
    assert manager.told() == [{"WATCHDOG": "1"}]


def test_without_a_manager_nothing_is_sent() -> None:
    """A terminal is no service manager."""
    notifier = Notifier({})
    assert not notifier.heard
    assert not notifier.send(READY="1")
    assert notifier.watchdog_seconds is None
    told = Supervision(notifier)
    told.hear(STARTED)
    told.tick()


@pytest.mark.parametrize("environment", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"}])
def test_a_watchdog_that_is_not_for_us_is_not_fed(environment: dict[str, str], manager: Manager) -> None:
    """sd_watchdog_enabled(3): the process id and the interval must fit."""
    given = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000", **environment}
    assert Notifier(given).watchdog_seconds is None


def test_a_manager_that_is_gone_fails_nothing(tmp_path: Path) -> None:
    """The socket's file is missing, or nobody reads it."""
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).send(READY="1")


def test_the_environment_of_a_real_process_is_taken(manager: Manager) -> None:
    """As a unit sets it."""
    code = "from emelex_workers.observe.notify import Notifier; assert Notifier().send(READY='1', STATUS='open')"
    process = child(code, env={"NOTIFY_SOCKET": manager.address})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert manager.told() == [{"READY": "1", "STATUS": "open"}]
