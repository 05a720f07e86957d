"""What a line that begins with a slash asks for. A path is a message, and so is what stands behind a second slash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from emelex_core.errors import UsageError

COMMANDS: Final[dict[str, str]] = {
    "/help": "say what can be typed here",
    "/compact": "plan a Summary of this Session; `/compact now` closes, works and resumes in one step",
    "/attach": "send a picture, sound or PDF with the next message: `/attach FILE`",
    "/tools": "list the tools; `/tools off NAME` and `/tools on NAME` take one away and give it back",
    "/title": "print the Session's title, or give it a new one: `/title WORDS`",
    "/knowledge": "list what is known of this workspace, or what fits: `/knowledge WORDS`",
    "/exit": "close the Session; it is queued for Knowledge",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the chat and its words."""

    name: str
    argument: str


def parse(line: str) -> Command | str:
    """Return the command that a line asks for, or the message that it is.

    Raises: UsageError naming the commands when there is none of that name.
    """
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    name, _, argument = line.partition(" ")
    if "/" in name[1:]:
        return line
    if name.strip() not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise UsageError(
            f"{name.strip()[:40]!r} is no command of the chat", hint=f"{known}; // begins a message with /"
        )
    return Command(name=name.strip(), argument=argument.strip())
