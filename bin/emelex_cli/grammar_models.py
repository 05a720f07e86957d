"""The grammar of `emelex models`: see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import group

app: Final = group("Install, verify and remove models; each is pinned to its exact bytes.")

_REFERENCE: Final = "builtin:smollm2-135m, local:NAME, endpoint:NAME, a snapshot, or 8 or more digits of its digest"


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
    certify: Annotated[
        bool, typer.Option("--certify", help="Also run the trials that say what jobs may ask of it, in a minute or so.")
    ] = False,
) -> Run:
    """Hash every byte of a model, or of all. Exits with 1 when one is not what was installed."""
    from emelex_cli import models_cmd

    return partial(models_cmd.verify, reference=reference, certify=certify)


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
