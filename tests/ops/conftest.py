"""Homes with real Sessions, and the real program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from homes import emelex, store, workspace

__all__ = ["emelex", "store", "workspace"]


@pytest.fixture
def talk(store: MemoryStore, workspace: Path) -> Callable[..., Session]:
    """Make a Session with its distillation published."""

    def make(title: str = "Sort the parcels", *, distill: bool = True) -> Session:
        session = store.start_session(workspace, title=title)
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("Always weigh the SECRET-PARCEL first."), Event.assistant("Weighed.")])
            lease.release(distill=distill)
        return store.get_session(session.id)

    return make
