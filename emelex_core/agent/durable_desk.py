"""Where a durable agent's blocking work is done: one thread for its store, one that keeps its lease (behaviour 166).

The module owns these invariants:

- The event loop never waits for SQLite, a lock or a sync: each verb runs whole on the desk's thread, one at a time.
- A task that is cancelled while it waits leaves the desk in order: what has begun there ends there.
- The keeper holds its lease weakly, so that an adapter which is dropped lets the lease go.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from emelex_core import limits
from emelex_core.agent.calls import ApprovalDecision, ApprovalRequest, ToolCall
from emelex_core.agent.turn_journal import TurnJournal
from emelex_core.db.database import Database
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import EmelexError, StaleSessionLease, Storage
from emelex_core.events import Event
from emelex_core.journal.turns import Journal
from emelex_core.sessions.lease import SessionLease

P = ParamSpec("P")
T = TypeVar("T")
RENEW_EVERY_SECONDS: Final = limits.RENEW_EVERY_MS / 1000
_MISSED_RENEWALS_MAX: Final = 2
"""A locked or full disk may pass; the lease lives through so many renewals that did not come about."""


class Desk:
    """One thread that does what blocks, in the order in which it was asked for."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on the desk's thread and return what it returns. Raises: what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *args, **kwargs))

    def later(self, call: Callable[[], object]) -> None:
        """Have a call made behind those that wait; nobody hears how it ends."""
        self._thread.submit(call)

    def close(self) -> None:
        """Take no more calls; those that wait are still done. A second call does nothing."""
        self._thread.shutdown(wait=False)


class DeskJournal(TurnJournal):
    """The journal of one Session as `AgentSession` asks it, each verb on the desk's thread."""

    def __init__(self, desk: Desk, journal: Journal) -> None:
        self._desk = desk
        self._journal = journal

    async def begin(self, message: Event) -> None:
        """`Journal.begin`."""
        await self._desk.do(self._journal.begin, message)

    async def plan(self, messages: tuple[Event, ...], calls: tuple[ToolCall, ...]) -> None:
        """`Journal.plan`."""
        await self._desk.do(self._journal.plan, messages, calls)

    async def ask(self, request: ApprovalRequest) -> None:
        """`Journal.ask`."""
        await self._desk.do(self._journal.ask, request.call, request.text)

    async def decide(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        """`Journal.decide`."""
        await self._desk.do(self._journal.decide, request.call, granted=decision.granted, reason=decision.reason)

    async def start(self, call: ToolCall) -> None:
        """`Journal.start`."""
        await self._desk.do(self._journal.start, call)

    async def complete(self, call: ToolCall, result: Event, audits: tuple[Event, ...]) -> None:
        """`Journal.complete`."""
        await self._desk.do(self._journal.complete, call, result, audits)

    async def checkpoint(self) -> None:
        """`Journal.checkpoint`."""
        await self._desk.do(self._journal.checkpoint)

    async def finish(self, messages: tuple[Event, ...], audits: tuple[Event, ...]) -> None:
        """`Journal.finish`."""
        await self._desk.do(self._journal.finish, messages, audits)

    async def fail(self, diagnostic: str) -> None:
        """`Journal.fail`."""
        await self._desk.do(self._journal.fail, diagnostic)


class Keeper:
    """Renews a Session lease from a thread of its own, with a connection of its own, until it is stopped."""

    def __init__(self, lease: SessionLease, database: Database, *, renew_every_seconds: float) -> None:
        self.error: EmelexError | None = None
        self.renewals = 0
        self._every = renew_every_seconds
        self._stop = CancelToken()
        self._turn: CancelToken | None = None
        self._thread = threading.Thread(
            target=self._run, args=(weakref.ref(lease), database), name=f"lease-{lease.session_id[:8]}", daemon=True
        )
        self._thread.start()

    def guard(self, turn: CancelToken | None) -> None:
        """Cancel this turn when the lease cannot be kept; None when no turn runs."""
        self._turn = turn
        if turn is not None and self.error is not None:
            turn.cancel()

    def stop(self) -> None:
        """Renew no more. Does not wait; safe to call twice."""
        self._stop.cancel()

    def join(self) -> None:
        """Wait until no renewal is under way."""
        self._thread.join()

    def _run(self, lease: weakref.ref[SessionLease], database: Database) -> None:
        connection: Database | None = None
        kept_at = time.monotonic()
        try:
            while not self._stop.wait(self._every):
                held = lease()
                if held is None:
                    return None
                try:
                    connection = connection or database.sibling()
                    held.renew(database=connection)
                    self.renewals += 1
                    kept_at = time.monotonic()
                except Storage as error:
                    if time.monotonic() - kept_at > self._every * _MISSED_RENEWALS_MAX:
                        return self._give_up(error)
                except Exception as error:  # noqa: BLE001 - a keeper that dies unheard would let the turn run on alone
                    if not isinstance(error, EmelexError):
                        error = StaleSessionLease(f"the renewal failed: {error!r}")
                    return self._give_up(error)
                del held
        finally:
            if connection is not None:
                connection.close()

    def _give_up(self, error: EmelexError) -> None:
        self.error = error
        if self._turn is not None:
            self._turn.cancel()
