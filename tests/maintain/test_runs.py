"""Maintenance as it is run (issue 7, item 5): alone, once a slot, with lost claims counted."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.errors import Refused, StorageBusy, UsageError
from emelex_core.home import Home
from emelex_core.retention import slots
from emelex_core.retention.records import RetentionPolicy
from emelex_workers import maintain as maintenance
from emelex_workers.maintain import SCHEDULE, SCHEDULE_NAME, maintain, newest_slot, run_due
from stores import DAY, MINUTE, ManualClock, answer, child, line, rows

Talk = Callable[..., Session]


def _instant(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_lost_claims_are_counted(store: MemoryStore, talk: Talk, home: Home) -> None:
    """129 and the seed: a killed worker's job is pending again with one failure; a dry run counts nothing."""
    talk(distill=True)
    code = """
        import os, sys
        from emelex_core import MemoryStore
        from emelex_core.jobs.kinds import JobKind
        from emelex_queue import claims
        store = MemoryStore.open(sys.argv[1])
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        os.kill(os.getpid(), 9)
    """
    process = child(code, home.root)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    dry = maintain(store, RetentionPolicy(), dry_run=True)
    assert dry is not None
    assert dry.lost_claims == 0
    run = maintain(store, RetentionPolicy())
    assert run is not None
    assert run.lost_claims == 1
    assert rows(home.database, "SELECT state, failure_count FROM jobs") == [("pending", 1)]


def test_overlapping_runs_are_one(store: MemoryStore, home: Home) -> None:
    """K8: who comes second does nothing; a killed run leaves no lock behind."""
    code = """
        import sys
        from emelex_core import MemoryStore
        from emelex_core.home import Home
        from emelex_workers import maintain
        from pathlib import Path
        with maintain._alone(Path(sys.argv[1])) as alone:
            print(alone, flush=True)
            sys.stdin.readline()
    """
    process = child(code, home.database)
    assert line(process) == "True"
    assert maintain(store, RetentionPolicy()) is None
    assert maintain(store, RetentionPolicy(), dry_run=True) is not None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert maintain(store, RetentionPolicy()) is not None


def test_a_slot_runs_once_however_many_ask(store: MemoryStore, home: Home) -> None:
    """Four processes with three tries each."""
    code = """
        import json, sys
        from emelex_core import MemoryStore
        from emelex_workers import maintain
        instant = int(sys.argv[2])
        with MemoryStore.open(sys.argv[1], clock=lambda: instant) as store:
            print(json.dumps(sum(maintain.run_due(store) is not None for _ in range(3))))
    """
    instant = _instant("2027-03-04T05:06:07")
    processes = [child(code, home.root, instant) for _ in range(4)]
    assert sum(answer(process) for process in processes) == 1
    assert slots.last(store.database, SCHEDULE_NAME) == (_instant("2027-03-04T03:17:00"), instant)


def test_missed_slots_are_one_run(store: MemoryStore, clock: ManualClock) -> None:
    """Three pools, a restart, a machine that slept for days: one run a slot, and one for all that were missed."""
    runs = []
    clock.now = _instant("2027-03-04T05:00:00")
    for step in (0, MINUTE, 23 * 60 * MINUTE, MINUTE, 5 * DAY, MINUTE, -2 * DAY, 2 * DAY):
        clock.turn(step)
        runs.append(sum(run_due(store) is not None for _ in range(3)))
    # The clock that was set back meets one slot that was missed then.
    assert runs == [1, 0, 1, 0, 1, 0, 1, 0]


def test_a_busy_lock_leaves_the_slot_to_the_next_look(store: MemoryStore, clock: ManualClock) -> None:
    """Who maintains by hand just then costs no night."""
    clock.now = _instant("2027-03-04T05:00:00")
    with maintenance._alone(store.database.path) as alone:
        assert alone
        assert run_due(store) is None
    assert slots.last(store.database, SCHEDULE_NAME) is None
    assert run_due(store) is not None


def test_a_run_that_failed_gives_its_slot_back(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The night's work is done at the next look."""
    clock.now = _instant("2027-03-04T05:00:00")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "maintain", _locked)
        with pytest.raises(StorageBusy):
            run_due(store)
    assert slots.last(store.database, SCHEDULE_NAME) is None
    assert run_due(store) is not None
    assert run_due(store) is None


def _locked(*_: object, **__: object) -> None:
    raise StorageBusy("locked")


def test_a_file_system_without_locks_is_refused(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for somebody else's run."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Refused, match="cannot lock"):
        maintain(store, RetentionPolicy())


@pytest.mark.parametrize(
    ("schedule", "slot"),
    [
        (SCHEDULE, "2027-03-04T03:17:00"),
        ("*/20 * * * *", "2027-03-04T05:00:00"),
        ("6 5 4 3 *", "2027-03-04T05:06:00"),
        ("7 5 * * *", "2027-03-03T05:07:00"),
        ("0 0 1 * *", "2027-03-01T00:00:00"),
        ("0 12 * * 0", "2027-02-28T12:00:00"),
    ],
)
def test_the_newest_slot_is_the_last_that_has_come(schedule: str, slot: str) -> None:
    """At 2027-03-04 05:06:07, UTC."""
    assert newest_slot(schedule, _instant("2027-03-04T05:06:07")) == _instant(slot)


@pytest.mark.parametrize(
    "schedule", ["", "1 2 3 4", "61 * * * *", "* * * * * *", "x * * * *", "* 25 * * *", "* * * * 8"]
)
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    """By name, before a slot is taken."""
    with pytest.raises(UsageError, match="schedule"):
        newest_slot(schedule, 1)


def test_a_schedule_that_never_fits_runs_nothing(store: MemoryStore) -> None:
    """The 31st of February."""
    assert newest_slot("0 0 31 2 *", _instant("2027-03-04T05:06:07")) is None


def test_the_lock_file_is_private_and_stays(store: MemoryStore, home: Home) -> None:
    """K8 and K9: 0600, never unlinked."""
    maintain(store, RetentionPolicy())
    path = Path(f"{home.database}.maintenance.lock")
    assert path.stat().st_mode & 0o777 == 0o600
