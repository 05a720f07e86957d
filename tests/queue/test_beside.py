"""A settlement that claims its worker's next job in its own transaction: both stand, or neither (122, 164)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.db.database import Transaction
from emelex_core.errors import SessionBusy
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import Job
from emelex_core.publish import publish_compaction
from emelex_queue import claims, pausing
from emelex_queue.lease import JobLease
from emelex_queue.records import CountedLoss
from emelex_queue.turns import Turns
from stores import child, kill, line, rows

Look = Callable[[str], Job]
Publish = Callable[[], str]

HOLDER = """
import sys
from pathlib import Path
from emelex_core import MemoryStore
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
store = MemoryStore.open(Path(sys.argv[1]))
lease = claims.claim(store.database, JobKind.DISTILLATION, clock=lambda: int(sys.argv[2]))
print(lease.job.id, flush=True)
sys.stdin.read()
"""
"""Claims one job and waits to be killed."""


@pytest.fixture
def losses() -> list[CountedLoss]:
    return []


@pytest.fixture
def turns(store: MemoryStore, losses: list[CountedLoss]) -> Turns:
    return Turns(store.database, clock=store.clock, hear=losses.append)


def claimed(turns: Turns) -> JobLease:
    lease = turns.claim()
    assert lease is not None
    return lease


def settle(lease: JobLease, turns: Turns) -> None:
    lease.complete(lambda transaction: None, record={}, beside=turns.claim_beside)


def test_a_settlement_and_the_next_claim_are_one_commit(turns: Turns, publish: Publish, path: Path) -> None:
    """What another connection sees: right before the commit neither, right after it both."""
    first, second = publish(), publish()
    lease = claimed(turns)
    seen: list[list[tuple[object, ...]]] = []

    def beside(transaction: Transaction) -> Callable[[], None]:
        committed = turns.claim_beside(transaction)
        seen.append(rows(path, "SELECT state FROM jobs ORDER BY row"))

        def look() -> None:
            committed()
            seen.append(rows(path, "SELECT state FROM jobs ORDER BY row"))

        return look

    lease.complete(lambda transaction: None, record={}, beside=beside)
    assert seen == [[("running",), ("pending",)], [("completed",), ("running",)]]
    taken = turns.take()
    assert taken is not None
    assert (taken.job.id, turns.take()) == (second, None)
    settle(taken, turns)
    assert turns.take() is None
    assert rows(path, "SELECT id FROM jobs WHERE state = 'completed' ORDER BY row") == [(first,), (second,)]


def test_what_was_rolled_back_has_claimed_nothing(turns: Turns, publish: Publish, look: Look) -> None:
    """122: the error comes after the claim; both are undone, and both are made when it is tried again."""
    first, second = publish(), publish()
    lease = claimed(turns)

    def fails(transaction: Any) -> Callable[[], None]:
        turns.claim_beside(transaction)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lease.complete(lambda transaction: None, record={}, beside=fails)
    assert turns.take() is None
    assert [look(job).state for job in (first, second)] == [JobState.RUNNING, JobState.PENDING]
    settle(lease, turns)
    taken = claimed(turns)
    assert taken.job.id == second
    taken.release()


def test_a_settlement_that_is_refused_claims_nothing(
    turns: Turns, publish: Publish, look: Look, store: MemoryStore, workspace: Path
) -> None:
    """120: the live Session's job is given back, and the next one is untouched."""
    publish()
    second = publish()
    lease = claimed(turns)
    with store.claim_session(lease.job.session_id, workspace), pytest.raises(SessionBusy):
        settle(lease, turns)
    lease.release()
    assert turns.take() is None
    assert look(second).state is JobState.PENDING


def test_what_may_not_be_claimed_is_not_claimed_beside_a_settlement(
    turns: Turns, publish: Publish, look: Look, store: MemoryStore, workspace: Path
) -> None:
    """Live Sessions and pauses stand in the claim statement itself."""
    publish()
    live, free = publish(), publish()
    lease = claimed(turns)
    with store.claim_session(look(live).session_id, workspace):
        settle(lease, turns)
        taken = claimed(turns)
        assert taken.job.id == free
        pausing.pause(store.database, reason="a test", clock=store.clock)
    settle(taken, turns)
    assert turns.claim() is None
    assert look(live).state is JobState.PENDING


def test_kinds_take_turns_across_settlements(turns: Turns, store: MemoryStore, workspace: Path) -> None:
    """164: a claim beside a settlement counts as a turn like any other."""
    for number in range(3):
        session = store.start_session(workspace, title=f"{number}")
        with store.claim_session(session.id, workspace) as chat:
            chat.append_turn([Event.user("words"), Event.assistant("more words")])
            chat.release(distill=True)
        with store.database.write() as transaction:
            publish_compaction(transaction, session.id, through=2, target_tokens=10, now=store.clock())
    kinds: list[JobKind] = []
    lease = turns.claim()
    while lease is not None:
        kinds.append(lease.job.kind)
        settle(lease, turns)
        lease = turns.take()
    assert kinds == [JobKind.COMPACTION, JobKind.DISTILLATION] * 3


def test_what_nobody_took_is_given_back_uncounted(turns: Turns, publish: Publish, look: Look) -> None:
    """167: stopping is nobody's failure."""
    publish()
    second = publish()
    settle(claimed(turns), turns)
    assert look(second).state is JobState.RUNNING
    turns.give_back()
    turns.give_back()
    job = look(second)
    assert (job.state, job.failure_count, job.last_error) == (JobState.PENDING, 0, None)


def test_one_claim_waits_at_most(turns: Turns, publish: Publish, look: Look, store: MemoryStore) -> None:
    """Another settlement claims nothing while what an earlier one claimed has not been taken."""
    publish()
    publish()
    third = publish()
    first = claimed(turns)
    other = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert other is not None
    settle(first, turns)
    settle(other, turns)
    taken = turns.take()
    assert taken is not None
    assert (taken.job.id, turns.take()) == (third, None)
    taken.release()


def test_a_loss_counted_beside_a_settlement_is_told_once(
    turns: Turns, losses: list[CountedLoss], publish: Publish, look: Look, home: Path, store: MemoryStore
) -> None:
    """129: it is told when it is committed and the claim is taken, though there was nothing to claim."""
    lost = publish()
    holder = child(HOLDER, home, str(store.clock()))
    assert line(holder) == lost
    publish()
    lease = claimed(turns)
    kill(holder)
    settle(lease, turns)
    assert losses == []
    assert look(lost).failure_count == 1
    assert turns.take() is None
    assert turns.take() is None
    assert [(loss.id, loss.attempt, loss.diagnostic) for loss in losses] == [(lost, 1, claims.OWNER_DIED)]


def test_a_claim_whose_losses_nobody_hears_is_given_back_uncounted(
    publish: Publish, look: Look, home: Path, store: MemoryStore
) -> None:
    """167: a reader that has gone ends the worker, and is no failure of the job that it had just claimed."""
    lost = publish()
    holder = child(HOLDER, home, str(store.clock()))
    assert line(holder) == lost
    first, second = publish(), publish()

    def deaf(loss: CountedLoss) -> None:
        raise BrokenPipeError

    turns = Turns(store.database, clock=store.clock, hear=deaf)
    lease = claimed(turns)
    assert lease.job.id == first
    kill(holder)
    settle(lease, turns)
    assert look(second).state is JobState.RUNNING
    with pytest.raises(BrokenPipeError):
        turns.take()
    assert (look(second).state, look(second).failure_count) == (JobState.PENDING, 0)
    assert look(lost).failure_count == 1
