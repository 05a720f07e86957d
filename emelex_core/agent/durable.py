"""`DurableAgentSession`: an `AgentSession` on one Session lease (behaviours 61 to 101; seed, "Durable agent adapter").

    resume:  claim ─▶ model, snapshot ─▶ recover ─▶ replay
    run:     renew ─▶ the turn, journalled
    close:   publish the distillation and release

The module owns these invariants:

- A Session is only resumed with the snapshot that it was begun with, and never beside calls whose effect is unknown.
- The adapter is poisoned from before its first wait until the turn is known to be at an end. A poisoned one runs
  nothing, publishes nothing, and is only good for being closed.
- The lease is renewed from `open` to `close`, also while nobody types; losing it cancels the turn.
- Nothing that blocks runs on the event loop (emelex_core/agent/durable_desk.py).
- Each enabled-tool subset lives in memory; it never grants what the snapshot does not hold.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from emelex_core.agent.durable_attach import Attached, attach, begin
from emelex_core.agent.durable_desk import RENEW_EVERY_SECONDS, Desk, DeskJournal, Keeper
from emelex_core.agent.durable_setup import AgentSetup
from emelex_core.agent.notices import EventSink, TurnOutcome
from emelex_core.agent.session import AgentSession
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import EmelexError, Invalid, Poisoned, Storage
from emelex_core.events import AssetRef, Event
from emelex_core.journal.records import RecoveredTurn
from emelex_core.journal.turns import Journal
from emelex_core.store import MemoryStore, PathLike

if TYPE_CHECKING:
    from emelex_core.assets.media import Readable
    from emelex_core.publish import PublishedJob


class DurableAgentSession:
    """A conversation whose every step is durable before it is taken. From `open` or `resume`; an async context manager.

    Leaving the block closes it, or, when it is poisoned or the block failed, only releases the Session.
    """

    def __init__(self, desk: Desk, attached: Attached, *, renew_every_seconds: float) -> None:
        """Use `open` or `resume`."""
        self.session_id = attached.lease.session_id
        self._desk = desk
        self._store = attached.store
        self._lease = attached.lease
        self._agent = attached.agent
        self._interrupted = attached.interrupted
        self._journal = Journal(attached.lease, clock=attached.store.clock)
        self._keeper = Keeper(attached.lease, attached.store.database, renew_every_seconds=renew_every_seconds)
        self._poisoned = False
        self._closed = False
        weakref.finalize(self, self._keeper.stop)

    @classmethod
    async def open(
        cls,
        store: MemoryStore,
        workspace: PathLike,
        setup: AgentSetup,
        *,
        title: str,
        renew_every_seconds: float = RENEW_EVERY_SECONDS,
    ) -> Self:
        """Begin a new Session in a workspace and store its snapshot; where the model is installed, bind it.

        Raises: MissingModelIdentity; Invalid for the setup, the title or the directory; ModelUnusable; Storage.
        Nothing is left behind then.
        """
        return await cls._on(partial(begin, store, workspace, setup, title=title), renew_every_seconds)

    @classmethod
    async def resume(
        cls,
        store: MemoryStore,
        session_id: str,
        workspace: PathLike,
        setup: AgentSetup,
        *,
        renew_every_seconds: float = RENEW_EVERY_SECONDS,
    ) -> Self:
        """Go on with a Session, which may be empty. An interrupted turn is closed first, without running anything.

        Raises: NotFound, SessionBusy, WorkspaceMismatch; SnapshotMismatch naming the difference, SessionModelMismatch,
        MissingModelIdentity; UncertainToolInvocations naming the calls; Corrupt, Invalid over a replay cap, Storage.
        The Session is released then.
        """
        return await cls._on(partial(attach, store, session_id, workspace, setup), renew_every_seconds)

    @property
    def agent(self) -> AgentSession:
        """The harness: its history, its declarations, the subset of enabled tools. Its turns are run from here."""
        return self._agent

    @property
    def title(self) -> str:
        """The Session's title."""
        return self._lease.title

    @property
    def poisoned(self) -> bool:
        """Whether a turn runs, or was left midway."""
        return self._poisoned

    def take_interrupted_turn(self) -> RecoveredTurn | None:
        """What became of the turn that this resume found interrupted; told once (behaviour 86)."""
        found, self._interrupted = self._interrupted, None
        return found

    def enable_tools(self, names: Sequence[str]) -> None:
        """Allow exactly these of the snapshot's tools, in memory (behaviours 89 to 92). Raises: Invalid; no change."""
        self._agent.enable(names)

    async def run(
        self, message: Event | str, *, sink: EventSink | None = None, cancel: CancelToken | None = None
    ) -> TurnOutcome:
        """Run one turn; to stop it, cancel the token: a future that is dropped poisons the adapter.

        Raises: Poisoned; Invalid for the input; as `AgentSession.run`; and when the lease or the store failed, that
        error: StaleSessionLease, WorkspaceMismatch, Storage, with the adapter poisoned (behaviour 87).
        """
        self._require_usable()
        self._poisoned = True
        message = Event.user(message) if isinstance(message, str) else message
        cancel = CancelToken() if cancel is None else cancel
        began = False
        self._keeper.guard(cancel)
        try:
            # A machine that slept has let the lease run out; where nobody took the Session, it is ours again (24).
            await self._desk.do(self._prepare, message)
            began = True
            outcome = await self._agent.run(
                message, sink=sink, journal=DeskJournal(self._desk, self._journal), cancel=cancel
            )
        except Exception as error:
            self._poisoned = self._agent.poisoned if began else not isinstance(error, Invalid | Storage)
            lost = self._keeper.error
            if lost is None:
                raise
            self._poisoned = True
            raise lost from (None if lost is error else error)
        finally:
            self._keeper.guard(None)
        self._poisoned = False
        return outcome

    async def set_title(self, title: str) -> None:
        """Change the title through this adapter's own claim. Raises: Invalid, StaleSessionLease."""
        await self._desk.do(self._lease.set_title, title)

    async def store_asset(self, source: bytes | Readable, *, kind: str | None = None) -> AssetRef:
        """Store media on a thread, for an input to come. Raises: as `MemoryStore.store_asset`."""
        return await asyncio.to_thread(self._store.store_asset, source, kind=kind)

    async def close(self) -> PublishedJob | None:
        """Publish the distillation, release the Session, and return the job; None where nothing was said.

        A second call does nothing. Raises: Poisoned, with the Session released and nothing published (behaviour 85);
        StaleSessionLease, Storage.
        """
        if self._closed:
            return None
        if self._poisoned:
            await self.abandon()
            raise Poisoned("a turn was left midway; resume the Session to see what is durable")
        return await self._release(distill=True)

    async def abandon(self) -> None:
        """Release the Session and publish nothing. Raises: StaleSessionLease, Storage."""
        if not self._closed:
            await self._release(distill=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None and not self._poisoned:
            await self.close()
            return
        try:
            await self.abandon()
        except EmelexError:
            # The block's own error tells more; a lease that was lost has nothing left to release.
            if kind is None:
                raise

    @classmethod
    async def _on(cls, ready: Callable[[], Attached], renew_every_seconds: float) -> Self:
        """Attach on a desk of its own; a caller that stopped waiting leaves no claim behind."""
        desk = Desk("emelex-agent")
        attaching = asyncio.ensure_future(desk.do(ready))
        try:
            attached = await asyncio.shield(attaching)
        except asyncio.CancelledError:
            attaching.add_done_callback(partial(_let_go, desk))
            raise
        except BaseException:
            desk.close()
            raise
        return cls(desk, attached, renew_every_seconds=renew_every_seconds)

    def _prepare(self, message: Event) -> None:
        self._journal.check_input(message)
        self._lease.renew()

    def _require_usable(self) -> None:
        if self._closed:
            raise Poisoned("this agent's Session was closed; resume it")
        if self._poisoned:
            raise Poisoned("a turn runs or was left midway; resume the Session to see what is durable")
        if self._keeper.error is not None:
            raise self._keeper.error

    async def _release(self, *, distill: bool) -> PublishedJob | None:
        self._closed = True
        self._keeper.stop()
        try:
            return await asyncio.shield(self._desk.do(self._end, distill=distill))
        finally:
            self._desk.close()

    def _end(self, *, distill: bool) -> PublishedJob | None:
        self._keeper.join()
        try:
            return self._lease.release(distill=distill)
        finally:
            self._store.database.close()


def _let_go(desk: Desk, attaching: asyncio.Future[Attached]) -> None:
    """Give back what was claimed for a caller who no longer waits."""
    if not attaching.cancelled() and attaching.exception() is None:
        attached = attaching.result()
        desk.later(attached.lease.release)
        desk.later(attached.store.database.close)
    desk.close()
