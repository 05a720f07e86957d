"""One directory that tools work in, held open by a descriptor.

The module owns these invariants:

- A path is opened beneath the descriptor, so that renaming or replacing the directory's name changes nothing.
- No symbolic link is followed, in no component, at no time: openat2 resolves the whole way in the kernel where it is
  there, and otherwise each component is opened by itself with O_NOFOLLOW. Nothing is looked up twice.
- Where a path leads is decided by its spelling alone, before anything is opened. Outside of the root only an approved
  call goes, and it follows no link there either.
- What is opened for reading is a regular file; a FIFO or a device is refused without waiting for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from emelex_core.errors import Invalid, Storage, ToolError

PATH_BYTES_MAX: Final = 4_095
NAME_BYTES_MAX: Final = 255

_SYS_OPENAT2: Final = 437
"""The same number on every architecture that has the call."""
_RESOLVE: Final = 0x02 | 0x04 | 0x08
"""No magic links, no symbolic links, beneath the descriptor."""
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_ABSENT: Final = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG}
"""How a kernel, or a filter of system calls, says that openat2 is not there."""
_WORDS: Final = {
    errno.ENOENT: "it does not exist",
    errno.ELOOP: "it is, or leads through, a symbolic link, which is not followed",
    errno.ENOTDIR: "it leads through something that is no directory, such as a file or a symbolic link",
    errno.EISDIR: "it is a directory",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EXDEV: "it leads out of the directory",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENXIO: "it is no regular file",
    errno.ENOSPC: "no space is left",
    errno.EROFS: "the file system cannot be written",
    errno.ENOTEMPTY: "it is a directory",
    errno.EEXIST: "something of that name exists already",
}


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a spelled path leads: names below the root, or below `/` for a place outside."""

    spelled: str
    parts: tuple[str, ...]
    outside: bool

    @property
    def name(self) -> str:
        """The last name; empty for the root itself."""
        return self.parts[-1] if self.parts else ""


class Root:
    """An open directory. `close` gives the descriptor back; opening is for one owner, using for any thread."""

    def __init__(self, path: Path) -> None:
        """Open a directory. Raises: Storage when it is none or cannot be opened."""
        self._spelled = os.path.abspath(path)  # noqa: PTH100 - as spelled: symbolic links stay in it
        self._path = os.path.realpath(path)
        try:
            self._descriptor: int | None = os.open(self._path, os.O_RDONLY | _DIRECTORY)
        except OSError as error:
            raise Storage(f"{path}: the tools' directory cannot be opened: {error.strerror}") from None

    @property
    def path(self) -> str:
        """Where the directory was when it was opened; for people only."""
        return self._path

    def descriptor(self) -> int:
        """The open directory. Raises: Invalid after `close`."""
        if self._descriptor is None:
            raise Invalid("the tools' directory is closed")
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def place(self, spelled: str) -> Place:
        """Decide by its spelling where a path leads. Raises: ToolError for what is no path."""
        if not spelled or "\0" in spelled or len(os.fsencode(spelled)) > PATH_BYTES_MAX:
            raise ToolError(f"{spelled[:80]!r} is not a path")
        whole = os.path.normpath(os.path.join(self._path, spelled))  # noqa: PTH118 - text alone decides
        # POSIX gives two leading slashes a meaning of their own, which no system here uses.
        whole = "/" + whole.lstrip("/")
        for base in (self._path, self._spelled):
            if whole == base or whole.startswith(base.rstrip("/") + "/"):
                parts = tuple(part for part in whole[len(base) :].split("/") if part)
                return Place(spelled=spelled, parts=parts, outside=False)
        return Place(spelled=spelled, parts=tuple(part for part in whole.split("/") if part), outside=True)

    @contextmanager
    def base(self, place: Place) -> Generator[int]:
        """Lend the descriptor that a place's parts start from."""
        if not place.outside:
            yield self.descriptor()
            return
        top = os.open("/", _O_PATH | _DIRECTORY)
        try:
            yield top
        finally:
            os.close(top)

    @contextmanager
    def directory(self, place: Place) -> Generator[int]:
        """Open a directory for reading while the block runs. Raises: ToolError."""
        with self.base(place) as base:
            descriptor = told(place, open_beneath, base, place.parts, os.O_RDONLY | _DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, place: Place) -> Generator[int]:
        """Open the directory that holds a place's last name. Raises: ToolError."""
        if not place.parts:
            raise ToolError(f"{place.spelled}: it is a directory")
        with self.directory(Place(spelled=place.spelled, parts=place.parts[:-1], outside=place.outside)) as descriptor:
            yield descriptor

    @contextmanager
    def file(self, place: Place) -> Generator[int]:
        """Open a regular file for reading. Raises: ToolError for anything else."""
        with self.parent(place) as parent:
            descriptor = told(place, open_regular, parent, place.name)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def told(place: Place, call: Any, *arguments: Any) -> Any:
    """Run a call of the system; what it refuses is a ToolError that names the path as it was spelled."""
    try:
        return call(*arguments)
    except OSError as error:
        raise ToolError(f"{place.spelled}: {words_of(error)}") from None


def words_of(error: OSError) -> str:
    """Say why in words."""
    return _WORDS.get(error.errno or 0, (error.strerror or "it cannot be used").lower())


def open_regular(parent: int, name: str) -> int:
    """Open a regular file for reading, without waiting for whatever else may stand there.

    Raises: OSError, ENXIO for what is no regular file.
    """
    # Looked at first, because opening some devices already does something; looked at again, because names move.
    check_regular(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    descriptor = os.open(name, _FILE, dir_fd=parent)
    try:
        check_regular(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_beneath(base: int, parts: tuple[str, ...], flags: int) -> int:
    """Open a directory below another without following any link. Raises: OSError."""
    if not parts:
        return os.open(".", flags, dir_fd=base)
    if openat2_is_there():
        return _openat2(base, "/".join(parts), flags)
    return open_each(base, parts, flags)


def open_each(base: int, parts: tuple[str, ...], flags: int) -> int:
    """What `open_beneath` does where the kernel has no openat2: one component after another. Raises: OSError."""
    current = os.open(".", _O_PATH | _DIRECTORY, dir_fd=base)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        try:
            following = os.open(part, flags if last else _O_PATH | _DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


@cache
def openat2_is_there() -> bool:
    """Whether the kernel resolves paths by itself."""
    base = os.open("/", _O_PATH | _DIRECTORY)
    try:
        os.close(_openat2(base, ".", _O_PATH | _DIRECTORY))
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    finally:
        os.close(base)
    return True


def _openat2(base: int, path: str, flags: int) -> int:
    how = _OpenHow(flags & ~os.O_NOFOLLOW, 0, _RESOLVE)
    library = ctypes.CDLL(None, use_errno=True)
    found = library.syscall(_SYS_OPENAT2, base, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def check_regular(mode: int) -> None:
    """Raise OSError for what is no regular file: ELOOP for a link, EISDIR for a directory, ENXIO for the rest."""
    if stat.S_ISREG(mode):
        return
    code = errno.ELOOP if stat.S_ISLNK(mode) else errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
    raise OSError(code, os.strerror(code))
