"""One store with a clock that stands, one workspace, and a Session with history."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from places import clock, home, store, workspace

__all__ = ["clock", "home", "store", "workspace"]


@pytest.fixture
def path(store: MemoryStore) -> Path:
    """The database file of the store."""
    return store.database.path


@pytest.fixture
def session(store: MemoryStore, workspace: Path) -> Session:
    """A Session with two turns of two events each, claimed by nobody."""
    made = store.start_session(workspace, title="history")
    with store.claim_session(made.id, workspace) as lease:
        lease.append_turn([Event.user("one"), Event.assistant("two")])
        lease.append_turn([Event.user("three"), Event.assistant("four")])
    return store.get_session(made.id)
