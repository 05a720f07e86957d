"""A Home with a store, and pools that run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from places import home, workspace
from places import living_store as store
from pools import Pool, gone

__all__ = ["home", "store", "workspace"]


@pytest.fixture
def pool(home: Path, store: MemoryStore) -> Iterator[Callable[..., Pool]]:
    """Start pools on the Home; when the test is over, none of their processes may be left."""
    started: list[Pool] = []
    with ExitStack() as stack:

        def start(workers: int = 1, *, grace: float = 10.0, **spec: object) -> Pool:
            options = {"workers": workers, "grace_seconds": grace, "nice": 0, **spec.pop("options", {})}
            one = stack.enter_context(Pool(home, options=options, **spec))
            started.append(one)
            return one

        yield start
    assert gone([pid for one in started for pid in one.pids()]) == [], "processes of a pool outlived it"
