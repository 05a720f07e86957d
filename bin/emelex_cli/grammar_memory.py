"""The grammar of `emelex memory`: what is stored. The queue's is in grammar_jobs.py; see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli import grammar_knowledge
from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import STORED, Cursor, Everywhere, NewFile, SessionId, group
from emelex_core import limits

app: Final = group("What is stored, and the work on it.")
sessions: Final = group("List, find, read, export, rebind, redact and delete Sessions.")
assets: Final = group("List, copy out and verify media: each stored once, under its SHA-256.")
app.add_typer(sessions, name="sessions", rich_help_panel=STORED)
app.add_typer(grammar_knowledge.app, name="knowledge", rich_help_panel=STORED)
app.add_typer(assets, name="assets", rich_help_panel=STORED)


@app.command(epilog=GLOBAL_OPTIONS, rich_help_panel=STORED)
def status() -> Run:
    """Print what is stored, how the queues stand and how many Sessions are distilled."""
    from emelex_cli import status_cmd

    return status_cmd.status


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
def sessions_export(session: SessionId, output: NewFile = None, everywhere: Everywhere = False) -> Run:
    """Write a Session as one JSON document: every raw event, and what its Summary covers."""
    from emelex_cli import archive_cmd

    return partial(archive_cmd.export_session, session=session, output=output, everywhere=everywhere)


@sessions.command("recover", epilog=GLOBAL_OPTIONS)
def sessions_recover(
    session: SessionId,
    everywhere: Everywhere = False,
    accept_unknown_effects: Annotated[
        bool,
        typer.Option(
            "--accept-unknown-effects",
            help="You have looked at what the calls that had started may have done; they are never run again.",
        ),
    ] = False,
) -> Run:
    """Close a turn that was interrupted, so that the Session can go on. No tool is run.

    Results that were known stay as they were; calls that had not started are marked as not executed. Exits with 5 when
    calls had started whose effect nobody knows, until --accept-unknown-effects says that somebody has looked.
    """
    from emelex_cli import recover_cmd

    return partial(
        recover_cmd.recover, session=session, everywhere=everywhere, accept_unknown_effects=accept_unknown_effects
    )


@sessions.command("delete", epilog=GLOBAL_OPTIONS)
def sessions_delete(
    session: SessionId,
    everywhere: Everywhere = False,
    derived: Annotated[
        bool,
        typer.Option("--derived", help="Also what was distilled from it; overwrite what is freed and print a receipt."),
    ] = False,
) -> Run:
    """Delete a Session with its events, its jobs and the media that only it holds. It cannot be brought back.

    Without --derived the Knowledge that was distilled from it stays, with the words that it rests on. Exits with 4
    while somebody uses the Session.
    """
    from emelex_cli import erasure_cmd, sessions_cmd

    if derived:
        return partial(erasure_cmd.erase, session=session, everywhere=everywhere)
    return partial(sessions_cmd.delete, session=session, everywhere=everywhere)


grammar_knowledge.add_to(sessions)


@assets.command("list", epilog=GLOBAL_OPTIONS)
def assets_list(
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Only what this Session's events name.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_ASSETS_MAX, help="At most so many.")] = 50,
    cursor: Cursor = None,
) -> Run:
    """List media, the newest first; those of one Session in the order of its events."""
    from emelex_cli import assets_cmd

    return partial(assets_cmd.list_assets, session=session, limit=limit, cursor=cursor)


@assets.command("export", epilog=GLOBAL_OPTIONS)
def assets_export(
    sha256: Annotated[str, typer.Argument(metavar="SHA", help="a digest, or 8 or more of its first digits")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A new file; never over an existing one.")
    ],
) -> Run:
    """Copy one asset's bytes, proven, to a new private file."""
    from emelex_cli import assets_cmd

    return partial(assets_cmd.export, sha256=sha256, output=output)


@assets.command("verify", epilog=GLOBAL_OPTIONS)
def assets_verify() -> Run:
    """Hash every stored asset. Exits with 7 when one is missing or not what was stored."""
    from emelex_cli import assets_cmd

    return assets_cmd.verify
