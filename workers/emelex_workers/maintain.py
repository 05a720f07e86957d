"""Maintenance as it is run: by hand, from cron or a timer, or by a pool on its schedule (issue 7, item 5).

    lock ── count lost claims ── the store's phases ── report
    schedule ── the newest slot that has come ── lock ── taken by one of all who ask ── …

The module owns these invariants:

- One run at a time: a kernel lock on a never-deleted file beside the database; who comes second does nothing.
- A slot runs once, however many pools fire. Slots that were missed collapse into the newest one. A run that failed, or
  met somebody who maintains by hand, leaves its slot to the next look.
- Claims of dead workers are counted here, by the queue; the store's own phases know no attempts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from huey import crontab

from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Cancelled, EmelexError, Storage, UsageError
from emelex_core.home import open_private, try_lock
from emelex_core.retention import slots
from emelex_core.retention.records import MaintenanceReport, RetentionPolicy
from emelex_core.store import MemoryStore
from emelex_queue import claims

SCHEDULE: Final = "17 3 * * *"
"""When a pool maintains its store: once a day, at night, UTC."""
SCHEDULE_NAME: Final = "maintenance"
LOOK_SECONDS: Final = 30.0
"""Between two looks for a slot; a look is one read."""
_FIELDS: Final = ("minute", "hour", "day", "month", "day_of_week")
_SLOT_DAYS_MAX: Final = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """One run: claims of dead workers that were counted as failures, and what the store's phases did."""

    lost_claims: int
    report: MaintenanceReport


def maintain(
    store: MemoryStore,
    policy: RetentionPolicy,
    *,
    vacuum: bool = False,
    dry_run: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> MaintenanceRun | None:
    """Maintain a store; None when somebody else does so just now. A dry run takes no lock and counts nothing.

    Raises: as `MemoryStore.maintain`.
    """
    policy.check()
    if dry_run:
        return MaintenanceRun(lost_claims=0, report=store.maintain(policy, dry_run=True))
    with _alone(store.database.path) as alone:
        return _run(store, policy, vacuum=vacuum, stopped=stopped) if alone else None


def run_due(
    store: MemoryStore,
    *,
    schedule: str = SCHEDULE,
    policy: RetentionPolicy | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> MaintenanceRun | None:
    """Maintain a store if a slot of its schedule has come that nobody took; None when there was nothing to do.

    Call it as often as you like. Raises: UsageError for the schedule; as `maintain`.
    """
    chosen = RetentionPolicy() if policy is None else policy
    chosen.check()
    slot = newest_slot(schedule, store.clock())
    if slot is None or slots.is_taken(store.database, SCHEDULE_NAME, slot):
        return None
    with _alone(store.database.path) as alone:
        if not alone or not slots.take(store.database, SCHEDULE_NAME, slot, clock=store.clock):
            return None
        with _given_back_on_failure(store, slot):
            return _run(store, chosen, vacuum=False, stopped=stopped)


class Keeper:
    """A thread that maintains a store on its schedule beside a long-lived process. It has a store of its own."""

    def __init__(
        self,
        open_store: Callable[[], MemoryStore],
        stop: CancelToken,
        *,
        tell: Callable[[EmelexError], None],
        schedule: str = SCHEDULE,
        policy: RetentionPolicy | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Prepare; `tell` hears what a run failed with. Raises: UsageError for the schedule."""
        check_schedule(schedule)
        self._open_store = open_store
        self._stop = stop
        self._tell = tell
        self._schedule = schedule
        self._policy = policy
        self._look_seconds = look_seconds
        self._thread = threading.Thread(target=self._keep, name="maintenance", daemon=True)

    def start(self) -> None:
        """Begin. The first look comes at once: a slot may have been missed."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, which comes after `stop` was set, between two phases."""
        self._thread.join()

    def _keep(self) -> None:
        while not self._stop.cancelled:
            try:
                with self._open_store() as store:
                    while not self._stop.cancelled:
                        run_due(
                            store,
                            schedule=self._schedule,
                            policy=self._policy,
                            stopped=lambda: self._stop.cancelled,
                        )
                        self._stop.wait(self._look_seconds)
            except Cancelled:
                return
            except EmelexError as error:
                self._tell(error)
                self._stop.wait(self._look_seconds)


def check_schedule(schedule: str) -> None:
    """Raise UsageError for a text that is no five crontab fields."""
    _parse(schedule)


def newest_slot(schedule: str, now: int) -> int | None:
    """The last instant at or before `now` that five crontab fields name, UTC; None when none came within a year.

    Raises: UsageError for fields that are no crontab.
    """
    fits = _parse(schedule)
    minute = datetime.fromtimestamp(now // 60_000 * 60, tz=UTC)
    oldest = minute - timedelta(days=_SLOT_DAYS_MAX)
    while minute > oldest:
        if fits(minute):
            return int(minute.timestamp()) * 1000
        minute -= timedelta(minutes=1)
    return None


def _parse(schedule: str) -> Callable[[datetime], bool]:
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise UsageError(
            f"schedule {schedule[:80]!r} has {len(fields)} fields, not {len(_FIELDS)}", hint=f"for example {SCHEDULE!r}"
        )
    try:
        return crontab(**dict(zip(_FIELDS, fields, strict=True)), strict=True)
    except ValueError as error:
        raise UsageError(f"schedule {schedule[:80]!r}: {error}", hint=f"for example {SCHEDULE!r}") from None


def _run(store: MemoryStore, policy: RetentionPolicy, *, vacuum: bool, stopped: Callable[[], bool]) -> MaintenanceRun:
    """Maintain under the lock."""
    lost = _recover(store, policy.rows_max)
    return MaintenanceRun(lost_claims=lost, report=store.maintain(policy, vacuum=vacuum, stopped=stopped))


@contextmanager
def _given_back_on_failure(store: MemoryStore, slot: int) -> Generator[None]:
    try:
        yield
    except BaseException:
        # The failure of the run is the one to tell; a slot that cannot be given back is one night without maintenance.
        with suppress(Storage):
            slots.give_back(store.database, SCHEDULE_NAME, slot)
        raise


def _recover(store: MemoryStore, rows_max: int) -> int:
    """Count lost claims until none is left or the bound is met."""
    total = 0
    while total < rows_max:
        counted = claims.recover_lost(store.database, clock=store.clock)
        if not counted:
            break
        total += len(counted)
    return total


@contextmanager
def _alone(database: Path) -> Generator[bool]:
    """Hold the maintenance lock of a database for a block, if nobody else does: the value says whether.

    Raises: Refused where the file system cannot lock, Storage.
    """
    path = database.with_name(database.name + ".maintenance.lock")
    descriptor = open_private(path, what="maintenance lock file")
    try:
        yield try_lock(descriptor, path)
    finally:
        os.close(descriptor)
