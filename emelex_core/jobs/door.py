"""The verbs of jobs as the store offers them: publish, see what failed, retry. Delegations only.

A module is imported by the verb that needs it, as in the store itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emelex_core import limits

if TYPE_CHECKING:
    from emelex_core.clock import Clock
    from emelex_core.compaction_policy import CompactionPlan
    from emelex_core.db.database import Database
    from emelex_core.jobs.records import Job
    from emelex_core.publish import PublishedJob


class JobVerbs:
    """What `MemoryStore` does with jobs."""

    database: Database
    clock: Clock

    def queue_distillation(self, session_id: str) -> PublishedJob | None:
        """Publish the distillation of a Session; None when nothing was said in it. Raises: NotFound."""
        from emelex_core.publish import publish_distillation

        with self.database.write() as transaction:
            return publish_distillation(transaction, session_id, now=self.clock())

    def queue_compaction(self, session_id: str, plan: CompactionPlan) -> PublishedJob:
        """Publish a planned compaction; the same boundary twice is the same job. Raises: Invalid, NotFound."""
        from emelex_core.publish import publish_compaction

        with self.database.write() as transaction:
            return publish_compaction(
                transaction,
                session_id,
                through=plan.through_sequence,
                target_tokens=plan.target_tokens,
                now=self.clock(),
            )

    def failed_jobs(self, *, limit: int = limits.PAGE_FAILURES_MAX) -> list[Job]:
        """Terminal jobs with their diagnostics, the most recently failed first. Raises: Invalid."""
        from emelex_core.jobs import reading

        return reading.failed_jobs(self.database, limit=limit)

    def retry_failed_job(self, job_id: str) -> Job:
        """Reset one terminal job; its id and source stay. Raises: NotFound."""
        from emelex_core.jobs import reading

        return reading.retry_failed_job(self.database, job_id, now=self.clock())
