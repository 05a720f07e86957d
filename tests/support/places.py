"""Fixtures of a store in a fresh directory, on a clock that stands or goes. A conftest imports what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from stores import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path, clock: ManualClock) -> Iterator[MemoryStore]:
    with MemoryStore.open(home, create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def living_store(home: Path) -> Iterator[MemoryStore]:
    """A store on the machine's own clock; a conftest takes it `as store`."""
    with MemoryStore.open(home, create=True) as opened:
        yield opened
