"""The asset directory as a file system sees it: temporaries, proven reads, removals.

The module owns these invariants:

- A temporary is private, and locked by its writer as long as that lives: collection skips it.
- A file is used through one descriptor, so that what was checked is what is read; no link is followed.
- One buffer is all that a copy of any size holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emelex_core import home, limits
from emelex_core.assets.media import Writable
from emelex_core.errors import Corrupt, Storage, StorageFull

TEMPORARY_PREFIX: Final = ".tmp-"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Missing(Corrupt):
    """There is no file of that name."""


@dataclass(frozen=True, slots=True)
class Temporary:
    """A file while it is written."""

    path: Path
    descriptor: int


def is_digest(name: str) -> bool:
    """Whether a name is that of an asset."""
    return _DIGEST.fullmatch(name) is not None


@contextlib.contextmanager
def temporary(directory: Path, *, prefix: str = TEMPORARY_PREFIX) -> Generator[Temporary]:
    """A new private file, locked while it is in use, and gone afterwards under this name. Raises: Storage."""
    path, descriptor = _open_temporary(directory, prefix)
    try:
        try:
            os.fchmod(descriptor, home.PRIVATE_FILE)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Storage(f"cannot lock {path}: {error.strerror}") from error
        yield Temporary(path, descriptor)
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        os.close(descriptor)


def write(target: Temporary, chunk: bytes | memoryview) -> None:
    """Write all bytes to a temporary. Raises: Storage."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(target.descriptor, view) :]
    except OSError as error:
        raise storage(error, target.path) from error


def sync(target: Temporary) -> None:
    """Make the bytes of a temporary durable. Raises: Storage."""
    try:
        os.fsync(target.descriptor)
    except OSError as error:
        raise storage(error, target.path) from error


def verify(path: Path, *, sha256: str, size: int) -> os.stat_result:
    """Prove a stored file and return its status. Raises: as `copy`."""
    return copy(path, _Nowhere(), sha256=sha256, size=size)


def copy(path: Path, target: Writable, *, sha256: str, size: int) -> os.stat_result:
    """Copy a stored file through one buffer, proving it on the way; return its status.

    The digest is known when the last byte has been written: what the target got stands only if nothing is raised.
    Raises: Missing; Corrupt for another owner, mode, type, size or digest; Storage when it cannot be read.
    """
    with _open(path, size=size) as file:
        digest = hashlib.sha256()
        buffer = bytearray(limits.IO_BUFFER_BYTES)
        view = memoryview(buffer)
        left = size
        while count := _read_into(file, view[: min(left + 1, len(view))], path):
            if count > left:
                raise Corrupt(f"asset {path} grew while it was read")
            digest.update(view[:count])
            target.write(view[:count])
            left -= count
        if left or digest.hexdigest() != sha256:
            raise Corrupt(f"asset {path} does not hold the bytes of its name")
        return os.fstat(file.fileno())


def read(path: Path, *, sha256: str, size: int) -> bytes:
    """Return the bytes of a stored file, proven. Raises: as `copy`."""
    with _open(path, size=size) as file:
        try:
            data = file.read(size + 1) or b""
        except OSError as error:
            raise Storage(f"cannot read asset {path}: {error.strerror}") from error
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise Corrupt(f"asset {path} does not hold the bytes of its name")
    return data


def head(path: Path, size: int) -> bytes:
    """Return the first bytes of a stored file; none when it cannot be read. For display, not proven."""
    try:
        with open(path, "rb", buffering=0, opener=_opener) as file:
            return file.read(size)
    except OSError:
        return b""


def fault(path: Path, *, size: int | None) -> str | None:
    """Say what keeps a file from being one of ours, without reading it; None for a good one.

    Raises: Missing; Storage when it cannot be looked at.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise Missing(f"asset {path} has no file") from None
    except OSError as error:
        raise Storage(f"cannot look at {path}: {error.strerror}") from error
    return _fault(status, size=size)


def storage(error: OSError, path: Path) -> Storage:
    """The member of the tree for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}", hint="free space, then run the command again")
    return Storage(f"cannot write {path}: {error.strerror}")


class _Nowhere:
    """Takes bytes and forgets them."""

    def write(self, data: memoryview, /) -> object:
        return len(data)


def _fault(status: os.stat_result, *, size: int | None) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to you ({os.geteuid()})"
    if stat.S_IMODE(status.st_mode) != home.PRIVATE_FILE:
        return f"its mode is {stat.S_IMODE(status.st_mode):04o}, not 0600"
    if size is not None and status.st_size != size:
        return f"it has {status.st_size} bytes, not {size}"
    return None


@contextlib.contextmanager
def _open(path: Path, *, size: int) -> Generator[io.FileIO]:
    """Open a stored file whose owner, mode, type and size are right. A second name, left by a crash, is no fault."""
    try:
        descriptor = _opener(os.fspath(path), os.O_RDONLY)
    except FileNotFoundError:
        raise Missing(f"asset {path} has no file", hint="restore it from a backup") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Corrupt(f"asset {path}: it is a symbolic link") from None
        raise Storage(f"cannot read asset {path}: {error.strerror}") from error
    try:
        found = _fault(os.fstat(descriptor), size=size)
        if found is not None:
            raise Corrupt(f"asset {path}: {found}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _read_into(file: io.FileIO, view: memoryview, path: Path) -> int:
    try:
        return file.readinto(view) or 0
    except OSError as error:
        raise Storage(f"cannot read asset {path}: {error.strerror}") from error


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _open_temporary(directory: Path, prefix: str) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(limits.TEMPORARY_NAME_ATTEMPTS_MAX):
        path = directory / f"{prefix}{secrets.token_hex(8)}"
        try:
            return path, os.open(path, flags, home.PRIVATE_FILE)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage(error, path) from error
    raise Storage(f"cannot find a free temporary name in {directory}")
