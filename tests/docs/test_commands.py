"""Each command has help and an entry in docs/json.md, and the page names no command that is not there (habit 20)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from emelex_cli.call import GLOBAL_OPTIONS
from emelex_cli.grammar import app
from program import Program

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "json.md").read_text("utf-8")


def _commands(command: Any, path: str = "emelex") -> Iterator[tuple[str, Any]]:
    """Every command and group with its full name."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{path} {name}")


COMMANDS = dict(_commands(typer.main.get_command(app)))
LEAVES = {path for path, command in COMMANDS.items() if not hasattr(command, "commands")}


def test_the_commands_of_this_release_are_there() -> None:
    """The contract's names stand as written."""
    assert {
        "emelex chat",
        "emelex resume",
        "emelex mcp",
        "emelex import",
        "emelex doctor",
        "emelex paths",
        "emelex config show",
        "emelex models list",
        "emelex models import",
        "emelex models default",
        "emelex models verify",
        "emelex models remove",
        "emelex models path",
        "emelex models gc",
        "emelex memory jobs rerun",
        "emelex memory status",
        "emelex memory work",
        "emelex memory compact",
        "emelex memory distill",
        "emelex memory failures",
        "emelex memory retry",
        "emelex memory jobs list",
        "emelex memory jobs show",
        "emelex memory jobs cancel",
        "emelex memory jobs retry",
        "emelex memory pause",
        "emelex memory resume",
        "emelex memory sessions list",
        "emelex memory sessions show",
        "emelex memory sessions export",
        "emelex memory sessions delete",
        "emelex memory sessions rebind",
        "emelex memory sessions recover",
        "emelex memory assets list",
        "emelex memory assets export",
        "emelex memory assets verify",
        "emelex memory export",
        "emelex memory check",
        "emelex memory backup",
        "emelex memory restore",
        "emelex memory knowledge list",
        "emelex memory knowledge show",
        "emelex memory knowledge search",
        "emelex memory knowledge history",
        "emelex memory knowledge add",
        "emelex memory knowledge activate",
        "emelex memory knowledge pin",
        "emelex memory knowledge unpin",
        "emelex memory knowledge forget",
        "emelex memory knowledge review",
        "emelex memory knowledge accept",
        "emelex memory knowledge reject",
        "emelex memory knowledge undo",
        "emelex memory sessions search",
        "emelex memory sessions redact",
        "emelex memory pool",
        "emelex memory maintain",
        "emelex memory gc",
        "emelex memory removals",
        "emelex memory top",
        "emelex service print",
        "emelex service install",
    } == LEAVES


def test_every_command_explains_itself() -> None:
    """A sentence of help, the global options below it, and help for each option."""
    for path, command in COMMANDS.items():
        assert (command.help or "").strip().rstrip().endswith("."), path
        assert command.epilog == GLOBAL_OPTIONS, path
        for parameter in command.params:
            if parameter.name != "help":
                assert (getattr(parameter, "help", None) or "").strip(), f"{path}: {parameter.name}"


def test_help_is_in_sections_and_cuts_no_sentence(emelex: Program) -> None:
    """A reader finds the group first, and then what each command does."""
    told = emelex("memory", "--help").out
    for section in ("What is stored:", "The queue:", "Upkeep:"):
        assert f"\n{section}\n" in told
    assert "..." not in told.partition("What is stored:")[2]
    assert told.index("Upkeep:") < told.index("  maintain ")


def test_every_command_has_an_entry_in_the_page() -> None:
    """And every entry is a command."""
    named = set(re.findall(r"`(emelex [a-z ]+)`", PAGE.split("## Errors")[0]))
    assert named == LEAVES
