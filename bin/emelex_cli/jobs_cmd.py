"""`emelex memory jobs list`, `show`, `cancel`, `retry`; the aliases `failures`, `retry` (behaviours 127, 128, 162)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.output import neutralise, one_line, to_json
from emelex_core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from emelex_core.jobs.records import Job

Choice = TypeVar("Choice", bound=StrEnum)
_LIMIT = 50
_INSTEAD: Final = {
    "pending": "`emelex memory pause` keeps pending jobs from being claimed",
    "failed": "`emelex memory retry JOB` gives it another chance",
}
"""What somebody may have meant who cancels a job that does not run."""


def choice(kind: type[Choice], text: str | None, option: str) -> Choice | None:
    """Read one of an enum's words. Raises: UsageError naming all of them."""
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text[:80]!r} is unknown", hint=f"one of {', '.join(kind)}") from None


def list_jobs(
    call: Call, *, state: str | None = None, kind: str | None = None, session: str | None = None, limit: int = _LIMIT
) -> int:
    """Print jobs, the most recently published first."""
    from emelex_core.jobs import reading
    from emelex_core.jobs.kinds import JobKind, JobState

    wanted_state, wanted_kind = choice(JobState, state, "--state"), choice(JobKind, kind, "--kind")
    found: list[Job] = []
    with call.reading() as store:
        if store is not None:
            session_id = None if session is None else store.get_session(session).id
            found = reading.list_jobs(
                store.database, state=wanted_state, kind=wanted_kind, session_id=session_id, limit=limit
            )
    _print(call, found)
    return 0


def failures(call: Call) -> int:
    """Print terminal jobs, the most recently failed first."""
    found: list[Job] = []
    with call.reading() as store:
        if store is not None:
            found = store.failed_jobs()
    _print(call, found)
    return 0


def show(call: Call, *, job: str) -> int:
    """Print one job and the record of what made its result."""
    from emelex_core.jobs import reading

    with call.must_read() as store:
        found, record = reading.get_job(store.database, job.lower())
    if call.out.json:
        call.out.record({**shapes.job(found), "record": record})
        return 0
    for name, value in shapes.job(found).items():
        if value is not None:
            call.out.line(f"{name:16} {_plain(value)}")
    if record is not None:
        call.out.line(f"{'record':16} {_plain(record)}")
    return 0


def cancel(call: Call, *, job: str) -> int:
    """Take a running job away from its worker, uncounted. Raises: NotFound for one that does not run."""
    from emelex_core.jobs import reading
    from emelex_queue.cancel import cancel as take_back

    with call.writing() as store:
        found, _ = reading.get_job(store.database, job.lower())
        try:
            take_back(store.database, found.id)
        except NotFound:
            now, _ = reading.get_job(store.database, found.id)
            raise NotFound(
                f"job {now.id} is {now.state}; there is nothing to cancel", hint=_INSTEAD.get(now.state.value)
            ) from None
        found, _ = reading.get_job(store.database, found.id)
    if call.out.json:
        call.out.record({"type": "cancelled_memory_job", **shapes.job(found)})
    else:
        call.out.line(f"{found.id}  {found.kind}  {found.state}")
        call.out.note("it may be claimed again at once; `emelex memory pause` keeps jobs from that")
    return 0


def retry(call: Call, *, jobs: tuple[str, ...] = (), everything: bool = False) -> int:
    """Make failed jobs pending again. Raises: UsageError, NotFound for a job that has not failed."""
    from emelex_core.jobs import reading

    if bool(jobs) == everything:
        raise UsageError("name jobs or --all, one of the two", hint="emelex memory failures lists them")
    with call.writing() as store:
        if everything:
            found = reading.retry_all(store.database, now=store.clock())
        else:
            # All ids are resolved before the first job is touched, so that a misspelt one changes nothing.
            wanted = [reading.get_job(store.database, prefix.lower())[0].id for prefix in jobs]
            found = [store.retry_failed_job(job_id) for job_id in dict.fromkeys(wanted)]
    for job in found:
        if call.out.json:
            call.out.record({"type": "retried_memory_job", **shapes.job(job)})
        else:
            call.out.line(f"{job.id}  {job.kind}  pending")
    if not found:
        call.out.note("no failed jobs")
    return 0


def _print(call: Call, found: list[Job]) -> None:
    if call.out.json:
        for job in found:
            call.out.record(shapes.job(job))
        return
    if not found:
        call.out.note("no jobs")
        return
    rows = [
        (
            job.id[:8],
            job.kind.value,
            job.state.value,
            str(job.failure_count),
            job.session_id[:8],
            shapes.moment(job.published_at),
            shapes.short(job.last_error or "", 100),
        )
        for job in found
    ]
    call.out.table(rows, heading=("id", "kind", "state", "failures", "session", "published", "error"))


def _plain(value: Any) -> str:
    return one_line(value) if isinstance(value, str) else neutralise(to_json(value))
