"""Deaths that somebody saw: the claim of a killed worker is counted with what its parent knows (issue 7, item 3).

Any claim counts the jobs of dead owners, with a general diagnostic. Who reaped the process knows the signal and the
phase; whichever of the two comes first, the job has one counted failure, and the better diagnostic stands.
"""

from __future__ import annotations

from typing import cast

from emelex_core.clock import Clock
from emelex_core.db.database import Database, Value
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from emelex_queue.lease import SQL, bounded, count_failure
from emelex_queue.records import CountedLoss


def count_death(database: Database, *, job_id: str, attempt: int, diagnostic: str, clock: Clock) -> CountedLoss | None:
    """Count the failure of an attempt whose owner is dead; None when it had ended before, by whoever's hand.

    Where a claim has counted it first, without knowing why, the diagnostic is put in the place of the general one.
    Raises: Storage.
    """
    text = bounded(f"attempt {attempt}: {diagnostic}")
    with database.write() as transaction:
        found = transaction.one(SQL["orphan"], {"id": job_id, "failure_count": attempt - 1})
        if found is None:
            explained: dict[str, Value] = {
                "id": job_id,
                "failure_count": attempt,
                "error": text,
                "unexplained": claims.OWNER_DIED,
            }
            transaction.run(SQL["explain_death"], explained)
            return None
        token, kind, session_id = found
        retry_at = count_failure(
            transaction,
            job_id=job_id,
            token=cast(bytes, token),
            failure_count=attempt,
            diagnostic=text,
            permanent=False,
            now=clock(),
        )
    return CountedLoss(
        id=job_id,
        kind=JobKind(cast(str, kind)),
        session_id=cast(str, session_id),
        attempt=attempt,
        retry_at=retry_at,
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
