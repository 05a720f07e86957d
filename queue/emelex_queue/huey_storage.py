"""huey's storage over the `jobs` table: a claim is what huey calls a dequeue, and nothing else is allowed (ADR 0002).

The module owns these invariants:

- The table is the only authority. huey keeps no result, retry, schedule, lock or counter; asking for one is Invalid.
- A claim's lease never leaves its process: the message that huey sees names the job, and `take` hands the lease to the
  job's own code, once. Nothing is pickled; the message is built from the row.
- Settlement belongs to the job: it happens in the transaction that writes the result. huey is told nothing of it.
- A kind of job without a task is never claimed, so that it cannot burn its leases.

What huey 3.5's consumer calls with results and retries off: `close`, `dequeue`, `read_schedule`, `peek_many` (is the
task revoked?) and `delete_data` (forget that it was). The last two are answered, since there are no revocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn, TypeAlias

from huey.registry import Message
from huey.serializer import Serializer
from huey.storage import BaseStorage

from emelex_core.errors import Invalid
from emelex_core.jobs.kinds import JobKind
from emelex_queue.lease import JobLease

ClaimSource: TypeAlias = Callable[[], JobLease | None]
"""Waits a bounded time, well under a second, for a claimed job."""

REFUSED: Final = (
    "enqueue",
    "queue_size",
    "enqueued_items",
    "flush_queue",
    "add_to_schedule",
    "schedule_size",
    "scheduled_items",
    "flush_schedule",
    "put_data",
    "peek_data",
    "pop_data",
    "wait_result",
    "has_data_for_key",
    "put_if_empty",
    "incr",
    "delete_counter",
    "result_store_size",
    "result_items",
    "flush_results",
    "flush_counters",
    "flush_all",
)
"""Every other verb of a huey storage."""


class IdentitySerializer(Serializer):
    """Hands messages through as they are: nothing is stored, so nothing needs bytes, and nothing is unpickled."""

    def serialize(self, data: Any) -> Any:
        """Return the message itself."""
        return data

    def deserialize(self, data: Any) -> Any:
        """Return the message itself."""
        return data


class JobTableStorage(BaseStorage):
    """One process's view of the table. It holds no connection; `attach` gives it the claims of this process."""

    blocking = True
    priority = False

    def __init__(self, name: str = "emelex") -> None:
        super().__init__(name)
        self._claim: ClaimSource | None = None
        self._tasks: Mapping[JobKind, str] = {}
        self._claimed: JobLease | None = None

    def attach(self, claim: ClaimSource, tasks: Mapping[JobKind, str]) -> None:
        """Let this process claim: `tasks` names huey's task for each kind that `claim` may return."""
        self._claim = claim
        self._tasks = dict(tasks)

    def dequeue(self) -> Message | None:
        """Claim a job and return its message, or None when none came within the source's wait.

        Raises: Invalid in a process that may not claim, or while a claimed job waits for its code; as claiming does.
        """
        if self._claim is None:
            raise Invalid("this process has no claims: only an attached worker takes jobs")
        if self._claimed is not None:
            raise Invalid(f"job {self._claimed.job.id} was claimed and not taken yet")
        lease = self._claim()
        if lease is None:
            return None
        if lease.job.kind not in self._tasks:
            lease.release()
            raise Invalid(f"no task runs jobs of the kind {lease.job.kind}; job {lease.job.id} was released")
        self._claimed = lease
        return Message(id=lease.job.id, name=self._tasks[lease.job.kind], retries=0, args=(lease.job.id,), kwargs={})

    def take(self, job_id: str) -> JobLease:
        """Hand over the lease of the job that `dequeue` returned last, once. Raises: Invalid."""
        lease, self._claimed = self._claimed, None
        if lease is None or lease.job.id != job_id:
            raise Invalid(f"job {job_id} is not the one that this process has claimed")
        return lease

    def close(self) -> bool:
        """There is nothing to close: connections belong to whoever attached."""
        return True

    def read_schedule(self, ts: datetime) -> list[Any]:
        """Return no task: a job that waits is a row with its own due time."""
        del ts
        return []

    def peek_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return nothing: huey asks whether a task was revoked, and no task ever is."""
        del keys
        return {}

    def delete_data(self, key: str) -> bool:
        """Say that nothing was stored under the key."""
        del key
        return False


def _refusal(verb: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        del arguments, named
        raise Invalid(f"huey asked for {verb!r}; the jobs table is the only authority (ADR 0002)")

    refuse.__name__ = verb
    return refuse


for _verb in REFUSED:
    setattr(JobTableStorage, _verb, _refusal(_verb))
