"""A Home that has lived: Sessions with a Summary, media, Knowledge and an import, all through the store's own verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.archive.check import check
from emelex_core.archive.records import CheckReport, Finding
from life import STEPS, Life
from places import home, workspace

__all__ = ["home", "workspace"]


@pytest.fixture
def life(home: Path, workspace: Path) -> Iterator[Life]:
    """A whole life; its lease on the imported Session is released."""
    lived = Life(home, workspace)
    for step in STEPS:
        step(lived)
    assert lived.lease is not None
    lived.lease.release()
    yield lived
    lived.close()


@pytest.fixture
def store(life: Life) -> MemoryStore:
    return life.opened


@pytest.fixture
def path(store: MemoryStore) -> Path:
    """The database file."""
    return store.database.path


@pytest.fixture
def native(life: Life) -> str:
    """The Session of our own, with a Summary and media."""
    (session,) = life.record.covered
    return session


@pytest.fixture
def faults(store: MemoryStore) -> Callable[[], list[Finding]]:
    """What a check finds beyond notes."""
    return lambda: [finding for finding in look(store).findings if finding.weight != "note"]


def look(store: MemoryStore) -> CheckReport:
    """A check that repairs nothing."""
    return check(store)
