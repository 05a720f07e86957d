"""Arguments and options that several commands share, and the groups that hold commands: see grammar.py."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from emelex_cli.call import GLOBAL_OPTIONS

STORED: Final = "What is stored"
QUEUE: Final = "The queue"
UPKEEP: Final = "Upkeep"
"""The sections of `emelex memory --help`."""
_HELP_CHARACTERS: Final = 240
"""Longer than any first sentence: it is wrapped, not cut."""

Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="compaction or distillation")]
InSession = Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Only jobs of this Session.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="REF", help="builtin:smollm2-135m, local:NAME or endpoint:NAME")
]
Everywhere = Annotated[bool, typer.Option("--all", help="Every workspace, not only this one.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on where the page before ended.")]
NewFile = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="A new file; never over an existing one.")
]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="an id, or 8 or more of its first characters")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="an id, or 8 or more of its first characters")]


class Sections(TyperGroup):
    """A group whose help puts its commands under headings, those that `rich_help_panel` names, each told in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, section by section, in the order in which the sections first come."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            title: str | None = getattr(command, "rich_help_panel", None)
            sections.setdefault(title or "Commands", []).append((name, command.get_short_help_str(_HELP_CHARACTERS)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def group(help: str) -> typer.Typer:  # noqa: A002 - typer's own word
    """A group of commands."""
    return typer.Typer(cls=Sections, help=help, epilog=GLOBAL_OPTIONS, no_args_is_help=True, rich_markup_mode=None)
