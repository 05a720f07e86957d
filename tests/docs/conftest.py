"""The program, and a Home that holds something of everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from homes import emelex, learn, show, store, talk, transcript, workspace

__all__ = ["emelex", "everything", "learn", "show", "store", "talk", "transcript", "workspace"]


@pytest.fixture
def everything(store: MemoryStore, talk: Callable[..., Session], learn: Callable[..., None]) -> None:
    """Sessions, a completed job with its Knowledge, a failed one, and one that waits."""
    talk(2)
    learn("rule.parcels")
    talk(1)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    lease.fail("no", permanent=True)
    talk(1)
