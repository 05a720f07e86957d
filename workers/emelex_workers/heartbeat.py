"""A claimed job's heartbeat: a thread of its own with a connection of its own (behaviours 166 to 169).

It renews the lease every minute while the engine computes, and looks twice a second whether the work should stop: the
drain was told to, the Session became live (interactive execution wins), or the lease was lost. Then it cancels the
engine, and `cause` says why.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from enum import StrEnum
from typing import Final, Self

from emelex_core import limits
from emelex_core.db.database import Database
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import EmelexError, SessionBusy, StaleJobLease, Storage
from emelex_queue.lease import JobLease

_LOOK_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05
"""How long the stop flag may go unseen; the wait itself ends at once when the job is done."""


class Cause(StrEnum):
    """Why a heartbeat cancelled its job."""

    STOPPED = "stopped"
    SESSION_LIVE = "session_live"
    TAKEN_AWAY = "taken_away"
    LEASE_LOST = "lease_lost"


class Heartbeat:
    """Keeps one job's lease alive for the length of a `with` block. `cancel` is what the engine polls."""

    def __init__(
        self,
        database: Database,
        lease: JobLease,
        stop: CancelToken,
        *,
        renew_every_seconds: float = limits.RENEW_EVERY_MS / 1000,
        look_every_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.cancel = CancelToken()
        self.cause: Cause | None = None
        self.error: EmelexError | None = None
        self.renewals = 0
        self._database = database
        self._lease = lease
        self._stop = stop
        self._renew_every = renew_every_seconds
        self._look_every = look_every_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{lease.job.id[:8]}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        with ExitStack() as opened:
            self._beat(opened)

    def _beat(self, opened: ExitStack) -> None:
        """Look and renew until the job is done. The connection is opened at the first look: short jobs need none."""
        connection: Database | None = None
        now = time.monotonic()
        look_at, renew_at = now + self._look_every, now + self._renew_every
        while not self._done.wait(_POLL_SECONDS):
            if self._stop.cancelled:
                self._give_up(Cause.STOPPED, None)
                return
            now = time.monotonic()
            if now < min(look_at, renew_at):
                continue
            try:
                if connection is None:
                    connection = self._database.sibling()
                    opened.callback(connection.close)
                if now >= look_at:
                    look_at = now + self._look_every
                    self._lease.require_undisturbed(connection)
                if now >= renew_at:
                    self._lease.renew_on(connection)
                    self.renewals += 1
                    renew_at = now + self._renew_every
            except SessionBusy as error:
                self._give_up(Cause.SESSION_LIVE, error)
                return
            except StaleJobLease as error:
                # Found by looking, an operator's cancel or a takeover; found by renewing, authority that ran out.
                self._give_up(Cause.LEASE_LOST if now >= renew_at else Cause.TAKEN_AWAY, error)
                return
            except Storage as error:
                # A locked or full disk may pass; the lease lives long enough for several more tries.
                if now >= renew_at + 2 * self._renew_every:
                    self._give_up(Cause.LEASE_LOST, error)
                    return
            except Exception as error:  # noqa: BLE001 - a heartbeat that dies unheard would let the job run on alone
                told = error if isinstance(error, EmelexError) else StaleJobLease(f"the heartbeat failed: {error!r}")
                self._give_up(Cause.LEASE_LOST, told)
                return

    def _give_up(self, cause: Cause, error: EmelexError | None) -> None:
        self.cause = cause
        self.error = error
        self.cancel.cancel()
