"""Claiming and counting (behaviours 119, 124, 125, 127 to 133, 181, 182; reports K3, K4)."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, limits
from emelex_core.errors import NotFound, StaleJobLease
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import Job
from emelex_queue import claims, idle
from emelex_queue.backoff import backoff_ms, is_terminal
from emelex_queue.lease import JobLease, bounded
from stores import DAY, SECOND, ManualClock, behind, child, edit, kill, line, rows

KIND = JobKind.DISTILLATION
Take = Callable[[], JobLease | None]
Look = Callable[[str], Job]
Publish = Callable[[], str]


def _taken(take: Take) -> JobLease:
    lease = take()
    assert lease is not None
    return lease


def test_the_oldest_comes_first(publish: Publish, take: Take) -> None:
    """124."""
    published = [publish() for _ in range(3)]
    leases = [_taken(take) for _ in published]
    assert [lease.job.id for lease in leases] == published
    assert take() is None


def test_waiting_blocks_nobody_and_its_place_is_kept(publish: Publish, take: Take, clock: ManualClock) -> None:
    """124: a job in back-off lets newer ones pass; once it is due it is the oldest again."""
    first, second, third = publish(), publish(), publish()
    _taken(take).fail("no")
    leases = [_taken(take)]
    clock.turn(30 * SECOND)
    leases += [_taken(take), _taken(take)]
    assert [lease.job.id for lease in leases] == [second, first, third]


def test_order_is_that_of_publishing_not_of_clocks(publish: Publish, take: Take, clock: ManualClock) -> None:
    """124 and K2: published while the clock ran back."""
    first = publish()
    clock.turn(-2 * SECOND)
    second = publish()
    clock.turn(2 * SECOND)
    leases = [_taken(take), _taken(take)]
    assert [lease.job.id for lease in leases] == [first, second]


def test_failures_back_off_30_and_60_seconds_and_the_third_ends(
    publish: Publish, take: Take, look: Look, clock: ManualClock
) -> None:
    """125: with the bounds to the millisecond."""
    job = publish()
    for count, wait in ((1, 30 * SECOND), (2, 60 * SECOND)):
        assert _taken(take).fail(f"failure {count}") == clock.now + wait
        found = look(job)
        assert (found.state, found.failure_count, found.retry_after) == (JobState.PENDING, count, clock.now + wait)
        assert found.last_error == f"failure {count}"
        clock.turn(wait - 1)
        assert take() is None
        clock.turn(1)
    assert _taken(take).fail("failure 3") is None
    found = look(job)
    assert (found.state, found.failure_count, found.failed_at) == (JobState.FAILED, 3, clock.now)
    clock.turn(DAY)
    assert take() is None


def test_back_off_doubles_up_to_five_minutes() -> None:
    """Limits."""
    assert [backoff_ms(count) // SECOND for count in range(1, 7)] == [30, 60, 120, 240, 300, 300]
    assert [is_terminal(count) for count in range(1, 5)] == [False, False, True, True]


def test_a_permanent_failure_ends_at_once(publish: Publish, take: Take, look: Look) -> None:
    """126."""
    job = publish()
    assert _taken(take).fail("never", permanent=True) is None
    assert (look(job).state, look(job).failure_count) == (JobState.FAILED, 1)


def test_failed_jobs_are_listed_newest_first_and_never_claimed(
    store: MemoryStore, publish: Publish, take: Take, clock: ManualClock
) -> None:
    """127."""
    published = [publish() for _ in range(3)]
    for _ in published:
        _taken(take).fail("never", permanent=True)
        clock.turn(1)
    assert [job.id for job in store.failed_jobs()] == published[::-1]
    assert [job.id for job in store.failed_jobs(limit=2)] == published[:0:-1]
    assert take() is None


def test_a_retry_starts_anew_with_the_same_identity(
    store: MemoryStore, publish: Publish, take: Take, look: Look
) -> None:
    """128: id and source stay; any other job is NotFound, and unchanged."""
    job, waiting = publish(), publish()
    before = look(job)
    _taken(take).fail("never", permanent=True)
    assert store.retry_failed_job(job) == before
    running = _taken(take)
    assert running.job.id == job
    for other in (waiting, job, "nobody"):
        with pytest.raises(NotFound):
            store.retry_failed_job(other)
    assert look(job).state is JobState.RUNNING
    _taken(take).fail("never", permanent=True)
    running.fail("never", permanent=True)
    assert [found.id for found in reading.retry_all(store.database, now=store.clock())] == [job, waiting]
    assert store.failed_jobs() == []


def test_an_expired_claim_is_counted_and_the_same_call_goes_on(
    store: MemoryStore, publish: Publish, take: Take, look: Look, clock: ManualClock
) -> None:
    """129: with back-off and a diagnostic; who lost it may not settle it any more (131)."""
    lost, other = publish(), publish()
    lease = _taken(take)
    clock.turn(limits.LEASE_MS)
    assert _taken(take).job.id == other
    found = look(lost)
    assert (found.state, found.failure_count, found.retry_after) == (
        JobState.PENDING,
        1,
        clock.now + 30 * SECOND,
    )
    assert found.last_error == claims.LEASE_EXPIRED
    for call in (
        lambda: lease.renew_on(store.database),
        lambda: lease.fail("late"),
        lambda: lease.complete(lambda transaction: None, record={}),
    ):
        with pytest.raises(StaleJobLease):
            call()
    assert look(lost) == found
    assert lease.settled
    lease.release()


@pytest.mark.parametrize("verb", ["fail", "complete", "release", "renew"])
def test_a_job_that_another_has_is_not_settled_by_the_first(
    store: MemoryStore, publish: Publish, take: Take, look: Look, clock: ManualClock, verb: str
) -> None:
    """130 and 131."""
    job = publish()
    first = _taken(take)
    clock.turn(limits.LEASE_MS)
    assert take() is None
    clock.turn(30 * SECOND)
    second = _taken(take)
    before = look(job)
    calls: dict[str, Callable[[], object]] = {
        "fail": lambda: first.fail("late"),
        "complete": lambda: first.complete(lambda transaction: None, record={}),
        "release": first.release,
        "renew": lambda: first.renew_on(store.database),
    }
    with pytest.raises(StaleJobLease):
        calls[verb]()
    assert look(job) == before
    second.complete(lambda transaction: None, record={})


def test_a_late_renewal_of_the_living_owner_is_survived(
    store: MemoryStore, publish: Publish, take: Take, clock: ManualClock
) -> None:
    """130: expired, but nobody looked meanwhile."""
    publish()
    lease = _taken(take)
    clock.turn(limits.LEASE_MS + SECOND)
    sibling = store.database.sibling()
    lease.renew_on(sibling)
    sibling.close()
    assert take() is None
    lease.complete(lambda transaction: None, record={})


def test_expiry_ends_after_three(publish: Publish, take: Take, look: Look, clock: ManualClock) -> None:
    """129 and K3: a job that kills its workers is not claimed for ever."""
    job = publish()
    for _ in range(3):
        lease = _taken(take)
        clock.turn(limits.LEASE_MS)
        assert take() is None
        clock.turn(limits.BACKOFF_MAX_MS)
        del lease
    assert (look(job).state, look(job).failure_count) == (JobState.FAILED, 3)


def test_recovering_is_bounded(
    store: MemoryStore, publish: Publish, path: Path, take: Take, clock: ManualClock
) -> None:
    """Limits: 128 a call, and the next call goes on."""
    publish()
    lease = _taken(take)
    with behind(path) as raw:
        for number in range(limits.EXPIRED_PER_CLAIM_MAX):
            raw.execute(
                "INSERT INTO jobs SELECT NULL, ?, kind, ?, state, failure_count, run_at, lease_token, "
                "lease_until, lease_owner, retry_after, last_error, failed_at, completed_at, published_at, "
                "through_sequence, source_event_count, source_first_event_id, source_last_event_id, ?, target_tokens "
                "FROM jobs WHERE row = 1",
                (f"{number:036}", f"{number:036}", f"{number:064}"),
            )
    clock.turn(limits.LEASE_MS)
    assert len(claims.recover_lost(store.database, clock=clock)) == limits.EXPIRED_PER_CLAIM_MAX
    assert len(claims.recover_lost(store.database, clock=clock)) == 1
    assert claims.recover_lost(store.database, clock=clock) == []
    del lease


def test_a_release_counts_nothing_and_waits_for_nothing(publish: Publish, take: Take, look: Look) -> None:
    """132: also after a failure."""
    job = publish()
    before = look(job)
    _taken(take).release()
    assert look(job) == before
    _taken(take).fail("no")
    assert look(job).failure_count == 1


def test_a_release_after_a_failure_has_no_back_off(
    publish: Publish, take: Take, look: Look, clock: ManualClock
) -> None:
    """132."""
    job = publish()
    _taken(take).fail("no")
    clock.turn(30 * SECOND)
    _taken(take).release()
    assert (look(job).failure_count, look(job).retry_after) == (1, None)
    assert _taken(take).job.id == job


def test_a_dropped_lease_is_a_counted_failure(publish: Publish, take: Take, look: Look, clock: ManualClock) -> None:
    """133: at once, with its reason and the same back-off."""
    job = publish()
    lease = _taken(take)
    del lease
    gc.collect()
    found = look(job)
    assert (found.state, found.failure_count, found.retry_after) == (JobState.PENDING, 1, clock.now + 30 * SECOND)
    assert "dropped" in str(found.last_error)
    for _ in range(2):
        clock.turn(limits.BACKOFF_MAX_MS)
        lease = _taken(take)
        del lease
        gc.collect()
    assert look(job).state is JobState.FAILED


def test_a_drop_that_would_have_to_wait_is_left_to_expiry(
    publish: Publish, take: Take, look: Look, path: Path, clock: ManualClock
) -> None:
    """27 and 133."""
    job = publish()
    lease = _taken(take)
    with behind(path) as raw:
        raw.execute("BEGIN IMMEDIATE")
        del lease
        gc.collect()
    assert look(job).state is JobState.RUNNING
    clock.turn(limits.LEASE_MS)
    assert take() is None
    assert look(job).failure_count == 1


@pytest.mark.parametrize("raised", [True, False])
def test_leaving_the_block_unsettled_is_a_counted_failure(
    publish: Publish, take: Take, look: Look, raised: bool
) -> None:
    """Contract, "Python": the diagnostic holds the real cause, bounded."""
    job = publish()
    if raised:
        with pytest.raises(ZeroDivisionError), _taken(take):
            raise ZeroDivisionError("é" * 5_000)
        assert str(look(job).last_error).startswith("ZeroDivisionError: é")
        assert len(str(look(job).last_error).encode()) <= limits.DIAGNOSTIC_BYTES_MAX
    else:
        with _taken(take):
            pass
        assert "unsettled" in str(look(job).last_error)
    assert look(job).failure_count == 1


@pytest.mark.parametrize("text", ["", " \n", "\ud800", "x" * 10_000, "é" * 10_000, "a\0b"])
def test_any_text_becomes_a_diagnostic(text: str) -> None:
    """134 and 178."""
    found = bounded(text)
    assert found.strip()
    assert len(found.encode()) <= limits.DIAGNOSTIC_BYTES_MAX


def test_a_live_session_is_skipped_not_waited_for(
    store: MemoryStore, publish: Publish, take: Take, look: Look, workspace: Path
) -> None:
    """119: the next runnable one is claimed; once released, it comes first again."""
    blocked, other = publish(), publish()
    with store.claim_session(look(blocked).session_id, workspace):
        assert idle.has_claimable(store.database, KIND, clock=store.clock)
        lease = _taken(take)
        assert lease.job.id == other
        assert take() is None
        assert not idle.has_claimable(store.database, KIND, clock=store.clock)
        depth = reading.queue_depths(store.database, now=store.clock())[KIND.value]
        assert (depth.pending, depth.running, depth.blocked) == (0, 1, 1)
    assert _taken(take).job.id == blocked
    lease.release()


def test_a_kind_and_a_session_can_be_asked_for(
    store: MemoryStore, publish: Publish, look: Look, clock: ManualClock
) -> None:
    """Contract: `work --kind --session`."""
    first, second = publish(), publish()
    assert claims.claim(store.database, JobKind.COMPACTION, clock=clock) is None
    session_id = look(second).session_id
    assert idle.has_claimable(store.database, KIND, clock=clock, session_id=session_id)
    lease = claims.claim(store.database, KIND, clock=clock, session_id=session_id)
    assert lease is not None
    assert lease.job.id == second
    assert claims.claim(store.database, KIND, clock=clock, session_id=session_id) is None
    assert idle.remaining_jobs(store.database) == 2
    assert idle.remaining_jobs(store.database, session_id=session_id) == 1
    assert idle.remaining_jobs(store.database, kind=JobKind.COMPACTION) == 0
    assert look(first).state is JobState.PENDING
    lease.release()


WORKER = """
    import sys
    from emelex_core import MemoryStore
    from emelex_core.jobs.kinds import JobKind
    from emelex_queue import claims
    store = MemoryStore.open(sys.argv[1])
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    print(lease.job.id if lease else None, flush=True)
    sys.stdin.readline()
