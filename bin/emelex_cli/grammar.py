"""What can be typed: commands, arguments, options and their help. What they do stands in the `*_cmd` modules.

Each function here returns the command to run, bound to its options, so that parsing is over before anything happens.
The typer stack is imported with this module and only then.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli import grammar_archive, grammar_chat, grammar_jobs, grammar_memory, grammar_models, grammar_upkeep
from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import Sections, group
from emelex_core.errors import UsageError

_MEMORY: Final = "Memory"
_MACHINE: Final = "This machine"
app: Final = typer.Typer(
    name="emelex",
    cls=Sections,
    help="Durable memory for language-model agents: crash-safe Sessions, verified Summaries, quoted Knowledge.",
    epilog=GLOBAL_OPTIONS,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
grammar_chat.add_to(app)
grammar_jobs.add_to(grammar_memory.app)
grammar_upkeep.add_to(grammar_memory.app)
grammar_archive.add_to(grammar_memory.app, grammar_memory.sessions)
_config: Final = group("Show the configuration in effect.")
app.add_typer(grammar_memory.app, name="memory", rich_help_panel=_MEMORY)
app.add_typer(grammar_models.app, name="models", rich_help_panel=_MEMORY)
app.add_typer(grammar_upkeep.service, name="service", rich_help_panel=_MACHINE)
app.add_typer(_config, name="config", rich_help_panel=_MACHINE)


def parse(words: list[str]) -> Run | int:
    """Return the command that the words ask for, or the exit code when help was all they asked for.

    Raises: UsageError naming what cannot be understood.
    """
    try:
        command = typer.main.get_command(app)
        found = command.main(args=grammar_chat.prepared(words), prog_name="emelex", standalone_mode=False)
    except typer.TyperException as error:
        raise _usage(error) from None
    return 0 if found is None else found


def _usage(error: typer.TyperException) -> UsageError:
    context: typer.Context | None = getattr(error, "ctx", None)
    path = "emelex" if context is None else context.command_path
    message = error.format_message().strip().rstrip(".")
    if not message or "\n" in message:
        # Typer puts a whole help page where a command is missing.
        message = f"{path} needs a command"
    return UsageError(message, hint=f"{path} --help")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and what it runs on.")] = False,
) -> Run | None:
    """Durable memory for language-model agents: crash-safe Sessions, verified Summaries, quoted Knowledge."""
    if context.invoked_subcommand is not None:
        return None
    if not version:
        context.fail("emelex needs a command")
    from emelex_cli import config_cmd

    return config_cmd.version


@app.command("import", epilog=GLOBAL_OPTIONS, rich_help_panel=_MEMORY)
def import_(
    format: Annotated[  # noqa: A002 - the contract's own word
        str,
        typer.Argument(
            metavar="FORMAT", help="auto, claude-code, codex, gemini, openai-chat, chatgpt, openai-agents or langgraph"
        ),
    ],
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="transcript files, or folders that hold some")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count everything, store nothing.")] = False,
    no_distill: Annotated[bool, typer.Option("--no-distill", help="Do not queue the Sessions for Knowledge.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also Sessions that were deleted here, or that retention removed.")
    ] = False,
) -> Run:
    """Import transcripts of other agents as Sessions. Importing again changes nothing, and brings nothing back.

    A Session belongs to the directory that its transcript records, where that exists, else to the current one; -C names
    another for all of them.
    """
    from emelex_cli import import_cmd

    return partial(import_cmd.import_, format=format, paths=paths, dry_run=dry_run, no_distill=no_distill, again=again)


@app.command(epilog=GLOBAL_OPTIONS, rich_help_panel=_MACHINE)
def doctor() -> Run:
    """Check what Emelex memory needs of this machine: one line each, ok, warn or fail."""
    from emelex_cli import doctor_cmd

    return doctor_cmd.doctor


@app.command(epilog=GLOBAL_OPTIONS, rich_help_panel=_MACHINE)
def paths() -> Run:
    """Print where things are."""
    from emelex_cli import config_cmd

    return config_cmd.paths


@_config.command("show", epilog=GLOBAL_OPTIONS)
def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Also print where each value comes from.")] = False,
) -> Run:
    """Print each setting with its value.

    Later ones win: defaults, config.toml in the Home, .emelex.toml at the Git root (which may only take authority
    away), environment variables such as EMELEX_WORKER_THREADS.
    """
    from emelex_cli import config_cmd

    return partial(config_cmd.show, origin=origin)
