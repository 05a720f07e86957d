"""A store, an empty Session under a lease, and its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session, SessionLease
from emelex_core.errors import StaleSessionLease
from emelex_core.journal.turns import Journal
from places import clock, home, store, workspace

__all__ = ["clock", "home", "store", "workspace"]


@pytest.fixture
def session(store: MemoryStore, workspace: Path) -> Session:
    return store.start_session(workspace, title="parcels")


@pytest.fixture
def lease(store: MemoryStore, session: Session, workspace: Path) -> Iterator[SessionLease]:
    claimed = store.claim_session(session.id, workspace)
    yield claimed
    with suppress(StaleSessionLease):
        claimed.release()


@pytest.fixture
def journal(store: MemoryStore, lease: SessionLease) -> Journal:
    return Journal(lease, clock=store.clock)
