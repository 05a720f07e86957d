"""A queue with a clock that stands, and a way to publish jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.jobs.kinds import JobKind
from emelex_core.jobs.reading import get_job
from emelex_core.jobs.records import Job
from emelex_queue import claims
from emelex_queue.lease import JobLease
from places import clock, home, store, workspace

__all__ = ["clock", "home", "store", "workspace"]

KIND = JobKind.DISTILLATION


@pytest.fixture
def path(store: MemoryStore) -> Path:
    return store.database.path


@pytest.fixture
def publish(store: MemoryStore, workspace: Path) -> Callable[[], str]:
    """Publish the distillation of a new Session and return the job's id."""

    def make() -> str:
        session = store.start_session(workspace, title="t")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("words")])
            job = lease.release(distill=True)
        assert job is not None
        return job.id

    return make


@pytest.fixture
def take(store: MemoryStore) -> Callable[[], JobLease | None]:
    """Claim the next distillation."""
    return lambda: claims.claim(store.database, KIND, clock=store.clock)


@pytest.fixture
def look(store: MemoryStore) -> Callable[[str], Job]:
    """A job as it is stored."""
    return lambda job_id: get_job(store.database, job_id)[0]
