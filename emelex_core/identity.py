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
from typing import Final

from emelex_core import codec
from emelex_core.errors import Invalid, WorkspaceMismatch

_STATX_BTIME: Final = 0x800
_AT_FDCWD: Final = -100
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_BTIME: Final = struct.Struct("=qI")
_BTIME_OFFSET: Final = 80
"""Offset of `stx_btime` (int64 seconds, uint32 nanoseconds) in `struct statx`, from linux/stat.h."""


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
    """Read a directory's identity without following a final link's change of mind: one `stat`, one `statx`.

    Raises: OSError as `stat` does, NotADirectoryError when it is no directory.
    """
    status = os.stat(path)  # noqa: PTH116 - paths are text here, as they are compared and stored
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(path)
    return Identity(device=_signed(status.st_dev), inode=_signed(status.st_ino), birth_ns=_birth_ns(path, status))


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


def exists_as_directory(path: str) -> bool:
    """Whether the path can be a workspace on this machine."""
    try:
        return Path(path).is_absolute() and Path(path).is_dir()
    except (OSError, ValueError):
        return False


def _signed(value: int) -> int:
    """Fold an unsigned 64-bit number into SQLite's signed one."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _statx = getattr(_libc, "statx", None)

    def _birth_ns(path: str, status: os.stat_result) -> int | None:
        """The inode's birth time by statx(2); None where the libc or the file system has none."""
        del status
        if _statx is None:
            return None
        buffer = bytearray(_STATX_BYTES)
        where = (ctypes.c_char * _STATX_BYTES).from_buffer(buffer)
        if _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, where) != 0:
            return None
        (mask,) = _MASK.unpack_from(buffer)
        if not mask & _STATX_BTIME:
            return None
        seconds, nanoseconds = _BTIME.unpack_from(buffer, _BTIME_OFFSET)
        return int(seconds) * 1_000_000_000 + int(nanoseconds)

else:

    def _birth_ns(path: str, status: os.stat_result) -> int | None:
        """The birth time that `stat` reports; None where the system has none."""
        del path
        born = getattr(status, "st_birthtime", None)
        return None if born is None else int(born * 1_000_000_000)
