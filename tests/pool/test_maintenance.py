"""Maintenance by pools: once a slot, however many there are and whatever happens to them (issue 7, "Proof")."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from emelex_core import MemoryStore
from emelex_core.retention import slots
from emelex_workers.maintain import SCHEDULE_NAME
from pools import Pool, gone, kill, until

Pools = Callable[..., Pool]
HOUR = 3_600_000
START = int(datetime(2027, 3, 4, 5, 10, tzinfo=UTC).timestamp()) * 1000
FIRST_SLOT = START - 600_000


class Hours:
    """Pools that maintain every hour, by a clock that is a file."""

    def __init__(self, pool: Pools, folder: Path) -> None:
        self._pool = pool
        self._clock = folder / "clock"
        self._log = folder / "log"
        self.now = START
        self.pass_time(0)

    def start(self) -> Pool:
        """Start one more pool."""
        return self._pool(1, options={"maintenance": "0 * * * *"}, clock=str(self._clock), log=str(self._log))

    def pass_time(self, milliseconds: int) -> None:
        """Let the clock leap, for all at once."""
        self.now += milliseconds
        beside = self._clock.with_suffix(".new")
        beside.write_text(str(self.now))
        beside.rename(self._clock)

    def runs(self) -> int:
        """How often the store was maintained."""
        return len(self._pids("maintained"))

    def see_all_look(self, count: int) -> None:
        """Wait until so many pools have each begun and ended a look from now on."""
        before = len(self._pids("looked"))
        # The look that was under way may have begun before: the one after it has not.
        until(lambda: _at_least_twice(self._pids("looked")[before:]) >= count, seconds=30)

    def _pids(self, what: str) -> list[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [pid for pid, _, said in (line.partition(" ") for line in lines) if said == what]


def test_three_pools_a_restart_and_a_sleep_of_three_hours_are_one_run_a_slot(
    pool: Pools, store: MemoryStore, tmp_path: Path
) -> None:
    """Slots that were slept through are one run; a pool that comes back finds the slot taken."""
    hours = Hours(pool, tmp_path)
    pools = [hours.start() for _ in range(3)]
    hours.see_all_look(3)
    assert hours.runs() == 1
    assert slots.last(store.database, SCHEDULE_NAME) == (FIRST_SLOT, START)

    family = [pools[0].process.pid, *pools[0].pids()]
    kill(pools[0].process.pid)
    assert gone(family) == []
    pools[0] = hours.start()
    hours.see_all_look(3)
    assert hours.runs() == 1

    asleep = [process.pid for one in pools for process in _family(one)]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    hours.pass_time(3 * HOUR)
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    hours.see_all_look(3)
    assert hours.runs() == 2
    assert slots.last(store.database, SCHEDULE_NAME) == (FIRST_SLOT + 3 * HOUR, hours.now)

    hours.pass_time(HOUR)
    hours.see_all_look(3)
    assert hours.runs() == 3


def _family(one: Pool) -> list[psutil.Process]:
    parent = psutil.Process(one.process.pid)
    return [parent, *parent.children()]


def _at_least_twice(pids: list[str]) -> int:
    return sum(pids.count(pid) >= 2 for pid in set(pids))
