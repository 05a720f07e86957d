"""What a typed line is: a command, a message, or a mistake."""

from __future__ import annotations

import pytest

from emelex_cli.chat.slash import COMMANDS, Command, parse
from emelex_core.errors import UsageError


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("what next?", "what next?"),
        ("/help", Command(name="/help", argument="")),
        ("/title  A new name ", Command(name="/title", argument="A new name")),
        ("/compact now", Command(name="/compact", argument="now")),
        ("//help is a command", "/help is a command"),
        ("/usr/bin/env is missing", "/usr/bin/env is missing"),
        (" /help", " /help"),
    ],
)
def test_a_line_is_a_command_or_a_message(line: str, found: Command | str) -> None:
    assert parse(line) == found


@pytest.mark.parametrize("line", ["/", "/hlep", "/exit2 now", "/\x1b[31m"])
def test_a_mistaken_command_names_those_that_there_are(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert all(name in str(caught.value.hint) for name in COMMANDS)
