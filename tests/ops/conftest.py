"""Homes with real Sessions, and the real program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from program import Program


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def emelex(tmp_path: Path, workspace: Path) -> Program:
    """The program with a Home that does not exist yet."""
    return Program(home=tmp_path / "home", workspace=workspace)


@pytest.fixture
def store(emelex: Program) -> Iterator[MemoryStore]:
    with MemoryStore.open(emelex.home, create=True) as opened:
        yield opened


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
