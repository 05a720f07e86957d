"""Settling (behaviours 120, 122, 123): the result and the state together, or neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, limits
from emelex_core.errors import Corrupt, Invalid, SessionBusy, StaleJobLease
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobState
from emelex_core.jobs.records import Job
from emelex_queue.lease import JobLease
from stores import edit, rows

Take = Callable[[], JobLease | None]
Look = Callable[[str], Job]
Publish = Callable[[], str]


def _nothing(transaction: object) -> None:
    del transaction


@pytest.fixture
def lease(publish: Publish, take: Take) -> JobLease:
    publish()
    taken = take()
    assert taken is not None
    return taken


def test_a_session_that_became_live_wins(store: MemoryStore, lease: JobLease, workspace: Path, look: Look) -> None:
    """120: nothing is counted, the lease stays; after the Session's release it settles."""
    with store.claim_session(lease.job.session_id, workspace) as chat:
        with pytest.raises(SessionBusy) as busy:
            lease.complete(_nothing, record={})
        assert busy.value.held_until == store.clock() + limits.LEASE_MS
        with pytest.raises(SessionBusy):
            lease.require_undisturbed(store.database)
        assert (look(lease.job.id).state, look(lease.job.id).failure_count) == (JobState.RUNNING, 0)
        chat.release()
    lease.require_undisturbed(store.database)
    lease.complete(_nothing, record={"model": "m"})
    job, record = reading.get_job(store.database, lease.job.id[:8])
    assert (job.state, job.completed_at, record) == (JobState.COMPLETED, store.clock(), {"model": "m"})


def test_a_result_that_cannot_be_written_leaves_the_job_running(
    store: MemoryStore, lease: JobLease, look: Look, path: Path
) -> None:
    """122: what the result wrote before it failed is taken back with it."""

    def fails(transaction: Any) -> None:
        transaction.run("UPDATE sessions SET title = 'half done'")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lease.complete(fails, record={})
    assert rows(path, "SELECT title FROM sessions") == [("t",)]
    assert rows(path, "SELECT count(*) FROM job_records") == [(0,)]
    assert look(lease.job.id).state is JobState.RUNNING
    lease.complete(lambda transaction: transaction.run("UPDATE sessions SET title = 'done'"), record={})
    assert rows(path, "SELECT title FROM sessions") == [("done",)]
    with pytest.raises(StaleJobLease):
        lease.complete(_nothing, record={})


@pytest.mark.parametrize("record", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}, {"a": "x" * 5_000_000}])
def test_a_record_passes_the_entry_gate(lease: JobLease, look: Look, record: dict[str, object]) -> None:
    """183."""
    with pytest.raises(Invalid):
        lease.complete(_nothing, record=record)
    assert look(lease.job.id).state is JobState.RUNNING
    lease.release()


EDITS = {
    "payload only": 'UPDATE events SET payload = CAST(\'{"parts":[{"text":"wordz","type":"text"}]}\' AS BLOB)',
    "payload and length": "UPDATE events SET payload = CAST('{\"parts\":[]}' AS BLOB)",
    "chain only": "UPDATE events SET chain = zeroblob(32)",
    "instant": "UPDATE events SET created_at = created_at + 1",
    "id": "UPDATE events SET id = '00000000-0000-0000-0000-000000000000'",
    "turn": "UPDATE events SET turn_id = '00000000-0000-0000-0000-000000000000'",
    "kind": "UPDATE events SET kind = 'context'",
    "gone": "DELETE FROM events",
}


@pytest.mark.parametrize("what", EDITS)
def test_a_source_that_changed_is_corruption(lease: JobLease, look: Look, path: Path, what: str) -> None:
    """123: between claim and completion, by raw SQL; also where only the bytes of a payload changed."""
    edit(path, EDITS[what])
    with pytest.raises(Corrupt, match=lease.job.session_id):
        lease.complete(_nothing, record={})
    assert look(lease.job.id).state is JobState.RUNNING


def test_growth_past_the_source_is_no_change(store: MemoryStore, lease: JobLease, workspace: Path) -> None:
    """123: a job rests on its prefix; what came later is another job's."""
    with store.claim_session(lease.job.session_id, workspace) as chat:
        chat.replay()
        chat.append_turn([Event.user("later")])
    lease.complete(_nothing, record={})


def test_a_failure_is_settled_once(lease: JobLease, look: Look) -> None:
    """131."""
    lease.fail("no")
    before = look(lease.job.id)
    with pytest.raises(StaleJobLease):
        lease.fail("again")
    assert look(lease.job.id) == before
    assert lease.settled
