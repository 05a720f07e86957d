"""write_file and edit_file: a file is its old text or its new one, never half of it.

The module owns these invariants:

- New text goes into a new file in the same directory, is flushed to the disk, and takes the name in one step; then the
  directory is flushed. A crash leaves the old file, or the new one, and at most a stray temporary file.
- The mode of an existing file is kept. A link, a directory, a FIFO or a device is never written through or replaced.
- An edit applies to the file that it read: if another took its place meanwhile, nothing is written.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Annotated, ClassVar, Final

import msgspec

from emelex_core import ids, limits
from emelex_core.agent.calls import Arguments, Effect, ToolContext, ToolOutcome
from emelex_core.agent.showing import facts, numbered, shown
from emelex_core.agent.tools.placed import PathText, PlacedTool, caution_about
from emelex_core.agent.tools.rooted import Place, check_regular, open_regular, words_of
from emelex_core.agent.wording import visible
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import ToolError

EDIT_BYTES_MAX: Final = 8 * limits.MIB

_QUESTION_BYTES: Final = 256
"""Room in a question for what is neither head nor lines."""

_NEW_MODE: Final = 0o666
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
_TEMPORARY: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WriteFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What write_file is called with."""

    path: PathText
    text: Annotated[str, msgspec.Meta(description="the whole new text of the file")]


class WriteFile(PlacedTool[WriteFileArguments]):
    """Give a file a whole new text, making it and its directories where they are missing."""

    name: ClassVar[str] = "write_file"
    description: ClassVar[str] = "Write a whole file, replacing what it held. Missing directories are made."
    effect = Effect.WRITES
    shape = WriteFileArguments

    def preview(self, arguments: Arguments) -> str:
        """The path, how much is written, its digest, and its first lines."""
        typed = self.read(arguments)
        head = f"{visible(typed.path)} becomes: {facts(typed.text)}"
        return f"{head}\n{numbered(typed.text, _room(head))}"

    def careful(self, arguments: WriteFileArguments) -> str | None:
        """As for every path, and for what git runs or believes."""
        return _caution(self, arguments.path)

    def work(self, arguments: WriteFileArguments, context: ToolContext) -> ToolOutcome:
        """Replace the file in one step."""
        place = self.root.place(arguments.path)
        if not place.parts:
            raise ToolError(f"{place.spelled}: it is a directory")
        data = arguments.text.encode("utf-8")
        try:
            parent = self._parent(place)
            try:
                before = _present(parent, place.name)
                _replace(parent, place.name, data, before, context.cancel)
            finally:
                os.close(parent)
        except OSError as error:
            raise ToolError(f"{place.spelled}: {words_of(error)}") from None
        done = "Replaced" if before else "Made"
        return ToolOutcome(text=f"{done} {place.spelled}, {len(data)} bytes.{_links(before)}")

    def _parent(self, place: Place) -> int:
        """Open the directory of a file, making what is missing on the way. Raises: OSError."""
        with self.root.base(place) as base:
            current = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base)
        for part in place.parts[:-1]:
            try:
                with suppress(FileExistsError):
                    if not place.outside:
                        os.mkdir(part, dir_fd=current)
                following = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            finally:
                os.close(current)
            current = following
        return current


class EditFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What edit_file is called with."""

    path: PathText
    old: Annotated[str, msgspec.Meta(min_length=1, description="the exact text to replace, unique in the file")]
    new: Annotated[str, msgspec.Meta(description="what stands there afterwards")]
    everywhere: Annotated[bool, msgspec.Meta(description="replace every occurrence instead of exactly one")] = False


class EditFile(PlacedTool[EditFileArguments]):
    """Replace a passage of a file."""

    name: ClassVar[str] = "edit_file"
    description: ClassVar[str] = "Replace one exact passage of a text file. The old text must stand there exactly once."
    effect = Effect.WRITES
    shape = EditFileArguments

    def preview(self, arguments: Arguments) -> str:
        """The path, and both texts as far as they fit, the old one's lines with `-`, the new one's with `+`."""
        typed = self.read(arguments)
        count = "every passage" if typed.everywhere else "the one passage"
        head = f"in {visible(typed.path)}, {count} of {facts(typed.old)}"
        middle = f"becomes {facts(typed.new)}"
        room = _room(head + middle)
        old = numbered(typed.old, room // 2, sign="-")
        new = numbered(typed.new, room - min(len(old.encode()), room // 2), sign="+")
        return f"{head}\n{old}\n{middle}\n{new}"

    def careful(self, arguments: EditFileArguments) -> str | None:
        """As for every path, and for what git runs or believes."""
        return _caution(self, arguments.path)

    def work(self, arguments: EditFileArguments, context: ToolContext) -> ToolOutcome:
        """Replace the passage, unless it is missing, ambiguous, or the file changes meanwhile."""
        place = self.root.place(arguments.path)
        with self.root.parent(place) as parent:
            try:
                data, before = _read(parent, place)
                text = _edited(data, arguments, place)
                _replace(parent, place.name, text, before, context.cancel)
            except OSError as error:
                raise ToolError(f"{place.spelled}: {words_of(error)}") from None
        return ToolOutcome(text=f"Edited {place.spelled}, now {len(text)} bytes.{_links(before)}")


def _room(head: str) -> int:
    """How many bytes of lines fit into a question behind its head; the tool's name and notes go along."""
    return max(limits.APPROVAL_TEXT_BYTES_MAX - len(shown(head).encode()) - _QUESTION_BYTES, 0)


