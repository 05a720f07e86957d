"""One store with a clock that stands, and a workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.retention import lived
from stores import DAY, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "home", create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def path(store: MemoryStore) -> Path:
    """The database file of the store."""
    return store.database.path


@pytest.fixture
def live_through(store: MemoryStore, clock: ManualClock) -> Callable[[int], None]:
    """Let days pass as a machine lives them: maintenance looks at the clock once a day, and removes nothing."""

    def live(days: int) -> None:
        with store.database.write() as transaction:
            for _ in range(days):
                clock.turn(DAY)
                lived.see(transaction, now=clock.now)

    live(10)
    return live
