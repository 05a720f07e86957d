"""Deaths that somebody saw: the claim of a killed worker is counted with what its parent knows (issue 7, item 3).

Any claim counts the jobs of dead owners, with a general diagnostic. Who reaped the process knows the signal and the
phase; whichever of the two comes first, the job has one counted failure, and the better diagnostic stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.errors import Corrupt
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_queue import claims
from emelex_queue.lease import SQL, bounded, count_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedDeath:
    """A job as the death of its worker left it. `retry_at` is None when it became terminal."""

    kind: JobKind
    session_id: str
    state: JobState
    retry_at: int | None
    diagnostic: str


def count_death(database: Database, *, job_id: str, attempt: int, diagnostic: str, clock: Clock) -> CountedDeath | None:
    """Count the failure of an attempt whose owner is dead, or explain it where it was counted already.

    None when that attempt ended otherwise: it was settled before its worker died. Raises: Storage.
    """
    text = bounded(f"attempt {attempt}: {diagnostic}")
    with database.write() as transaction:
        found = transaction.one(SQL["orphan"], {"id": job_id, "failure_count": attempt - 1})
        if found is not None:
            count_failure(
                transaction,
                job_id=job_id,
                token=cast(bytes, found[0]),
                failure_count=attempt,
                diagnostic=text,
                permanent=False,
                now=clock(),
            )
        elif not transaction.run(
            SQL["explain_death"],
            {"id": job_id, "failure_count": attempt, "error": text, "unexplained": claims.OWNER_DIED},
        ):
            return None
        row = transaction.one(SQL["after_death"], {"id": job_id, "failure_count": attempt})
    if row is None:
        raise Corrupt(f"job {job_id} vanished while the death of its worker was counted")
    return CountedDeath(
        kind=JobKind(cast(str, row[0])),
        session_id=cast(str, row[1]),
        state=JobState(cast(str, row[2])),
        retry_at=cast("int | None", row[3]),
        diagnostic=text,
    )


def release_orphan(database: Database, *, job_id: str, attempt: int) -> bool:
    """Give back, uncounted, the job of a worker that a shutdown had to kill; whether it was still claimed.

    Stopping is nobody's failure: whoever stops a pool and kills what is left does not charge the job for it.
    Raises: Storage.
    """
    with database.write() as transaction:
        found = transaction.one(SQL["orphan"], {"id": job_id, "failure_count": attempt - 1})
        if found is None:
            return False
        return transaction.run(SQL["release"], {"id": job_id, "token": cast(bytes, found[0])}) == 1
