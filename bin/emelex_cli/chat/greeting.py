"""What a person is told before the first prompt: who answers, where, and what the tiny built-in model cannot do."""

from __future__ import annotations

from typing import Final

from emelex_cli.call import Call
from emelex_cli.output import one_line, path_text

BUILTIN: Final = "builtin:"
"""Such a model comes with the program. It has 135 million parameters: enough to try everything, too few to rely on."""


def has_tools(reference: str, asked: bool | None) -> bool:
    """Whether a new chat offers tools: as asked; unasked, the built-in model gets none, since it cannot use them."""
    return not reference.startswith(BUILTIN) if asked is None else asked


def greet(call: Call, reference: str, *, tools: bool) -> None:
    """Say it on stderr, in one line, and one more for the built-in model."""
    without = "" if tools else ", without tools"
    call.out.note(
        f"{one_line(reference)} answers in {path_text(call.directory)}{without}; /help says what can be typed"
    )
    if reference.startswith(BUILTIN):
        call.out.note(
            "this model is tiny, for trying things out: `emelex models --help` and [models] in config.toml bring a "
            "better one" + ("" if tools else "; --tools offers it tools all the same")
        )
