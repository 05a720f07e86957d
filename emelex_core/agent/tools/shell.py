"""shell: a command line, in a process tree that ends with the call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from emelex_core.agent.calls import Arguments, Effect, ToolContext, ToolOutcome
from emelex_core.agent.tools.process import Ended, ProcessPlan, run_process
from emelex_core.agent.tools.rooted import Root
from emelex_core.agent.tools.secrets import holds_credentials, is_secret_variable
from emelex_core.agent.tools.typed import TypedTool
from emelex_core.agent.wording import shortened
from emelex_core.errors import ToolError

SECONDS: Final = 120
SECONDS_MAX: Final = 600
COMMAND_MAX: Final = 32_768

_SHELL: Final = "/bin/sh"
_PLAIN: Final = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


_NOTE_BYTES: Final = 512
"""Room for what is said beside a command's output."""


class ShellArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shell is called with."""

    command: Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_MAX, description="a POSIX sh command line")]
    timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, le=SECONDS_MAX, description="after how many seconds it is ended")
    ] = SECONDS


class Shell(TypedTool[ShellArguments]):
    """Run a command line in the working directory, without a terminal and without input."""

    name: ClassVar[str] = "shell"
    description: ClassVar[str] = (
        "Run a command with sh in the working directory. There is no terminal and no input. Output and errors are "
        "answered together. Every process that it starts is ended with it."
    )
    effect = Effect.EXECUTES
    shape = ShellArguments

    def __init__(self, root: Root) -> None:
        self._root = root

    def preview(self, arguments: Arguments) -> str:
        """The command as it stands."""
        return str(arguments["command"])

    def work(self, arguments: ShellArguments, context: ToolContext) -> ToolOutcome:
        """Run the command and say how it ended."""
        if "\0" in arguments.command:
            raise ToolError("a command cannot hold a NUL")
        plan = ProcessPlan(
            argv=(_SHELL, "-c", arguments.command),
            directory=self._root.descriptor(),
            environment=environment(os.environ),
            seconds_max=float(arguments.timeout_seconds),
            output_bytes_max=max(context.output_bytes_max - _NOTE_BYTES, 0),
        )
        return _answer(run_process(plan, context.cancel), context.output_bytes_max - _NOTE_BYTES)


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What a command may see of our environment: all but what looks like a secret; and nothing asks a person."""
    secret = {name for name, value in ours.items() if is_secret_variable(name) or holds_credentials(value)}
    return {name: value for name, value in ours.items() if name not in secret} | _PLAIN


def _answer(ended: Ended, bytes_max: int) -> ToolOutcome:
    notes: list[str] = []
    if ended.stopped is not None:
        notes.append(f"the command was ended: {ended.stopped}; what it did before stays done")
    elif ended.exit_code < 0:
        notes.append(f"the command was ended by signal {-ended.exit_code}")
    elif ended.exit_code > 0:
        notes.append(f"exit code {ended.exit_code}")
    if ended.left_behind and ended.stopped is None:
        notes.append(f"{ended.left_behind} processes that it left running were ended")
    if ended.replaced:
        notes.append("bytes that are no UTF-8 are shown as \ufffd")
    text = shortened(ended.text, max(bytes_max, 0)) if ended.text else ""
    pieces = [text.removesuffix("\n")] if text and notes else [text] if text else []
    if notes:
        pieces.append(f"[{'; '.join(notes)}]")
    own_end = ended.stopped is None and ended.exit_code >= 0
    return ToolOutcome(
        text="\n".join(pieces) or "[no output]",
        is_error=not own_end or ended.exit_code != 0,
        exit_code=ended.exit_code if own_end else None,
    )