"""


def test_the_job_of_a_killed_worker_is_counted_once_at_the_next_look(home: Path, tmp_path: Path) -> None:
    """129 and 181: without waiting for the lease; two who look at once count one failure."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(home, create=True) as store, MemoryStore.open(home) as other:
        session = store.start_session(workspace, title="t")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("words")])
            lease.release(distill=True)
        worker = child(WORKER, home)
        job = line(worker)
        assert claims.recover_lost(store.database, clock=store.clock) == []
        kill(worker)
        (loss,) = claims.recover_lost(store.database, clock=store.clock)
        assert (loss.id, loss.attempt, loss.diagnostic, loss.state) == (job, 1, claims.OWNER_DIED, JobState.PENDING)
        assert claims.recover_lost(other.database, clock=other.clock) == []
        found = reading.get_job(store.database, job)[0]
        assert found.retry_after == loss.retry_at
        assert (found.state, found.failure_count, found.last_error) == (JobState.PENDING, 1, claims.OWNER_DIED)


def test_claimers_at_once_never_get_the_same_job(home: Path, tmp_path: Path) -> None:
    """124 and K2: four processes drain 60 jobs; each is completed once."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(home, create=True) as store:
        for _ in range(60):
            session = store.start_session(workspace, title="t")
            with store.claim_session(session.id, workspace) as lease:
                lease.append_turn([Event.user("words")])
                lease.release(distill=True)
    code = """
        import sys
        from emelex_core import MemoryStore
        from emelex_core.jobs.kinds import JobKind
        from emelex_queue import claims
        store = MemoryStore.open(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        while lease := claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock):
            lease.complete(lambda transaction: None, record={})
            print(lease.job.id, flush=True)
    """
    workers = [child(code, home) for _ in range(4)]
    for worker in workers:
        assert line(worker) == "ready"
    done: Counter[str] = Counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        done.update(out.split())
    assert len(done) == 60
    assert set(done.values()) == {1}
    assert rows(MemoryStore.open(home).database.path, "SELECT state, count(*) FROM jobs GROUP BY 1") == [
        ("completed", 60)
    ]


@pytest.mark.parametrize("ahead", [DAY, 400 * DAY])
def test_a_clock_that_was_set_back_blocks_nothing_for_days(
    store: MemoryStore, publish: Publish, take: Take, look: Look, clock: ManualClock, workspace: Path, ahead: int
) -> None:
    """182 and K4: a failure, a claim, a Session and a job of a day that never came; nothing waits beyond a lease."""
    clock.turn(ahead)
    failed, claimed, blocked, fresh = publish(), publish(), publish(), publish()
    _taken(take).fail("no")
    lease = _taken(take)
    chat = store.claim_session(look(blocked).session_id, workspace)
    clock.turn(-ahead)
    assert idle.has_claimable(store.database, KIND, clock=clock)
    assert reading.queue_depths(store.database, now=clock())[KIND.value].waiting == 0
    leases = [_taken(take), _taken(take)]
    assert [found.job.id for found in leases] == [failed, fresh]
    for found in leases:
        found.complete(lambda transaction: None, record={})
    assert take() is None
    clock.turn(limits.LEASE_MS)
    later = _taken(take)
    assert later.job.id == blocked
    assert look(claimed).failure_count == 1
    clock.turn(30 * SECOND)
    again = _taken(take)
    assert again.job.id == claimed
    del lease, chat, later, again


def test_a_clock_that_was_set_forward_fires_nothing_early_twice(
    publish: Publish, take: Take, look: Look, clock: ManualClock
) -> None:
    """K4: a jump beyond the lease expires it once, as one counted failure."""
    job = publish()
    lease = _taken(take)
    clock.turn(400 * DAY)
    assert take() is None
    assert look(job).failure_count == 1
    assert take() is None
    assert look(job).failure_count == 1
    del lease


def test_a_worker_lease_tells_nothing_and_cannot_be_forged(
    store: MemoryStore, publish: Publish, take: Take, path: Path
) -> None:
    """House habit 8."""
    publish()
    lease = _taken(take)
    (token,) = rows(path, "SELECT hex(lease_token) FROM jobs")[0]
    assert token.lower() not in repr(lease).lower()
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            call(lease)
    with pytest.raises(TypeError):
        JobLease(object(), store.database, lease.job, b"x" * 16, store.clock)


def test_depths_and_coverage_tell_where_jobs_are(
    store: MemoryStore, publish: Publish, take: Take, clock: ManualClock, path: Path
) -> None:
    """Contract, `memory status`: every job is counted once, in one place."""
    for _ in range(5):
        publish()
    _taken(take).fail("no")
    _taken(take).fail("no", permanent=True)
    _taken(take).complete(lambda transaction: None, record={})
    lease = _taken(take)
    clock.turn(7 * SECOND)
    depth = reading.queue_depths(store.database, now=clock())[KIND.value]
    assert (depth.pending, depth.running, depth.waiting, depth.blocked, depth.failed, depth.completed) == (
        1,
        1,
        1,
        0,
        1,
        1,
    )
    assert depth.oldest_pending_seconds == 7
    coverage = reading.coverage(store.database)
    assert (coverage.sessions, coverage.distilled, coverage.failed, coverage.pending) == (5, 1, 1, 3)
    assert reading.queue_depths(store.database, now=clock())[JobKind.COMPACTION.value].oldest_pending_seconds is None
    assert {job.state for job in reading.list_jobs(store.database, kind=KIND)} == set(JobState)
    assert len(reading.list_jobs(store.database, state=JobState.FAILED, limit=1)) == 1
    lease.release()
    edit(path, "UPDATE jobs SET published_at = 9e15 WHERE state = 'pending'")
    assert reading.queue_depths(store.database, now=clock())[KIND.value].oldest_pending_seconds == 0


def test_one_job_of_a_kind_and_session_runs_at_a_time(store: MemoryStore, workspace: Path) -> None:
    """177: two at once would read the same events as new, and the older could settle over the newer."""
    session = store.start_session(workspace, title="grows")
    older = None
    for words in ("The port is 5432.", "The port is 5433."):
        with store.claim_session(session.id, workspace) as lease:
            lease.replay()
            lease.append_turn([Event.user(words)])
            lease.release(distill=True)
        # An untried job is pointed at what was said since; a running one keeps its source.
        older = older or claims.claim(store.database, KIND, clock=store.clock)
    assert older is not None
    assert claims.claim(store.database, KIND, clock=store.clock) is None
    assert not idle.has_claimable(store.database, KIND, clock=store.clock)
    older.complete(lambda transaction: None, record={})
    newer = claims.claim(store.database, KIND, clock=store.clock)
    assert newer is not None
    assert newer.job.source.through_sequence > older.job.source.through_sequence
    newer.release()
