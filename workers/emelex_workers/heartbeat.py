"""The heart of a process that works: one thread with its own connection for all jobs at hand (behaviours 166 to 169).

    with Heart(database) as heart:
        with lease, heart.beat(lease, stop) as pulse:      # once a job, in whatever thread runs it
            work(pulse.cancel)

It renews each lease every minute while the engine computes, and looks twice a second whether the work should stop: the
drain was told to, the Session became live (interactive execution wins), or the lease was lost. Then it cancels the
job's engine, and the pulse's `cause` says why.

The module owns these invariants:

- One job's trouble is its own: what goes wrong with a lease ends that pulse, and the others go on.
- When a pulse's block has been left, nobody touches its lease any more.
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
"""How long the stop flag may go unseen."""


class Cause(StrEnum):
    """Why a job was cancelled."""

    STOPPED = "stopped"
    SESSION_LIVE = "session_live"
    TAKEN_AWAY = "taken_away"
    LEASE_LOST = "lease_lost"


class Pulse:
    """One job's life in the heart, for the length of a `with` block. `cancel` is what the engine polls."""

    def __init__(self, heart: Heart, lease: JobLease, stop: CancelToken) -> None:
        self.cancel = CancelToken()
        self.cause: Cause | None = None
        self.error: EmelexError | None = None
        self.renewals = 0
        self._heart = heart
        self._lease = lease
        self._stop = stop
        self._mutex = threading.Lock()
        self._over = False
        now = time.monotonic()
        self._look_at, self._renew_at = now + heart.look_every, now + heart.renew_every

    def __enter__(self) -> Self:
        self._heart.pulses.add(self)
        self._heart.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._heart.pulses.discard(self)
        with self._mutex:
            self._over = True

    def tick(self) -> None:
        """Look and renew if it is time. For the heart's own thread; what is wrong ends this pulse."""
        with self._mutex:
            if self._over or self.cause is not None:
                return
            if self._stop.cancelled:
                self._give_up(Cause.STOPPED, None)
                return
            now = time.monotonic()
            if now >= min(self._look_at, self._renew_at):
                self._tend(now)

    def _tend(self, now: float) -> None:
        try:
            if now >= self._look_at:
                self._look_at = now + self._heart.look_every
                self._lease.require_undisturbed(self._heart.connection())
            if now >= self._renew_at:
                self._lease.renew_on(self._heart.connection())
                self.renewals += 1
                self._renew_at = now + self._heart.renew_every
        except SessionBusy as error:
            self._give_up(Cause.SESSION_LIVE, error)
        except StaleJobLease as error:
            # Found by looking, an operator's cancel or a takeover; found by renewing, authority that ran out.
            self._give_up(Cause.LEASE_LOST if now >= self._renew_at else Cause.TAKEN_AWAY, error)
        except Storage as error:
            # A locked or full disk may pass; the lease lives long enough for several more tries.
            if now >= self._renew_at + 2 * self._heart.renew_every:
                self._give_up(Cause.LEASE_LOST, error)
        except Exception as error:  # noqa: BLE001 - a heart that stops unheard would let its jobs run on alone
            told = error if isinstance(error, EmelexError) else StaleJobLease(f"the heartbeat failed: {error!r}")
            self._give_up(Cause.LEASE_LOST, told)

    def _give_up(self, cause: Cause, error: EmelexError | None) -> None:
        self.cause = cause
        self.error = error
        self.cancel.cancel()


class Heart:
    """Beats while its block lasts. The thread starts with the first job, the connection opens with the first look."""

    def __init__(
        self,
        database: Database,
        *,
        renew_every_seconds: float = limits.RENEW_EVERY_MS / 1000,
        look_every_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.renew_every = renew_every_seconds
        self.look_every = look_every_seconds
        self.pulses: set[Pulse] = set()
        self._database = database
        self._connection: Database | None = None
        self._opened = ExitStack()
        self._over = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def beat(self, lease: JobLease, stop: CancelToken) -> Pulse:
        """Keep a lease alive for the length of a `with` block, until `stop` is set or the work should stop."""
        return Pulse(self, lease, stop)

    def start(self) -> None:
        """Start beating, if it does not yet."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
                self._thread.start()

    def connection(self) -> Database:
        """The heart's own connection. For its own thread. Raises: Storage."""
        if self._connection is None:
            self._connection = self._database.sibling()
            self._opened.callback(self._connection.close)
        return self._connection

    def close(self) -> None:
        """Stop beating and close the connection. A second call does nothing."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        with self._opened:
            while not self._over.wait(_POLL_SECONDS):
                # A copy, made in one step of the interpreter: jobs come and go meanwhile.
                for pulse in tuple(self.pulses):
                    pulse.tick()
