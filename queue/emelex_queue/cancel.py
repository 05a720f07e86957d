"""Cancelling: an operator takes a running job away from its worker (seed: it consumes no attempt).

To the state machine this is a release that somebody else asks for: running becomes pending, nothing is counted. The
worker finds its lease lost within a second, stops its engine and records nothing. The job may be claimed again at once;
a pause is what keeps it from that.
"""

from __future__ import annotations

from emelex_core.db.database import Database
from emelex_core.errors import NotFound
from emelex_queue.lease import SQL


def cancel(database: Database, job_id: str) -> None:
    """Release a running job from whoever holds it, uncounted. `job_id` is a full id.

    Raises: NotFound for a job that is not running, which stays as it is; Storage.
    """
    with database.write() as transaction:
        if not transaction.run(SQL["cancel"], {"id": job_id}):
            raise NotFound(f"no running job {job_id}")
