"""A store with a clock that stands, and Sessions that name media."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import AssetRef, Event, MemoryStore, Session
from places import clock, home, store, workspace
from stores import ManualClock

__all__ = ["clock", "home", "store", "workspace"]


@pytest.fixture
def show(store: MemoryStore, workspace: Path) -> Callable[..., Session]:
    """Make a Session in which a person shows media, one event for all."""

    def make(*media: AssetRef, title: str = "pictures") -> Session:
        session = store.start_session(workspace, title=title)
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("look at this", *media), Event.assistant("I see")])
        return store.get_session(session.id)

    return make


@pytest.fixture
def names(store: MemoryStore) -> Callable[[], set[str]]:
    """The names in the asset directory."""
    directory = store.assets_directory
    return lambda: {path.name for path in directory.iterdir()} if directory.exists() else set()


@pytest.fixture
def age(clock: ManualClock) -> Callable[[Path, int], None]:
    """Make a file so many milliseconds old, by the store's clock."""

    def set_age(path: Path, milliseconds: int) -> None:
        instant = (clock.now - milliseconds) * 1_000_000
        os.utime(path, ns=(instant, instant), follow_symlinks=False)

    return set_age