def _read(parent: int, place: Place) -> tuple[bytes, os.stat_result]:
    descriptor = open_regular(parent, place.name)
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(file.fileno())
        data = file.read(EDIT_BYTES_MAX + 1)
    if len(data) > EDIT_BYTES_MAX:
        raise ToolError(f"{place.spelled}: it has more than {EDIT_BYTES_MAX} bytes, which is too much to edit")
    return data, before


def _edited(data: bytes, arguments: EditFileArguments, place: Place) -> bytes:
    """Return the new bytes; bytes around the passage stay as they are, UTF-8 or not."""
    old, new = arguments.old.encode("utf-8"), arguments.new.encode("utf-8")
    count = data.count(old)
    if not count:
        raise ToolError(f"{place.spelled}: the old text does not stand in it")
    if count > 1 and not arguments.everywhere:
        raise ToolError(f"{place.spelled}: the old text stands in it {count} times; give more of it, or set everywhere")
    if old == new:
        raise ToolError("the new text is the old one")
    if len(data) + count * (len(new) - len(old)) > EDIT_BYTES_MAX:
        raise ToolError(f"{place.spelled}: it would have more than {EDIT_BYTES_MAX} bytes")
    return data.replace(old, new)


def _present(parent: int, name: str) -> os.stat_result | None:
    """What stands under the name, if anything does. Raises: OSError for what is no regular file."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    check_regular(found.st_mode)
    return found


def _replace(parent: int, name: str, data: bytes, before: os.stat_result | None, cancel: CancelToken) -> None:
    """Put a file of these bytes under the name. Raises: OSError; ToolError when the file changed, or on `cancel`."""
    temporary = f".emelex-{ids.random_id()}.tmp"
    descriptor = os.open(temporary, _TEMPORARY, _NEW_MODE if before is None else 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        if cancel.cancelled:
            raise ToolError("writing was cancelled; the file is as it was")
        _check_unchanged(parent, name, before)
        if before is not None or not _linked(parent, temporary, name):
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    os.fsync(parent)


def _linked(parent: int, temporary: str, name: str) -> bool:
    """Give a new file its name by a hard link, which refuses to replace what appeared meanwhile as a rename would not.

    Returns whether the file system has hard links. Raises: OSError, EEXIST among them.
    """
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    os.unlink(temporary, dir_fd=parent)
    return True


def _check_unchanged(parent: int, name: str, before: os.stat_result | None) -> None:
    if before is None:
        return
    now = os.stat(name, dir_fd=parent, follow_symlinks=False)
    facts = [(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode) for found in (before, now)]
    if facts[0] != facts[1]:
        raise ToolError(f"{name}: it was changed by somebody else meanwhile; read it again")


def _links(before: os.stat_result | None) -> str:
    if before is None or before.st_nlink == 1:
        return ""
    others = before.st_nlink - 1
    return (
        f" It had {'1 other name, which keeps' if others == 1 else f'{others} other names, which keep'} the old text."
    )


def _caution(tool: PlacedTool[WriteFileArguments] | PlacedTool[EditFileArguments], path: str) -> str | None:
    try:
        place = tool.root.place(path)
    except ToolError:
        return None
    if ".git" in place.parts:
        return f"{'/'.join(place.parts)} is part of what git runs and believes"
    return caution_about(tool.root, place)
