"""The grammar of `emelex chat`, `resume` and `mcp`: see grammar.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from emelex_cli.call import GLOBAL_OPTIONS, Run
from emelex_cli.grammar_words import Model
from emelex_core import limits

_AGENT: Final = "Agent"
_NEWEST: Final = ""

Prompt = Annotated[
    str | None, typer.Argument(metavar="PROMPT", help="what to say first; text on standard input is added behind it")
]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the application."""
    for command in (chat, resume, mcp):
        app.command(epilog=GLOBAL_OPTIONS, rich_help_panel=_AGENT)(command)


def prepared(words: list[str]) -> list[str]:
    """Give `--resume`, whose value may be left out, the empty one that stands for the newest Session."""
    if words[:1] != ["chat"]:
        return words
    end = words.index("--") if "--" in words else len(words)
    return [f"--resume={_NEWEST}" if word == "--resume" else word for word in words[:end]] + words[end:]


def chat(
    prompt: Prompt = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="[=SESSION]", help="Go on with a Session, the newest where none is named."),
    ] = None,
    model: Model = None,
    tools: Annotated[
        bool | None,
        typer.Option("--tools/--no-tools", help="Offer the model tools or none; the built-in model gets none unasked."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, max=limits.CHAT_TOKENS_MAX, help="Bound of one answer.")
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option("--attach", metavar="FILE", help="A picture, sound or PDF to send along.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.0, max=2.0, help="0 always picks the likeliest word; 0.7 unless given."),
    ] = None,
) -> Run:
    """Talk with a model in this directory; everything said and done is durable, and queued for Knowledge at the end.

    On a terminal the chat goes on until /exit; /help says what else can be typed. Without one there is one message, the
    PROMPT and standard input, and one answer; calls that need approval are denied. --json prints each event.
    """
    from emelex_cli import chat_cmd

    return partial(
        chat_cmd.chat,
        prompt=prompt,
        resume=resume,
        model=model,
        tools=tools,
        max_tokens=max_tokens,
        temperature=temperature,
        attach=attach or (),
    )


def resume(
    prompt: Prompt = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Another one than the newest.")
    ] = None,
) -> Run:
    """Go on with the newest chat of this directory, exactly as it was begun.

    Exits with 5 while calls of unknown effect wait for `emelex memory sessions recover`.
    """
    from emelex_cli import chat_cmd

    return partial(chat_cmd.resume, prompt=prompt, session=session)


def mcp() -> Run:
    """Offer this workspace's Knowledge and Sessions to other agents, over the Model Context Protocol on stdio.

    It only reads. It needs the extra `mcp`.
    """
    from emelex_cli import mcp_cmd

    return mcp_cmd.serve
