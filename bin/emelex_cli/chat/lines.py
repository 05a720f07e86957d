"""Where a person's words come from: a terminal with editing and history, or a pipe that is read once, whole.

The module owns these invariants:

- Words are strict UTF-8; a byte that is none is an error that says where it stands, before anything is stored.
- A yes to a question was typed after what it is about was shown.
- Keys that the line editor does not understand are dropped: no sequence ends the chat or shows its insides.
- The history of a terminal is a private file of the Home, apart from every Session.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import sys
import termios
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from emelex_cli.output import one_line
from emelex_core import limits
from emelex_core.errors import Invalid, Refused, Storage

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings

HISTORY_NAME: Final = "chat-history"
_PRIVATE: Final = 0o600
_YES: Final = frozenset({"y", "yes"})


class Interrupted(Exception):
    """Ctrl-C at the prompt."""


class TerminalLines:
    """A person at a terminal."""

    def __init__(self, history: Path, commands: Sequence[str]) -> None:
        _make_private(history)
        _speak_utf8()
        self._session: PromptSession[str] = _session(history, commands)
        self._plain: PromptSession[str] = _session(None, ())

    async def ask(self, default: str = "") -> str | None:
        """The next message, `default` before anybody types; None when there is none any more. Raises: Interrupted."""
        return await self._read(self._session, "› ", default=default)

    async def confirm(self, question: str) -> bool:
        """Ask for a yes that is typed from now on; anything else is a no. Raises: Interrupted.

        What the question is about is shown before: that was not read yet by whoever typed earlier.
        """
        answer = await self._read(self._plain, f"{one_line(question)} [y/N] ", first=self._forget_typed)
        return answer is not None and answer.strip().lower() in _YES

    async def _read(
        self, session: PromptSession[str], prompt: str, *, default: str = "", first: Callable[[], None] | None = None
    ) -> str | None:
        """One line; None at its end, or when the terminal is gone. `first` is called just before keys are taken."""
        try:
            with _unknown_keys_dropped():
                return await session.prompt_async(
                    prompt, default=default, pre_run=first, handle_sigint=False, set_exception_handler=False
                )
        except (EOFError, OSError):
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    def _forget_typed(self) -> None:
        """Discard what was typed so far, in the terminal and in what the line editor has read ahead."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._plain.input)
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


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
        key_bindings=_without_mouse(),
    )


def _without_mouse() -> KeyBindings:
    """What a terminal reports of its mouse is nothing: nobody asked for it, and a malformed report is an exception."""
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    bindings = KeyBindings()
    for key in (Keys.Vt100MouseEvent, Keys.WindowsMouseEvent):
        bindings.add(key)(_ignored)
    return bindings


def _ignored(event: object) -> None:
    del event


@contextmanager
def _unknown_keys_dropped() -> Generator[None]:
    """While a line is read, an exception of a key's callback costs that key and nothing else."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(running: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context and isinstance(context.get("exception"), ValueError | LookupError):
            return
        if before is None:
            running.default_exception_handler(context)
        else:
            before(running, context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


def _speak_utf8() -> None:
    """A locale that knows ASCII only says nothing about the terminal; today's terminals speak UTF-8."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8")


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
