"""How a durable agent gets its Session: claimed, proven to be what it was, and with nothing left unfinished.

Everything here blocks, and runs on the desk's thread. What is refused releases the Session again (behaviour 63).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from emelex_core import identity
from emelex_core.agent.durable_setup import AgentSetup
from emelex_core.agent.session import AgentSession
from emelex_core.errors import EmelexError
from emelex_core.events import Event
from emelex_core.journal import recovery, snapshots
from emelex_core.journal.records import RecoveredTurn
from emelex_core.sessions.lease import SessionLease
from emelex_core.sessions.records import StoredEvent
from emelex_core.store import MemoryStore, PathLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A claimed Session that is ready for its next turn."""

    store: MemoryStore
    lease: SessionLease
    agent: AgentSession
    interrupted: RecoveredTurn | None


def begin(store: MemoryStore, workspace: PathLike, setup: AgentSetup, *, title: str) -> Attached:
    """Start a Session and attach to it; a failure leaves none behind. Raises: as `DurableAgentSession.open`."""
    # Before anything is stored: a setup that no snapshot can be made of begins no Session.
    setup.snapshot(identity.inspect(workspace).path)
    twin = _twin(store)
    with _closing_on_failure(twin):
        session = twin.start_session(workspace, title=title)
        try:
            return _attach(twin, session.id, workspace, setup)
        except BaseException:
            twin.delete_session(session.id)
            raise


def attach(store: MemoryStore, session_id: str, workspace: PathLike, setup: AgentSetup) -> Attached:
    """Attach to a Session that is there. Raises: as `DurableAgentSession.resume`."""
    twin = _twin(store)
    with _closing_on_failure(twin):
        return _attach(twin, session_id, workspace, setup)


def _twin(store: MemoryStore) -> MemoryStore:
    """The same store on a connection of its own, so that nobody else's transactions are waited for."""
    return MemoryStore(store.database.sibling(), store.assets_directory, store.clock, place=store.home)


@contextmanager
def _closing_on_failure(twin: MemoryStore) -> Generator[None]:
    try:
        yield
    except BaseException:
        twin.database.close()
        raise


def _attach(store: MemoryStore, session_id: str, workspace: PathLike, setup: AgentSetup) -> Attached:
    """Claim a Session and make it ready; what is refused releases it again (behaviour 63)."""
    lease = store.claim_session(session_id, workspace)
    try:
        session = store.get_session(session_id)
        is_empty = session.last_sequence == 0
        found = snapshots.load(store.database, session_id)
        wanted = setup.snapshot(identity.inspect(workspace).path)
        setup.require_model(session, found)
        snapshots.require_same(session_id, found, wanted, is_empty=is_empty)
        interrupted = _reconcile(store, lease)
        replayed = lease.replay()
        if setup.installed is not None and is_empty and session.model_snapshot_id is None:
            model, manager = setup.installed
            store.bind_model(session_id, model, manager=manager, lease=lease)
        snapshots.keep(lease, wanted, clock=store.clock)
        agent = setup.agent([_event(event) for event in replayed])
    except BaseException:
        with suppress(EmelexError):
            lease.release()
        raise
    return Attached(store=store, lease=lease, agent=agent, interrupted=interrupted)


def _reconcile(store: MemoryStore, lease: SessionLease) -> RecoveredTurn | None:
    """Close an interrupted turn, if there is one. Raises: UncertainToolInvocations, before anything is proven."""
    turn = recovery.interrupted(store.database, lease.session_id)
    if turn is None:
        return None
    if turn.uncertain:
        raise recovery.uncertainty(turn)
    lease.prove()
    return recovery.recover(lease, clock=store.clock)


def _event(stored: StoredEvent) -> Event:
    return Event(kind=stored.kind, parts=stored.parts, label=stored.label, provenance=stored.provenance)
