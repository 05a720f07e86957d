"""Where a person's words come from: a terminal with editing and history, or a pipe that is read once, whole.

The module owns these invariants:

- Words are strict UTF-8; a byte that is none is an error that says where it stands, before anything is stored.
- The history of a terminal is a private file of the Home, apart from every Session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from emelex_cli.output import one_line
from emelex_core import limits
from emelex_core.errors import Invalid, Refused, Storage

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

HISTORY_NAME: Final = "chat-history"
_PRIVATE: Final = 0o600
_YES: Final = frozenset({"y", "yes"})


class Interrupted(Exception):
    """Ctrl-C at the prompt."""


class TerminalLines:
    """A person at a terminal."""

    def __init__(self, history: Path, commands: Sequence[str]) -> None:
        _make_private(history)
        self._session: PromptSession[str] = _session(history, commands)
        self._plain: PromptSession[str] = _session(None, ())

    async def ask(self) -> str | None:
        """The next message, None when there is none any more (Ctrl-D). Raises: Interrupted."""
        try:
            return await self._session.prompt_async("› ", handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    async def confirm(self, question: str) -> bool:
        """Ask for a yes; anything else is a no. Raises: Interrupted."""
        try:
            answer = await self._plain.prompt_async(f"{one_line(question)} [y/N] ", handle_sigint=False)
        except EOFError:
            return False
        except KeyboardInterrupt:
            raise Interrupted from None
        return answer.strip().lower() in _YES


def piped() -> str:
    """All that stands in standard input, when that is no terminal; empty when it is one, or is closed.

    Raises: Invalid for bytes that are no UTF-8 and for more than a turn's input may hold.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        data = sys.stdin.buffer.read(limits.AGENT_INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise Storage(f"cannot read standard input: {error.strerror}") from error
    if len(data) > limits.AGENT_INPUT_BYTES_MAX:
        raise Invalid(f"standard input holds more than the {limits.AGENT_INPUT_BYTES_MAX} bytes of one message")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"standard input: byte {error.start} is no UTF-8") from None


def is_attended() -> bool:
    """Whether a person sits at both ends."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _session(history: Path | None, commands: Sequence[str]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    return PromptSession[str](
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=_completer(commands) if commands else None,
        complete_while_typing=False,
        enable_open_in_editor=history is not None,
    )


def _completer(commands: Sequence[str]) -> Completer:
    from prompt_toolkit import completion

    class Commands(completion.Completer):
        """Completes what begins with a slash, as the first word only."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
            del complete_event
            typed = document.text_before_cursor
            if not typed.startswith("/") or " " in typed:
                return []
            return [completion.Completion(name, -len(typed)) for name in commands if name.startswith(typed)]

    return Commands()


def _make_private(path: Path) -> None:
    """Make the history file with its final mode. Raises: Refused for one that others can read, Storage."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _PRIVATE)
    except OSError as error:
        raise Storage(f"cannot use the chat's history {path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise Refused(f"{path}: the chat's history must be private", hint=f"chmod 600 {path}")
