"""Cancelling a running job (seed: it releases authority without consuming an attempt)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emelex_core import MemoryStore
from emelex_core.errors import NotFound, StaleJobLease
from emelex_core.jobs.kinds import JobState
from emelex_core.jobs.records import Job
from emelex_queue.cancel import cancel
from emelex_queue.lease import JobLease

Take = Callable[[], JobLease | None]
Look = Callable[[str], Job]


def test_a_cancelled_job_is_pending_and_uncounted(
    store: MemoryStore, publish: Callable[[], str], take: Take, look: Look
) -> None:
    """Also one that has failed before: the count and its diagnostic stay."""
    job_id = publish()
    first = take()
    assert first is not None
    cancel(store.database, job_id)
    assert (look(job_id).state, look(job_id).failure_count) == (JobState.PENDING, 0)
    second = take()
    assert second is not None
    assert second.job.attempt == 1
    second.release()


def test_the_worker_of_a_cancelled_job_finds_out_and_settles_nothing(
    store: MemoryStore, publish: Callable[[], str], take: Take, look: Look
) -> None:
    """The next look says so; neither result nor failure is recorded, not even when another holds the job again."""
    job_id = publish()
    lost = take()
    assert lost is not None
    lost.require_undisturbed(store.database)
    cancel(store.database, job_id)
    again = take()
    assert again is not None
    with pytest.raises(StaleJobLease):
        lost.require_undisturbed(store.database)
    assert lost.settled
    again.require_undisturbed(store.database)
    again.complete(lambda transaction: None, record={})
    assert (look(job_id).state, look(job_id).failure_count) == (JobState.COMPLETED, 0)


@pytest.mark.parametrize("end", ["release", "fail", "complete"])
def test_what_does_not_run_is_not_cancelled(
    store: MemoryStore, publish: Callable[[], str], take: Take, look: Look, end: str
) -> None:
    """The guard stands in the statement: the row is as before."""
    job_id = publish()
    lease = take()
    assert lease is not None
    if end == "release":
        lease.release()
    elif end == "fail":
        lease.fail("no", permanent=True)
    else:
        lease.complete(lambda transaction: None, record={})
    before = look(job_id)
    with pytest.raises(NotFound, match=job_id):
        cancel(store.database, job_id)
    assert look(job_id) == before
