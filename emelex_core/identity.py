"""Workspace identity: a directory is what it is, not how its path is spelled (seed, "Durability and authority").

The witnesses are device and inode, and the birth time where the system records one, since a file system may give a new
directory the inode number of a deleted one (behaviour 22).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from emelex_core import codec
from emelex_core.errors import Invalid, WorkspaceMismatch

_AT_FDCWD: Final = -100
_STATX_BYTES: Final = 256
_STATX_BTIME: Final = 0x800
_STATX_WANTED: Final = 0x1 | 0x100 | _STATX_BTIME
"""Type, inode and birth time; the device is always there."""
_STATX: Final = struct.Struct("=I24xH2xQ40xqI44xII")
"""`struct statx` of linux/stat.h: stx_mask, stx_mode at 28, stx_ino at 32, stx_btime at 80, stx_dev_major at 136."""

_GLANCE: Final = struct.Struct("=32xQ40xqI44xII")
"""Of the same: stx_ino, stx_btime, stx_dev_major and stx_dev_minor."""
_UNSIGNED: Final = 2**64 - 1

_Look: TypeAlias = tuple[int, int, int, "int | None"]
"""Mode, device, inode and birth time."""
_statx: Final = getattr(ctypes.CDLL(None, use_errno=True), "statx", None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A directory's identity. `device` and `inode` are signed 64-bit; `birth_ns` is None where unknown."""

    device: int
    inode: int
    birth_ns: int | None

    def describe(self) -> str:
        """The identity in words, for a person who compares two."""
        born = "unknown" if self.birth_ns is None else str(self.birth_ns)
        return f"device {self.device}, inode {self.inode}, birth {born}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A directory that exists now: its real path and its identity."""

    path: str
    identity: Identity


def inspect(directory: str | os.PathLike[str]) -> Workspace:
    """Resolve a directory and read its identity.

    Raises: Invalid when it does not exist, is no directory, cannot be read, or has a path that is not UTF-8.
    """
    spelled = os.fspath(directory)
    try:
        path = os.path.realpath(spelled, strict=True)
        identity = read_identity(path)
    except FileNotFoundError:
        raise Invalid(f"workspace {spelled!r} does not exist") from None
    except NotADirectoryError:
        raise Invalid(f"workspace {spelled!r} is not a directory") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"workspace {spelled!r} cannot be used: {_reason(error)}") from None
    codec.check_text(path, what="workspace path")
    return Workspace(path=path, identity=identity)


def read_identity(path: str) -> Identity:
    """Read the identity of what a path leads to: one system call where the system has statx(2).

    Raises: OSError as `stat` does, NotADirectoryError when it is no directory.
    """
    mode, device, inode, birth_ns = _look(path)
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(path)
    return Identity(device=_signed(device), inode=_signed(inode), birth_ns=birth_ns)


def require_same(path: str, expected: Identity) -> None:
    """Raise WorkspaceMismatch unless the path is still the expected directory."""
    try:
        found = read_identity(path)
    except OSError as error:
        raise WorkspaceMismatch(
            f"workspace {path!r} is gone: {_reason(error)}",
            hint="if it was moved, open the Session from its new place",
        ) from None
    if found != expected:
        raise WorkspaceMismatch(
            f"workspace {path!r} is another directory than the Session is bound to "
            f"(bound to {expected.describe()}; found {found.describe()})",
            hint="if the change has a known reason, bind the Session anew with `emelex memory sessions rebind`",
        )


class Watch:
    """A workspace that is looked at before every append: `require_same`, mostly for a third of its time.

    Not for two threads at once.
    """

    def __init__(self, workspace: Workspace) -> None:
        """Prepare the look; nothing is asked yet."""
        self._workspace = workspace
        self._path = os.fsencode(workspace.path)
        self._buffer = bytearray(_STATX_BYTES)
        self._where = (ctypes.c_char * _STATX_BYTES).from_buffer(self._buffer)
        self._seen: tuple[int, ...] | None = None

    def require_same(self) -> None:
        """Raise WorkspaceMismatch unless the path is still the workspace."""
        # One system call into memory that stands ready. What is not exactly as it was is looked at in full.
        if (
            self._seen is not None
            and _statx is not None
            and _statx(_AT_FDCWD, self._path, 0, _STATX_WANTED, self._where) == 0
            and _GLANCE.unpack_from(self._buffer) == self._seen
        ):
            return
        require_same(self._workspace.path, self._workspace.identity)
        self._seen = self._first_sight()

    def _first_sight(self) -> tuple[int, ...] | None:
        """What a look gives for the workspace, to be compared from now on; None where the system has no second witness.

        Inode, birth and device together are one directory for ever, so that nothing else needs to be asked again.
        """
        expected = self._workspace.identity
        if _statx is None or expected.birth_ns is None:
            return None
        device = expected.device & _UNSIGNED
        seconds, nanoseconds = divmod(expected.birth_ns, 1_000_000_000)
        return (expected.inode & _UNSIGNED, seconds, nanoseconds, os.major(device), os.minor(device))


def exists_as_directory(path: str) -> bool:
    """Whether the path can be a workspace on this machine."""
    try:
        return Path(path).is_absolute() and Path(path).is_dir()
    except (OSError, ValueError):
        return False


def _signed(value: int) -> int:
    """Fold an unsigned 64-bit number into SQLite's signed one."""
    value &= _UNSIGNED
    return value - 2**64 if value >= 2**63 else value


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _look_by_stat(path: str) -> _Look:
    """Mode, device, inode, and the birth time that `stat` reports on some systems."""
    status = os.stat(path)  # noqa: PTH116 - paths are text here, as they are compared and stored
    born = getattr(status, "st_birthtime", None)
    return status.st_mode, status.st_dev, status.st_ino, None if born is None else int(born * 1_000_000_000)


def _call(*arguments: object) -> int:
    """statx(2), which only Linux has."""
    return int(_statx(*arguments)) if _statx is not None else -1


def _look_by_statx(path: str) -> _Look:
    """Mode, device, inode, and the birth time where the file system records one."""
    buffer = bytearray(_STATX_BYTES)
    where = (ctypes.c_char * _STATX_BYTES).from_buffer(buffer)
    if _call(_AT_FDCWD, os.fsencode(path), 0, _STATX_WANTED, where) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    mask, mode, inode, seconds, nanoseconds, major, minor = _STATX.unpack_from(buffer)
    birth_ns = seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None
    return mode, os.makedev(major, minor), inode, birth_ns


_look: Final = _look_by_stat if _statx is None else _look_by_statx
