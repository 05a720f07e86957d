"""read_file and list_directory."""

from __future__ import annotations

import codecs
import os
import stat
import time
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import msgspec

from emelex_core import limits
from emelex_core.agent.calls import Effect, ToolContext, ToolOutcome
from emelex_core.agent.tools.placed import PathText, PlacedTool
from emelex_core.agent.tools.rooted import Place
from emelex_core.agent.wording import shortened, visible
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import ToolError

LINES: Final = 2_000
LINES_MAX: Final = 100_000
ENTRIES_MAX: Final = 5_000
SECONDS_MAX: Final = 20.0

_NOTE_BYTES: Final = 512
"""Room for what is said beside a file's text."""


class ReadFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What read_file is called with."""

    path: PathText
    first_line: Annotated[int, msgspec.Meta(ge=1, description="where to begin; 1 is the first line")] = 1
    lines: Annotated[int, msgspec.Meta(ge=1, le=LINES_MAX, description="how many lines at most")] = LINES


class ReadFile(PlacedTool[ReadFileArguments]):
    """The text of a file, from one line to another."""

    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = "Read a text file. Long files are read in parts: use first_line and lines."
    effect = Effect.READS
    shape = ReadFileArguments

    def work(self, arguments: ReadFileArguments, context: ToolContext) -> ToolOutcome:
        """Read the lines that were asked for, as far as they fit; say what is left, and what was no UTF-8."""
        place = self.root.place(arguments.path)
        with self.root.file(place) as descriptor:
            part = _read_lines(descriptor, arguments, max(context.output_bytes_max - _NOTE_BYTES, 0), context.cancel)
        text, notes = _decoded(part, place)
        if not text:
            notes.append("no text is there")
        pieces = [text] if text else []
        if notes:
            pieces.append(f"[{'; '.join(notes)}]")
        return ToolOutcome(text="\n".join(pieces))


class ListDirectoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What list_directory is called with."""

    path: PathText = "."


class ListDirectory(PlacedTool[ListDirectoryArguments]):
    """The names in one directory."""

    name: ClassVar[str] = "list_directory"
    description: ClassVar[str] = "List a directory: names with their kinds and sizes. Directories end in a slash."
    effect = Effect.READS
    shape = ListDirectoryArguments

    def work(self, arguments: ListDirectoryArguments, context: ToolContext) -> ToolOutcome:
        """List names in their order, each on a line."""
        place = self.root.place(arguments.path)
        with self.root.directory(place) as descriptor:
            try:
                names = sorted(entry.name for entry in os.scandir(descriptor))
            except OSError as error:
                raise ToolError(f"{place.spelled}: {(error.strerror or 'it cannot be read').lower()}") from None
            lines = [_entry(descriptor, name) for name in names[:ENTRIES_MAX]]
        if len(names) > ENTRIES_MAX:
            lines.append(f"[{len(names)} entries in all; the rest is not shown]")
        return ToolOutcome(text=shortened("\n".join(lines) or "[it is empty]", context.output_bytes_max))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    data: bytes
    first_line: int
    more: bool
    size: int


def _read_lines(descriptor: int, asked: ReadFileArguments, bytes_max: int, cancel: CancelToken) -> _Part:
    """Stream through a file and keep the lines asked for; memory holds what is kept and one buffer."""
    kept = bytearray()
    line = 1
    last = asked.first_line + asked.lines
    more = False
    until = time.monotonic() + SECONDS_MAX
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
        while not more and (data := file.read(limits.IO_BUFFER_BYTES)):
            if cancel.cancelled or time.monotonic() > until:
                raise ToolError(f"reading stopped in line {line}: it was cancelled or took too long")
            start = 0
            while start < len(data) and not more:
                if line >= last or len(kept) > bytes_max:
                    more = True
                    break
                end = data.find(b"\n", start) + 1 or len(data)
                if line >= asked.first_line:
                    kept += data[start:end]
                line += data[end - 1 : end] == b"\n"
                start = end
    more = more or len(kept) > bytes_max
    return _Part(
        data=bytes(kept[:bytes_max]),
        first_line=asked.first_line,
        more=more,
        size=os.fstat(descriptor).st_size,
    )


def _decoded(part: _Part, place: Place) -> tuple[str, list[str]]:
    if b"\0" in part.data:
        raise ToolError(f"{place.spelled}: it is no text: it holds NUL bytes ({part.size} bytes in all)")
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(part.data, final=not part.more)
    notes: list[str] = []
    if text.encode() != part.data[: len(part.data) - len(decoder.getstate()[0])]:
        notes.append("bytes that are no UTF-8 are shown as \ufffd")
    if part.more:
        breaks = part.data.count(b"\n")
        if not breaks:
            notes.append(f"line {part.first_line} is longer than what fits; its rest is not shown")
        notes.append(
            f"the file has {part.size} bytes and goes on; read on with first_line {part.first_line + max(breaks, 1)}"
        )
    return text, notes


def _entry(directory: int, name: str) -> str:
    shown = visible(os.fsencode(name).decode("utf-8", "replace"))
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return f"{shown} (gone or unreadable)"
    if stat.S_ISDIR(found.st_mode):
        return f"{shown}/"
    if stat.S_ISREG(found.st_mode):
        return f"{shown} ({found.st_size} bytes)"
    return f"{shown} ({'symbolic link' if stat.S_ISLNK(found.st_mode) else 'no regular file'})"
