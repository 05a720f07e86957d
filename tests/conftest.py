"""What holds for every test: the processes that it started end with it, and it collects its own garbage only."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from processes import end_all


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(autouse=True)
def older_objects_rest() -> Iterator[None]:
    """Set aside what other tests have left: a test that drops leases collects hundreds of times, half a second each."""
    gc.freeze()
    yield
    gc.unfreeze()
