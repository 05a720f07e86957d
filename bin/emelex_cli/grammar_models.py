"""The grammar of `emelex models`, and of `memory jobs rerun`: see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.app import Run
from emelex_cli.call import GLOBAL_OPTIONS

app: Final = typer.Typer(
    help="Install, verify and remove models; each is pinned to its exact bytes.",
    epilog=GLOBAL_OPTIONS,
    no_args_is_help=True,
    rich_markup_mode=None,
)

_REFERENCE: Final = "builtin:smollm2-135m, local:NAME, endpoint:NAME, a snapshot, or 8 or more digits of its digest"


def add_to(jobs: typer.Typer) -> None:
    """Add `rerun` to `emelex memory jobs`."""
    jobs.command("rerun", epilog=GLOBAL_OPTIONS)(rerun)


@app.command("list", epilog=GLOBAL_OPTIONS)
def list_models() -> Run:
    """List the models that can be used, with what each can do; a star marks the default."""
    from emelex_cli import models_cmd

    return models_cmd.list_models


@app.command("import", epilog=GLOBAL_OPTIONS)
def import_model(
    path: Annotated[str, typer.Argument(metavar="PATH", help="a GGUF file")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Call it local:NAME; by default after its file.")
    ] = None,
    link: Annotated[
        bool, typer.Option("--link", help="Keep no copy: use the file where it is, proven before every use.")
    ] = False,
) -> Run:
    """Install a GGUF file by copy, after reading its header and trying it in a process of its own."""
    from emelex_cli import models_cmd

    return partial(models_cmd.import_model, path=path, name=name, link=link)


@app.command("default", epilog=GLOBAL_OPTIONS)
def default(
    reference: Annotated[str | None, typer.Argument(metavar="[REF]", help=_REFERENCE)] = None,
) -> Run:
    """Print the default model, or write another one into the Home's config.toml."""
    from emelex_cli import models_cmd

    return partial(models_cmd.default, reference=reference)


@app.command("verify", epilog=GLOBAL_OPTIONS)
def verify(
    reference: Annotated[str | None, typer.Argument(metavar="[REF]", help=f"{_REFERENCE}; all without one")] = None,
) -> Run:
    """Hash every byte of a model, or of all. Exits with 1 when one is not what was installed."""
    from emelex_cli import models_cmd

    return partial(models_cmd.verify, reference=reference)


@app.command("remove", epilog=GLOBAL_OPTIONS)
def remove(
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="a snapshot, its local:NAME, or 8 or more digits of its digest")
    ],
) -> Run:
    """Remove an installed model; the file of a linked one stays. Refused while a Session is bound to it."""
    from emelex_cli import models_cmd

    return partial(models_cmd.remove, snapshot=snapshot)


@app.command("path", epilog=GLOBAL_OPTIONS)
def path(reference: Annotated[str, typer.Argument(metavar="REF", help=_REFERENCE)]) -> Run:
    """Print a model's file, for other programs."""
    from emelex_cli import models_cmd

    return partial(models_cmd.path, reference=reference)


@app.command("gc", epilog=GLOBAL_OPTIONS)
def collect() -> Run:
    """Sweep what crashed imports and removals left behind."""
    from emelex_cli import models_cmd

    return models_cmd.collect


def rerun(
    job: Annotated[str, typer.Argument(metavar="JOB", help="an id, or 8 or more of its first characters")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="REF", help="Another model; by default the one that made it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Required: the stored result is never replaced.")] = False,
) -> Run:
    """Run a completed job again beside its record and print how the results differ. Stores nothing."""
    from emelex_cli import rerun_cmd

    return partial(rerun_cmd.rerun, job=job, model=model, dry_run=dry_run)
