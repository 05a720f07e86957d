"""The grammar of `emelex memory export`, `check`, `backup`, `restore` and `sessions rebind`: see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import UPKEEP, Everywhere, NewFile, SessionId


def add_to(memory: typer.Typer, sessions: typer.Typer) -> None:
    """Put the commands into the groups `emelex memory` and `emelex memory sessions`."""
    for command in (export, check, backup, restore):
        memory.command(epilog=GLOBAL_OPTIONS, rich_help_panel=UPKEEP)(command)
    sessions.command("rebind", epilog=GLOBAL_OPTIONS)(rebind)


def export(output: NewFile = None, everywhere: Everywhere = False) -> Run:
    """Write this workspace's Sessions and active Knowledge as one JSON document, every event proven."""
    from emelex_cli import archive_cmd

    return partial(archive_cmd.export, output=output, everywhere=everywhere)


def check(
    repair: Annotated[
        bool, typer.Option("--repair", help="Set right what other stored values decide: indexes, counters, links.")
    ] = False,
) -> Run:
    """Prove everything that is stored: SQLite's checks, every chain, Summary, job, quote and asset.

    Exits with 7 when something is damaged.
    """
    from emelex_cli import archive_cmd

    return partial(archive_cmd.check, repair=repair)


def backup(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="a new directory")],
    accept_damage: Annotated[
        bool, typer.Option("--accept-damage", help="Copy a damaged store as it is, instead of refusing.")
    ] = False,
) -> Run:
    """Copy the store and its assets while others work, and verify the copy. `--home DIRECTORY` reads it in place."""
    from emelex_cli import archive_cmd

    return partial(archive_cmd.backup, directory=directory, accept_damage=accept_damage)


def restore(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="a backup")],
) -> Run:
    """Make a backup the store of a Home that has none, and say which workspaces must be bound anew."""
    from emelex_cli import archive_cmd

    return partial(archive_cmd.restore, directory=directory)


def rebind(
    session: SessionId,
    force: Annotated[
        bool, typer.Option("--force", help="Also when the directory that it is bound to still stands.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show both identities, change nothing.")] = False,
) -> Run:
    """Bind a Session's workspace, with all its Sessions and Knowledge, to this directory (-C names another).

    For a directory that was restored, copied, or mounted under another device number.
    """
    from emelex_cli import archive_cmd

    return partial(archive_cmd.rebind, session=session, force=force, dry_run=dry_run)
