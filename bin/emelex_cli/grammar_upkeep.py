"""The grammar of what keeps running: `memory pool`, `maintain`, `removals`, `top`, and `service`. See grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import QUEUE, UPKEEP, Model, group
from emelex_core import limits

service: Final = group("Have a service manager keep the pool running and the store maintained.")

ManagerName = Annotated[str, typer.Argument(metavar="MANAGER", help="systemd, supervisord, cron or launchd")]
System = Annotated[bool, typer.Option("--system", help="For the whole machine, as the user emelex; systemd only.")]
ProgramPath = Annotated[
    str | None, typer.Option("--program", metavar="PATH", help="The program to run, by default this one.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say exactly what would go and why; change nothing.")]
Days = Annotated[
    int | None,
    typer.Option(
        "--days",
        min=1,
        max=limits.RETENTION_DAYS_MAX,
        help="Keep Sessions and Knowledge that were used within so many days. By default what [retention] in the "
        f"configuration says, else {limits.RETENTION_DAYS}.",
    ),
]
Rows = Annotated[
    int, typer.Option("--rows", min=1, max=limits.MAINTAIN_ROWS_MAX, help="Remove at most so many rows a phase.")
]


def add_to(memory: typer.Typer) -> None:
    """Add these commands to `emelex memory`."""
    for upkeep in (maintain, gc, removals):
        memory.command(epilog=GLOBAL_OPTIONS, rich_help_panel=UPKEEP)(upkeep)
    for queue in (pool, top):
        memory.command(epilog=GLOBAL_OPTIONS, rich_help_panel=QUEUE)(queue)


def maintain(
    dry_run: DryRun = False,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Also give all free pages back to the disk.")] = False,
    days: Days = None,
    rows: Rows = limits.MAINTAIN_ROWS,
) -> Run:
    """Count lost claims, remove what is too old, collect assets, tend the file. Safe beside everything.

    Never removes what is live or pinned, has work pending, or an unreconciled turn. Exits with 75 when a phase could
    not be finished; the others ran.
    """
    from emelex_cli import maintain_cmd

    return partial(maintain_cmd.maintain, dry_run=dry_run, vacuum=vacuum, days=days, rows=rows)


def gc(dry_run: DryRun = False, days: Days = None, rows: Rows = limits.MAINTAIN_ROWS) -> Run:
    """The same as `maintain --vacuum`."""
    from emelex_cli import maintain_cmd

    return partial(maintain_cmd.maintain, dry_run=dry_run, vacuum=True, days=days, rows=rows)


def removals(
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.MAINTAIN_ROWS_MAX, help="At most so many.")] = 50,
) -> Run:
    """List what maintenance removed, when and why, the latest first."""
    from emelex_cli import maintain_cmd

    return partial(maintain_cmd.removals, limit=limit)


def pool(
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="By default what the machine carries.")
    ] = None,
    model: Model = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", min=1, metavar="N", help="Jobs a worker has waiting at once, for an endpoint:."),
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="D", help="How long running jobs may go on after TERM or Ctrl-C.")
    ] = "30s",
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="PLACE", help="127.0.0.1:9464, or the path of a text file.")
    ] = None,
    no_maintenance: Annotated[
        bool, typer.Option("--no-maintenance", help="Leave maintenance to a timer or to cron.")
    ] = False,
) -> Run:
    """Run a long-lived pool of workers, for a supervisor or a terminal. It maintains the store once a night, too.

    Exits with 130 after Ctrl-C and 143 after TERM, when running jobs have finished or were given back uncounted.
    """
    from emelex_cli import pool_cmd

    return partial(
        pool_cmd.pool,
        workers=workers,
        model=model,
        in_flight=in_flight,
        grace=grace,
        metrics=metrics,
        no_maintenance=no_maintenance,
    )


def top(
    interval: Annotated[float, typer.Option("--interval", min=0.2, max=60, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one snapshot and end.")] = False,
) -> Run:
    """Watch the queue live; without a terminal, print one snapshot."""
    from emelex_cli import top_cmd

    return partial(top_cmd.top, interval=interval, once=once)


@service.command("print", epilog=GLOBAL_OPTIONS)
def service_print(manager: ManagerName, system: System = False, program: ProgramPath = None) -> Run:
    """Print the files for a service manager, with the paths of this installation and this Home."""
    from emelex_cli import service_cmd

    return partial(service_cmd.show, manager=manager, system=system, program=program)


@service.command("install", epilog=GLOBAL_OPTIONS)
def service_install(
    manager: ManagerName,
    system: System = False,
    program: ProgramPath = None,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Another folder than the usual one.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that says something else.")] = False,
) -> Run:
    """Put the files for a service manager into place. Starts nothing: the next commands are printed."""
    from emelex_cli import service_cmd

    return partial(service_cmd.install, manager=manager, system=system, program=program, to=to, force=force)
