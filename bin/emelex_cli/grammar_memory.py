"""The grammar of `emelex memory`: see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.app import Run
from emelex_cli.call import GLOBAL_OPTIONS
from emelex_core import limits


def _group(help: str) -> typer.Typer:  # noqa: A002 - typer's own word
    return typer.Typer(help=help, epilog=GLOBAL_OPTIONS, no_args_is_help=True, rich_markup_mode=None)


app: Final = _group("What is stored, and the work on it.")
jobs: Final = _group("Look at jobs, and give failed ones another chance.")
sessions: Final = _group("List, read and export Sessions.")
knowledge: Final = _group("Read what was learned in a workspace.")
app.add_typer(jobs, name="jobs")
app.add_typer(sessions, name="sessions")
app.add_typer(knowledge, name="knowledge")

Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="compaction or distillation")]
InSession = Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Only jobs of this Session.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="REF", help="builtin:smollm2-135m, local:NAME or endpoint:NAME")
]
Everywhere = Annotated[bool, typer.Option("--all", help="Every workspace, not only this one.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on where the page before ended.")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="an id, or 8 or more of its first characters")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="an id, or 8 or more of its first characters")]


@app.command(epilog=GLOBAL_OPTIONS)
def status() -> Run:
    """Print what is stored, how the queues stand and how many Sessions are distilled."""
    from emelex_cli import status_cmd

    return status_cmd.status


@app.command(epilog=GLOBAL_OPTIONS)
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
    )


@app.command(epilog=GLOBAL_OPTIONS)
def compact(session: SessionId, model: Model = None, everywhere: Everywhere = False) -> Run:
    """Measure a Session and queue its compaction, when something can be gained."""
    from emelex_cli import queue_cmd

    return partial(queue_cmd.compact, session=session, model=model, everywhere=everywhere)


@app.command(epilog=GLOBAL_OPTIONS)
def distill(session: SessionId, everywhere: Everywhere = False) -> Run:
    """Queue the distillation of a Session into Knowledge."""
    from emelex_cli import queue_cmd

    return partial(queue_cmd.distill, session=session, everywhere=everywhere)


@app.command(epilog=GLOBAL_OPTIONS)
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


@app.command("retry", epilog=GLOBAL_OPTIONS)
@jobs.command("retry", epilog=GLOBAL_OPTIONS)
def jobs_retry(
    job: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="ids of failed jobs")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every failed job.")] = False,
) -> Run:
    """Make failed jobs pending again, with no failures counted. Their source stays what it was."""
    from emelex_cli import jobs_cmd

    return partial(jobs_cmd.retry, jobs=tuple(job or ()), everything=everything)


@sessions.command("list", epilog=GLOBAL_OPTIONS)
def sessions_list(
    everywhere: Everywhere = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_SESSIONS_MAX, help="At most so many.")] = 50,
    cursor: Cursor = None,
) -> Run:
    """List the Sessions of this workspace, the most recently active first."""
    from emelex_cli import sessions_cmd

    return partial(sessions_cmd.list_sessions, everywhere=everywhere, limit=limit, cursor=cursor)


@sessions.command("show", epilog=GLOBAL_OPTIONS)
def sessions_show(
    session: SessionId,
    everywhere: Everywhere = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Every event in full, also those that the Summary covers.")
    ] = False,
) -> Run:
    """Print a Session as a transcript: its Summary first when it has one, then what the Summary does not cover."""
    from emelex_cli import sessions_cmd

    return partial(sessions_cmd.show, session=session, everywhere=everywhere, raw=raw)


@sessions.command("export", epilog=GLOBAL_OPTIONS)
def sessions_export(
    session: SessionId,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="A new file; never over an existing one.")
    ] = None,
    everywhere: Everywhere = False,
) -> Run:
    """Write a Session as one JSON document: every raw event, and what its Summary covers."""
    from emelex_cli import export_cmd

    return partial(export_cmd.export, session=session, output=output, everywhere=everywhere)


@knowledge.command("list", epilog=GLOBAL_OPTIONS)
def knowledge_list(
    everywhere: Everywhere = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_KNOWLEDGE_MAX, help="At most so many.")] = 50,
    cursor: Cursor = None,
) -> Run:
    """List the Knowledge of this workspace, the most recently changed first."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.list_knowledge, everywhere=everywhere, limit=limit, cursor=cursor)


@knowledge.command("show", epilog=GLOBAL_OPTIONS)
def knowledge_show(key: Annotated[str, typer.Argument(metavar="KEY", help="the exact key")]) -> Run:
    """Print one entry: content, confidence, version, and the quoted words that it rests on."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.show, key=key)
