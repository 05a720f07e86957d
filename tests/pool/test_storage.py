"""huey's storage over the table: one verb works, every other one is refused (contract, "The queue"; ADR 0002)."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from huey import Huey
from huey.registry import Message
from huey.storage import BaseStorage

from emelex_core import MemoryStore
from emelex_core.errors import Invalid
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.publish import publish_compaction
from emelex_queue.huey_storage import REFUSED, IdentitySerializer, JobTableStorage
from emelex_queue.lease import JobLease
from emelex_queue.turns import Turns
from pools import job_of, publish

ANSWERED = {"close", "dequeue", "read_schedule", "peek_many", "delete_data"}
TASKS = {JobKind.DISTILLATION: "tasks.distillation", JobKind.COMPACTION: "tasks.compaction"}


@pytest.fixture
def storage(store: MemoryStore) -> JobTableStorage:
    made = JobTableStorage()
    made.attach(Turns(store.database, clock=store.clock).claim, TASKS)
    return made


def test_every_verb_of_a_storage_is_answered_or_refused() -> None:
    """A verb that a later huey adds must be looked at before it is used."""
    verbs = {name for name, _ in inspect.getmembers(BaseStorage, inspect.isfunction) if not name.startswith("_")}
    assert verbs == ANSWERED | set(REFUSED)


@pytest.mark.parametrize("verb", REFUSED)
def test_what_would_be_a_second_authority_is_refused_loudly(storage: JobTableStorage, verb: str) -> None:
    with pytest.raises(Invalid, match=verb):
        getattr(storage, verb)("key", "value")


def test_a_dequeue_is_a_claim_and_its_message_comes_from_the_row(
    store: MemoryStore, storage: JobTableStorage, workspace: Path
) -> None:
    (session,) = publish(store, workspace, "quick")
    message = storage.dequeue()
    job = job_of(store, session)
    assert message == Message(id=job.id, name="tasks.distillation", retries=0, args=(job.id,), kwargs={})
    assert job.state is JobState.RUNNING
    lease = storage.take(job.id)
    assert isinstance(lease, JobLease)
    with pytest.raises(Invalid, match="not the one"):
        storage.take(job.id)
    lease.release()


def test_no_job_is_no_message(storage: JobTableStorage) -> None:
    assert storage.dequeue() is None
    assert (storage.peek_many(["r:1"]), storage.delete_data("r:1"), storage.close()) == ({}, False, True)


def test_a_claimed_job_must_be_taken_before_the_next_one(
    store: MemoryStore, storage: JobTableStorage, workspace: Path
) -> None:
    publish(store, workspace, "quick", "quick")
    message = storage.dequeue()
    assert message is not None
    assert message.id is not None
    with pytest.raises(Invalid, match="not taken"):
        storage.dequeue()
    storage.take(message.id).release()


def test_a_process_that_is_not_attached_claims_nothing(store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "quick")
    with pytest.raises(Invalid, match="no claims"):
        JobTableStorage().dequeue()
    assert job_of(store, session).state is JobState.PENDING


def test_a_kind_without_a_task_is_given_back_uncounted(store: MemoryStore, workspace: Path) -> None:
    (session,) = publish(store, workspace, "quick")
    storage = JobTableStorage()
    storage.attach(Turns(store.database, clock=store.clock).claim, {JobKind.COMPACTION: "tasks.compaction"})
    with pytest.raises(Invalid, match="no task"):
        storage.dequeue()
    assert (job_of(store, session).state, job_of(store, session).failure_count) == (JobState.PENDING, 0)


def test_huey_runs_the_task_with_the_lease_in_its_process(
    store: MemoryStore, storage: JobTableStorage, workspace: Path
) -> None:
    """The whole path through huey, and that it asks the storage for nothing that is refused."""
    (session,) = publish(store, workspace, "quick")
    huey = Huey("test", results=False, serializer=IdentitySerializer(), storage_class=lambda name: storage)
    done: list[str] = []

    def run(job_id: str) -> None:
        storage.take(job_id).complete(lambda transaction: None, record={"by": "huey"})
        done.append(job_id)

    registered = huey.task(name="distillation")(run)
    name = huey._registry.task_to_string(registered.task_class)
    storage.attach(Turns(store.database, clock=store.clock).claim, {JobKind.DISTILLATION: name})
    task = huey.dequeue()
    assert task is not None
    huey.execute(task)
    assert done == [job_of(store, session).id]
    assert job_of(store, session).state is JobState.COMPLETED
    for misuse in (lambda: huey.put("key", 1), lambda: huey.enqueue(task), lambda: huey.lock_task("x").__enter__()):
        with pytest.raises(Invalid):
            misuse()


def test_turns_begin_with_compaction_and_alternate(store: MemoryStore, workspace: Path) -> None:
    """Behaviour 164."""
    sessions = publish(store, workspace, *["quick"] * 4)
    for session in sessions[:2]:
        with store.database.write() as transaction:
            publish_compaction(transaction, session, through=2, target_tokens=10, now=store.clock())
    turns = Turns(store.database, clock=store.clock)
    kinds: list[str] = []
    while (lease := turns.claim()) is not None:
        kinds.append(lease.job.kind.value)
        lease.complete(lambda transaction: None, record={})
    assert kinds == ["compaction", "distillation"] * 2 + ["distillation"] * 2
