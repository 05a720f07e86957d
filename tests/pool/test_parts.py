"""The pool's parts, each by itself: size, respawns, recycling, slate, flags, channel, tether, waking up."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from huey import Huey
from huey.storage import BlackHoleStorage

from emelex_core import MemoryStore, config, limits
from emelex_core.errors import Invalid, Refused, StorageBusy, UsageError
from emelex_core.home import locate
from emelex_core.models.resolve import BUILTIN_REFERENCE, resolve_model
from emelex_queue.huey_storage import JobTableStorage
from emelex_queue.turns import Turns
from emelex_workers.engines import EngineSource
from emelex_workers.overrides import PolicyOverrides
from emelex_workers.pool.child import Child, Lines, PoolPlan
from emelex_workers.pool.events import Channel, Death, JobLost, WorkerFault
from emelex_workers.pool.latch import Latch
from emelex_workers.pool.planning_lock import PlanningLock
from emelex_workers.pool.recycle import MemoryGuard, private_bytes
from emelex_workers.pool.respawn import Respawn
from emelex_workers.pool.run import PoolOptions, run_pool
from emelex_workers.pool.size import Machine, choose_size, this_machine, weights_bytes
from emelex_workers.pool.slate import Phase, Slate
from emelex_workers.pool.wake import CommitWatch
from emelex_workers.pool.worker import PoolWorker
from pools import Pool, gone, named, publish

GIB = 1024 * limits.MIB
JOB = "0190c0de-0000-7000-8000-000000000001"
OTHER_JOB = "0190c0de-0000-7000-8000-000000000002"


@pytest.mark.parametrize(
    ("cores", "free_gib", "asked", "threads", "weights_mib", "workers"),
    [
        (1, 16, None, 1, 145, 1),
        (2, 16, None, 1, 145, 1),
        (8, 16, None, 1, 145, 7),
        (8, 16, None, 3, 145, 2),
        (8, 2, None, 1, 145, 5),
        (16, 0.2, None, 1, 145, 1),
        (8, 8, None, 1, 1_117, 6),
        (256, 512, None, 1, 145, 64),
        (2, 0.1, 12, 1, 145, 12),
    ],
)
def test_size_comes_from_cores_and_memory_unless_it_is_asked_for(
    cores: int, free_gib: float, asked: int | None, threads: int, weights_mib: int, workers: int
) -> None:
    machine = Machine(cores=cores, free_bytes=int(free_gib * GIB))
    size = choose_size(machine, workers=asked, threads=threads, weights_bytes=weights_mib * limits.MIB)
    assert (size.workers, size.threads) == (workers, threads)


def test_this_machine_is_looked_at_within_its_bounds(tmp_path: Path) -> None:
    machine = this_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.free_bytes > 0
    assert weights_bytes(resolve_model(BUILTIN_REFERENCE, models_dir=tmp_path, endpoints={})) > 97_000_000


@pytest.mark.parametrize(
    "bad",
    [
        {"workers": 0},
        {"workers": 65},
        {"threads": 0},
        {"nice": 20},
        {"grace_seconds": -1.0},
        {"grace_seconds": float("nan")},
        {"grace_seconds": float("inf")},
        {"growth_bytes_max": 0},
        {"deaths_max": 0},
    ],
)
def test_options_out_of_range_are_usage_errors(tmp_path: Path, bad: dict) -> None:
    home = locate(tmp_path / "home")
    with pytest.raises(UsageError):
        run_pool(home, config.load(home, environment={}), PoolOptions(**bad), listen=print)
    assert not home.root.exists()


def test_a_process_with_threads_may_not_run_a_pool(tmp_path: Path) -> None:
    home = locate(tmp_path / "home")
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="other")
    thread.start()
    try:
        with pytest.raises(Invalid, match="other"):
            run_pool(home, config.load(home, environment={}), PoolOptions(workers=1), listen=lambda event: None)
    finally:
        release.set()
        thread.join()
    assert multiprocessing.active_children() == []


def test_respawns_come_at_once_then_later_then_not() -> None:
    """A settled job makes the next death the first one again."""
    respawn = Respawn(deaths_max=9)
    delays = [respawn.after_death() for _ in range(9)]
    assert delays[0] == 0.0
    assert delays[-1] is None
    growing = [delay for delay in delays[1:-1] if delay is not None]
    assert growing == sorted(growing)
    assert 0.1 <= growing[0] < 0.2
    assert growing[-1] > 6
    respawn.proved()
    assert respawn.after_death() == 0.0


def test_respawn_delays_have_a_bound() -> None:
    respawn = Respawn(deaths_max=100)
    assert max(delay for _ in range(99) if (delay := respawn.after_death()) is not None) <= 30.1


def test_memory_is_compared_with_that_after_the_first_job() -> None:
    sizes = iter([300, 350, 399, 400, 401])
    guard = MemoryGuard(100, read=lambda: next(sizes))
    assert [guard.outgrown() for _ in range(5)] == [False, False, False, False, True]


def test_private_memory_grows_with_what_is_written() -> None:
    before = private_bytes()
    kept = bytearray(os.urandom(1) * (32 << 20))
    assert private_bytes() - before > 24 << 20
    assert len(kept) == 32 << 20


def test_a_slate_is_read_after_its_writer_was_killed() -> None:
    """Each job in a worker's hands, with what was being done for it."""
    slate = Slate(3)
    first, _, third = slate.places
    assert (slate.phase, slate.works()) == (Phase.STARTING, ())

    def write() -> None:
        slate.enter(Phase.WAITING)
        first.begin_job(JOB, 2)
        third.begin_job(OTHER_JOB, 1)
        for _ in range(3):
            first.begin_call()
        os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=write)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    work, other = slate.works()
    assert (work.job, work.attempt, work.doing) == (JOB, 2, "while the model computed (call 3)")
    assert 0 <= work.seconds < 10
    assert (other.job, other.attempt, other.doing) == (OTHER_JOB, 1, "before its first model call")
    first.end_call()
    assert slate.works()[0].doing == "after model call 3"
    third.end_job()
    assert [work.job for work in slate.works()] == [JOB]
    slate.clear()
    assert (slate.phase, slate.works()) == (Phase.STARTING, ())
    slate.close()


