"""The grammar of `emelex memory knowledge`, and of searching Sessions; see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import Cursor, Everywhere, SessionId, group
from emelex_core import limits

app: Final = group("Read, find, write, forget and review what was learned in a workspace.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="the exact key")]
Words = Annotated[list[str], typer.Argument(metavar="WORDS...", help="all of them must be found, literally")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_KNOWLEDGE_MAX, help="At most so many.")]
Proposals = Annotated[
    list[str], typer.Argument(metavar="ID...", help="proposals by their ids, or 8 or more of their first characters")
]


def add_to(sessions: typer.Typer) -> None:
    """Add the commands that search and change transcripts to those of Sessions."""
    sessions.command("search", epilog=GLOBAL_OPTIONS)(sessions_search)
    sessions.command("redact", epilog=GLOBAL_OPTIONS)(sessions_redact)


@app.command("list", epilog=GLOBAL_OPTIONS)
def knowledge_list(
    everywhere: Everywhere = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="What held at an instant, or at the end of a day in UTC."),
    ] = None,
) -> Run:
    """List the Knowledge of this workspace, the most recently changed first."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.list_knowledge, everywhere=everywhere, limit=limit, cursor=cursor, as_of=as_of)


@app.command("search", epilog=GLOBAL_OPTIONS)
def knowledge_search(words: Words, everywhere: Everywhere = False, limit: Limit = 50, cursor: Cursor = None) -> Run:
    """Find Knowledge by words: the exact key first, then pins, then the best match."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.search, words=words, everywhere=everywhere, limit=limit, cursor=cursor)


@app.command("show", epilog=GLOBAL_OPTIONS)
def knowledge_show(key: Key) -> Run:
    """Print one entry: content, confidence, version, and the quoted words that it rests on with what stands around."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.show, key=key)


@app.command("history", epilog=GLOBAL_OPTIONS)
def knowledge_history(
    key: Key,
    limit: Limit = 50,
    before: Annotated[int | None, typer.Option("--before", min=2, help="Only versions below this number.")] = None,
) -> Run:
    """Print the versions of an entry as differences, the newest first, and who changed it when and why."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.history, key=key, limit=limit, before=before)


@app.command("add", epilog=GLOBAL_OPTIONS)
def knowledge_add(
    key: Key,
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="what to remember; - reads it from standard input")],
    confidence: Annotated[float, typer.Option("--confidence", min=0, max=1, help="How sure it is.")] = 1.0,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="The Session of this workspace it came from.")
    ] = None,
    event: Annotated[
        int | None, typer.Option("--event", min=1, help="The event of that Session, by its number.")
    ] = None,
) -> Run:
    """Remember something under a key, as a new version where the key is there. Distillation never changes it."""
    from emelex_cli import knowledge_change_cmd

    return partial(
        knowledge_change_cmd.add, key=key, content=content, confidence=confidence, session=session, event=event
    )


@app.command("activate", epilog=GLOBAL_OPTIONS)
def knowledge_activate(
    key: Key,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="An older or newer version; else the last active one.")
    ] = None,
) -> Run:
    """Put a version into use. What was forgotten comes back."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.activate, key=key, version=version)


@app.command("pin", epilog=GLOBAL_OPTIONS)
def knowledge_pin(key: Key) -> Run:
    """Keep an entry from distillation and retention, and put it first."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.pin, key=key)


@app.command("unpin", epilog=GLOBAL_OPTIONS)
def knowledge_unpin(key: Key) -> Run:
    """Take the pin away."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.unpin, key=key)


@app.command("forget", epilog=GLOBAL_OPTIONS)
def knowledge_forget(
    key: Key,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Kept in the entry's record.")] = None,
) -> Run:
    """Hide an entry at once. Distillation does not bring it back; `maintain` removes it after a grace."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.forget, key=key, reason=reason)


@app.command("review", epilog=GLOBAL_OPTIONS)
def knowledge_review(everywhere: Everywhere = False, limit: Limit = 50, cursor: Cursor = None) -> Run:
    """List changes that wait for you: of pinned, forgotten or your own entries, and what only a tool or page said."""
    from emelex_cli import knowledge_cmd

    return partial(knowledge_cmd.review, everywhere=everywhere, limit=limit, cursor=cursor)


@app.command("accept", epilog=GLOBAL_OPTIONS)
def knowledge_accept(proposals: Proposals) -> Run:
    """Apply proposals as your own changes."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.accept, proposals=proposals)


@app.command("reject", epilog=GLOBAL_OPTIONS)
def knowledge_reject(proposals: Proposals) -> Run:
    """Decline proposals."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.reject, proposals=proposals)


@app.command("undo", epilog=GLOBAL_OPTIONS)
def knowledge_undo(
    job: Annotated[str, typer.Argument(metavar="JOB", help="a distillation, by its id or 8 or more characters of it")],
) -> Run:
    """Take back what one distillation changed. Entries that were changed again since stay as they are."""
    from emelex_cli import knowledge_change_cmd

    return partial(knowledge_change_cmd.undo, job=job)


def sessions_search(
    words: Words,
    everywhere: Everywhere = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Only events of this Session.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=limits.PAGE_EVENTS_MAX, help="At most so many.")] = 20,
    cursor: Cursor = None,
) -> Run:
    """Find events by words, the best match first, also those that a Summary stands for."""
    from emelex_cli import search_cmd

    return partial(search_cmd.search, words=words, everywhere=everywhere, session=session, limit=limit, cursor=cursor)


def sessions_redact(
    session: SessionId,
    everywhere: Everywhere = False,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="A regular expression; each match is replaced.")
    ] = None,
    secrets: Annotated[bool, typer.Option("--secrets", help="Whatever looks like a key, token or password.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the places, change nothing.")] = False,
) -> Run:
    """Replace text in a transcript for good, and in what was derived from it, and keep a record that this was done."""
    from emelex_cli import erasure_cmd

    return partial(
        erasure_cmd.redact, session=session, everywhere=everywhere, pattern=pattern, secrets=secrets, dry_run=dry_run
    )
