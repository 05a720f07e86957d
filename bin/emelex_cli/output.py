"""What leaves the program: data on stdout, narration on stderr, each made safe for its sink (behaviours 158, 159).

The module owns these invariants:

- No text of a model, a tool, a file or a path reaches a terminal with control or bidirectional characters in it.
- JSON is UTF-8 whatever the locale says, and loses nothing: such characters stand in it as `\\u` escapes.
- A reader that has gone ends the program quietly; any other failure to write is an error.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO

from emelex_core.errors import AmbiguousId, EmelexError, Storage, StorageFull

_UNSAFE_CLASS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls; tab and line feed are layout
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of writing
    "\u2028\u2029\ufeff\ufff9-\ufffb"  # separators and marks that nobody sees
    "\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\uffa0"  # what takes no room, or looks like a space
    "\ud800-\udfff"  # halves of characters: bytes of a path that are no text
    "\U000e0000-\U000e007f"  # tags: invisible letters
)
_UNSAFE: Final = re.compile(f"[{_UNSAFE_CLASS}]")
_UNSAFE_LINE: Final = re.compile(f"[\t\n{_UNSAFE_CLASS}]")
_NOT_ASCII: Final = re.compile("[^\x00-\x7e]")
_NAMED: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CAUSES_MAX: Final = 8


class ReaderGone(Exception):
    """Nobody reads stdout any more; the program ends with success."""


def neutralise(text: str) -> str:
    """Return text of several lines with every unsafe character as a visible escape such as `\\x1b` or `\\u202e`."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return text as one safe line; line breaks and tabs are escapes too."""
    return _UNSAFE_LINE.sub(_visible, text)


def counted(number: int, what: str) -> str:
    """Return a count with its noun: `1 Session`, `2 Sessions`, `0 Knowledge entries`."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as valid text: bytes that are not UTF-8 as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def to_json(value: Any, *, ascii_only: bool = False) -> str:
    """Return a value as one line of JSON that may stand in a terminal. Lone surrogates become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return (_NOT_ASCII if ascii_only else _UNSAFE).sub(_escaped, text)


class Output:
    """The two streams of one run. `json` says that data is JSON."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        _forgive(sys.stdout)
        _forgive(sys.stderr)

    def line(self, text: str = "") -> None:
        """Write a line of data for people. The caller has neutralised what is not its own."""
        self.write(text + "\n")

    def table(self, rows: Iterable[tuple[str, ...]], *, heading: tuple[str, ...]) -> None:
        """Write columns, as wide as their widest cell; the last one runs free."""
        cells = [heading, *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            self.line("  ".join([*padded, row[-1]]).rstrip())

    def record(self, value: Any, *, now: bool = False) -> None:
        """Write one line of JSON; `now` hands it to the reader at once."""
        self.write(to_json(value) + "\n")
        if now:
            self.flush()

    def write(self, text: str) -> None:
        """Write data. Raises: ReaderGone, Storage."""
        stream = sys.stdout
        if stream is None:
            raise Storage("standard output is closed")
        try:
            if self.json:
                stream.buffer.write(text.encode("utf-8", "replace"))
            else:
                stream.write(text)
        except OSError as error:
            raise _unwritable(error) from error

    def flush(self) -> None:
        """Hand over everything that was written. Raises: ReaderGone, Storage."""
        if sys.stdout is None:
            return
        try:
            sys.stdout.flush()
        except OSError as error:
            raise _unwritable(error) from error

    def note(self, text: str) -> None:
        """Tell something on stderr, in one safe line; whether anybody hears it does not matter."""
        say(f"emelex: {one_line(text)}")

    def error(self, error: EmelexError) -> None:
        """Tell an error: one object with `--json`, else a line and a hint."""
        if self.json:
            # Whatever the locale makes of stderr, this stays JSON.
            say(to_json({"error": describe(error)}, ascii_only=True))
            return
        say(f"emelex: error: {one_line(error.message)}")
        if error.hint:
            say(f"hint: {one_line(error.hint)}")


def describe(error: EmelexError) -> dict[str, Any]:
    """The JSON of an error: its kind, message and hint, and the chain of causes below it, the nearest first."""
    causes: list[str] = []
    below = error.__cause__
    while below is not None and len(causes) < _CAUSES_MAX:
        causes.append(f"{type(below).__name__}: {below}")
        below = below.__cause__
    found: dict[str, Any] = {
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
        "causes": causes,
    }
    if isinstance(error, AmbiguousId):
        found["candidates"] = list(error.candidates)
    return found


def say(text: str) -> None:
    """Write a line to stderr if there is one."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody listens; the exit code still tells.
        return


def abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at the end cannot fail again."""
    if sys.stdout is None:
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _forgive(stream: TextIO | None) -> None:
    """A locale without a character must not stop a run: what it cannot say is escaped."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x1_0000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xD800 <= code <= 0xDFFF:
        return "\\ufffd"
    if code < 0x1_0000:
        return f"\\u{code:04x}"
    code -= 0x1_0000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _unwritable(error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return ReaderGone()
    kind = StorageFull if error.errno == errno.ENOSPC else Storage
    return kind(f"cannot write to standard output: {error.strerror}")