def test_a_flag_is_seen_across_a_fork_and_set_once() -> None:
    latch = Latch()
    assert not latch.is_set()
    child = multiprocessing.get_context("fork").Process(target=latch.set)
    child.start()
    assert latch.wait(5)
    child.join()
    latch.set()
    assert latch.is_set()
    assert os.read(latch.fileno(), 100) == b"!"
    latch.close()


def test_a_channel_carries_whole_messages_in_order() -> None:
    channel = Channel()
    lost = JobLost(job=JOB, kind="distillation", session=JOB, attempt=1, reason="ü" * 4_096)
    assert channel.receive_events() == []
    assert channel.send("Worker-1", lost)
    fault = WorkerFault(worker="maintenance", kind="Storage", message="no")
    assert channel.send("Scheduler", fault)
    assert channel.receive_events() == [("Worker-1", lost), ("Scheduler", fault)]
    death = Death(job=JOB, attempt=3, seconds=1.5, diagnostic="killed")
    channel.send("parent", death)
    assert channel.receive_deaths() == [death]
    channel.close()


def test_a_parent_that_does_not_read_is_not_waited_for() -> None:
    channel = Channel()
    lost = JobLost(job=JOB, kind="distillation", session=JOB, attempt=1, reason="x" * 60_000)
    sent = 0
    began = time.monotonic()
    while channel.send("Worker-1", lost):
        sent += 1
    assert sent > 2
    assert time.monotonic() - began < 5
    assert len(channel.receive_events()) == sent
    channel.close()


def test_a_child_whose_parent_has_gone_before_it_was_tied_dies() -> None:
    """The moment between the fork and PR_SET_PDEATHSIG: the id before the fork tells."""
    code = "from emelex_workers.pool.tether import tie; tie(1 << 22); print('alive')"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "")


