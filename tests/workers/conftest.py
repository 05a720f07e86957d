"""Homes with real Sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.sessions.records import Session
from places import home, workspace
from places import living_store as store
from scripted import turn

__all__ = ["home", "store", "workspace"]


@pytest.fixture
def talk(store: MemoryStore, workspace: Path) -> Callable[[int], Session]:
    """Make a finished Session of so many turns, with its distillation published."""

    def make(turns: int = 2) -> Session:
        session = store.start_session(workspace, title=f"{turns} turns")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turns([turn(number) for number in range(1, turns + 1)])
            lease.release(distill=True)
        return store.get_session(session.id)

    return make
