"""The grammar of the queue: `memory work`, `compact`, `distill`, `pause`, `resume` and `jobs`. See grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import QUEUE, Everywhere, InSession, JobId, Kind, Model, SessionId, group
from emelex_core import limits

jobs: Final = group("Look at jobs, take running ones back, and give failed ones another chance.")


def add_to(memory: typer.Typer) -> None:
    """Add these commands, and the group `jobs`, to `emelex memory`."""
    for command in (work, compact, distill, pause, resume, failures):
        memory.command(epilog=GLOBAL_OPTIONS, rich_help_panel=QUEUE)(command)
    memory.command("retry", epilog=GLOBAL_OPTIONS, rich_help_panel=QUEUE)(jobs_retry)
    memory.add_typer(jobs, name="jobs", rich_help_panel=QUEUE)


def work(
    max_jobs: Annotated[
        int | None, typer.Option("--max-jobs", min=1, metavar="N", help="Stop after so many jobs.")
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option("--max-time", metavar="D", help="Take no job after this long: 30s, 5m, 1h."),
    ] = None,
    kind: Kind = None,
    session: InSession = None,
    model: Model = None,
    no_chunking: Annotated[
        bool, typer.Option("--no-chunking", help="Fail a source over the context instead of folding it.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="PATH", help="Add what was done to a text file of Prometheus metrics."),
    ] = None,
) -> Run:
    """Run jobs until nothing is runnable: compaction first, then in turn. Loads the model only when there is work.

    Exits with 8 when a job became terminal in this run; Ctrl-C gives the job back uncounted.
    """
    from emelex_cli import work_cmd

    return partial(
        work_cmd.work,
        max_jobs=max_jobs,
        max_time=max_time,
        kind=kind,
        session=session,
        model=model,
        no_chunking=no_chunking,
        metrics=metrics,
    )


def compact(session: SessionId, model: Model = None, everywhere: Everywhere = False) -> Run:
    """Measure a Session and queue its compaction, when something can be gained."""
    from emelex_cli import queue_cmd

    return partial(queue_cmd.compact, session=session, model=model, everywhere=everywhere)


def distill(session: SessionId, everywhere: Everywhere = False) -> Run:
    """Queue the distillation of a Session into Knowledge."""
    from emelex_cli import queue_cmd

    return partial(queue_cmd.distill, session=session, everywhere=everywhere)


def pause(
    kind: Kind = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="One line for who asks why.")] = None,
) -> Run:
    """Let no job be claimed, or none of one kind, until `resume`. What runs already runs to its end.

    The pause is stored: it holds for every drain and pool, across restarts. Sessions may be queued meanwhile.
    """
    from emelex_cli import queue_cmd

    return partial(queue_cmd.pause, kind=kind, reason=reason)


def resume(kind: Kind = None) -> Run:
    """Let jobs be claimed again, or those of one kind."""
    from emelex_cli import queue_cmd

    return partial(queue_cmd.resume, kind=kind)


def failures() -> Run:
    """List the jobs that became terminal, with what went wrong: the same as `jobs list --state failed`."""
    from emelex_cli import jobs_cmd

    return jobs_cmd.failures


@jobs.command("list", epilog=GLOBAL_OPTIONS)
def jobs_list(
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="pending, running, completed or failed")
    ] = None,
    kind: Kind = None,
    session: InSession = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_JOBS_MAX, help="At most so many.")] = 50,
) -> Run:
    """List jobs, the most recently published first."""
    from emelex_cli import jobs_cmd

    return partial(jobs_cmd.list_jobs, state=state, kind=kind, session=session, limit=limit)


@jobs.command("show", epilog=GLOBAL_OPTIONS)
def jobs_show(job: JobId) -> Run:
    """Print one job: its state, its source and the record of what made its result."""
    from emelex_cli import jobs_cmd

    return partial(jobs_cmd.show, job=job)


@jobs.command("cancel", epilog=GLOBAL_OPTIONS)
def jobs_cancel(job: JobId) -> Run:
    """Take a running job away from its worker, uncounted. It is pending again and may be claimed at once.

    The worker stops within a second, records nothing and goes on with what is next. To keep the job from running
    again, pause the queue first. Exits with 3 when the job does not run.
    """
    from emelex_cli import jobs_cmd

    return partial(jobs_cmd.cancel, job=job)


@jobs.command("retry", epilog=GLOBAL_OPTIONS)
def jobs_retry(
    job: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="ids of failed jobs")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every failed job.")] = False,
) -> Run:
    """Make failed jobs pending again, with no failures counted. Their source stays what it was."""
    from emelex_cli import jobs_cmd

    return partial(jobs_cmd.retry, jobs=tuple(job or ()), everything=everything)


@jobs.command("rerun", epilog=GLOBAL_OPTIONS)
def jobs_rerun(
    job: JobId,
    model: Annotated[
        str | None, typer.Option("--model", metavar="REF", help="Another model; by default the one that made it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Required: the stored result is never replaced.")] = False,
) -> Run:
    """Run a completed job again beside its record and print how the results differ. Stores nothing."""
    from emelex_cli import rerun_cmd

    return partial(rerun_cmd.rerun, job=job, model=model, dry_run=dry_run)