def test_commits_of_others_are_seen_and_own_ones_are_not(store: MemoryStore, home: Path, workspace: Path) -> None:
    watch = CommitWatch(store.database)
    assert watch.changed()
    assert not watch.changed()
    store.start_session(workspace, title="mine")
    assert not watch.changed()
    with MemoryStore.open(home) as other:
        other.start_session(workspace, title="theirs")
    assert watch.changed()
    assert not watch.changed()


def test_one_planner_at_a_time(store: MemoryStore) -> None:
    first, second = PlanningLock(store.database.path), PlanningLock(store.database.path)
    with first.attempt() as held, second.attempt() as also:
        assert (held, also) == (True, False)
    with second.attempt() as held:
        assert held
    for lock in (first, second):
        lock.close()


def test_a_file_system_without_locks_is_no_other_planner(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would ever plan, without a word."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    lock = PlanningLock(store.database.path)
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Refused, match="cannot lock"), lock.attempt():
        pass
    lock.close()


def test_a_locked_database_has_no_job_now(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """From planning or from the claim: the worker waits for its next look, and plans again."""
    lines = Lines(stop=Latch(), abort=Latch(), events=Channel(), deaths=Channel())
    plan = SimpleNamespace(parent=os.getpid(), grace_seconds=1.0, growth_bytes_max=1)
    slate = Slate()
    child = Child(cast(PoolPlan, plan), lines, "Worker-1", slate)
    worker = PoolWorker(Huey("test", results=False, storage_class=BlackHoleStorage), child, JobTableStorage())
    worker._watch = CommitWatch(store.database)
    worker._turns = Turns(store.database, clock=store.clock)
    worker._unplanned = False

    def locked(now: float) -> None:
        raise StorageBusy("locked")

    monkeypatch.setattr(worker, "_turn", locked)
    assert worker._next_lease() is None
    assert worker._unplanned
    slate.close()
    lines.close()


@pytest.mark.parametrize(
    ("stated", "capped", "context"),
    [(None, False, 4_096), (1_000, True, 1_000), (16_000_000, True, 4_096), (200_000, False, 200_000)],
)
def test_a_projects_context_only_lowers_the_models_own(stated: int | None, capped: bool, context: int) -> None:
    """Compaction must not be switched off by a file that came with a repository."""
    engines = cast(EngineSource, SimpleNamespace(context_tokens=lambda: 4_096))
    overrides = PolicyOverrides(context_tokens=stated, context_capped=capped)
    assert overrides.policy(engines).context_tokens == context


def test_nothing_of_sqlite_crosses_the_fork(home: Path, store: MemoryStore, workspace: Path) -> None:
    """The parent has no file of the store open while its workers run; each worker has its own."""
    publish(store, workspace, "hold 30")
    with Pool(home, options={"workers": 2, "grace_seconds": 0.0}) as one:
        one.wait_for(named("JobStarted"))
        assert _open_files(one.process.pid, home) == set()
        for name in ("Worker-1", "Worker-2"):
            assert "emelex.sqlite3" in _open_files(one.pid_of(name), home)
        one.signal(signal.SIGTERM)
        assert one.exit_code() == 143
        assert gone(one.pids()) == []


def test_a_signal_is_heard_by_a_worker_that_is_waking_up(home: Path, store: MemoryStore) -> None:
    """From the first moment on: whenever the signal comes during the start, the pool ends, and nobody is left."""
    for number in range(8):
        with Pool(home, options={"workers": 2, "grace_seconds": 5.0}) as one:
            one.wait_for(named("PoolStarted"))
            threading.Event().wait(number * 0.003)
            one.signal(signal.SIGTERM)
            assert one.exit_code() in {143, -signal.SIGTERM}
            assert gone(one.pids()) == []


def _open_files(pid: int, home: Path) -> set[str]:
    names: set[str] = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = entry.readlink()
        except FileNotFoundError:
            continue
        if target.is_relative_to(home.resolve()):
            names.add(target.name)
    return names
