"""Model files: hashed through one descriptor, and published whole or not at all.

The module owns these invariants:

- What was verified is what gets loaded: digest and identity come from one descriptor, and `unchanged` compares the path
  with that identity after the load.
- A file appears under its name complete and synced, mode 0600, and never over another one.
- Every failure of the file system is a member of the error tree that names the path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emelex_core.errors import ModelUnusable, Refused, Storage, StorageBusy, StorageFull, StorageReadOnly

LOCK_WAIT_SECONDS: Final = 60.0
"""A derived model is made in a second or two; whoever holds the lock for longer is stuck."""

_LOCK_POLL_SECONDS: Final = 0.05
_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A file as it was when its bytes were hashed. `sha256` is 64 lower-case hex digits."""

    path: Path
    sha256: str
    device: int
    inode: int
    size: int
    modified_ns: int

    def unchanged(self) -> bool:
        """Whether the path still shows the same file with the same size and time of change."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        shown = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        return shown == (self.device, self.inode, self.size, self.modified_ns)


def digest(path: Path, *, hint: str | None = None) -> Verified:
    """Hash a regular file. `hint` is what to do when that cannot be done.

    Raises: ModelUnusable naming the path when it is missing, no regular file, or cannot be read.
    """
    try:
        with open(path, "rb", opener=_open_reader) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise ModelUnusable(f"{path}: it is not a regular file", hint=hint)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelUnusable(f"{path}: it cannot be read: {error.strerror}", hint=hint) from error
    return Verified(
        path=path,
        sha256=sha256,
        device=before.st_dev,
        inode=before.st_ino,
        size=before.st_size,
        modified_ns=before.st_mtime_ns,
    )


def verify(path: Path, sha256: str, *, hint: str) -> Verified:
    """Hash a file and compare it with what it must be.

    Raises: ModelUnusable naming the file and both digests.
    """
    found = digest(path, hint=hint)
    if found.sha256 != sha256:
        raise ModelUnusable(
            f"{path}: its SHA-256 is {found.sha256}, and it must be {sha256}: it was altered or cut", hint=hint
        )
    return found


def private_directory(path: Path) -> None:
    """Create a directory of mode 0700, parents included.

    Raises: Refused when one stands there that others may write to or that is not ours; Storage.
    """
    with translated(path):
        # One by one, because mkdir gives the parents that it makes whatever mode the umask leaves.
        for missing in reversed([place for place in (path, *path.parents) if not place.exists()]):
            missing.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(f"{path}: it must be a directory of your own with mode 0700")


@contextmanager
def exclusive(lock: Path) -> Generator[None]:
    """Hold a file's kernel lock, which no crash leaves behind. The file itself is never removed.

    Raises: StorageBusy when another process holds it for longer than `LOCK_WAIT_SECONDS`; Storage.
    """
    with translated(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE_FILE)
    try:
        _lock_within(descriptor, lock, time.monotonic() + LOCK_WAIT_SECONDS)
        yield
    finally:
        os.close(descriptor)


def create_private(path: Path) -> None:
    """Put an empty file of mode 0600 there, under any umask. Raises: Storage, also when something is there already."""
    with translated(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE))


def publish(temporary: Path, target: Path) -> None:
    """Give a complete temporary file its name: synced, never over an existing file, and durable with its directory."""
    with translated(target):
        _sync(temporary, os.O_RDWR)
        os.link(temporary, target)
        temporary.unlink()
        _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)


def remove(path: Path) -> None:
    """Remove a file that may be gone already."""
    with translated(path), contextlib.suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Turn a failure of the file system into the member of the error tree that it is, naming the path."""
    try:
        yield
    except OSError as error:
        kind = {
            errno.ENOSPC: StorageFull,
            errno.EDQUOT: StorageFull,
            errno.EROFS: StorageReadOnly,
        }.get(error.errno or 0, Storage)
        raise kind(f"{path}: {error.strerror}") from error


def _open_reader(path: str, flags: int) -> int:
    # Non-blocking, so that a pipe put in a model's place cannot hang whoever opens it.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _lock_within(descriptor: int, lock: Path, deadline: float) -> None:
    """Take the lock by asking again and again: flock itself would wait for a stopped process for ever."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageBusy(f"{lock}: another process has held it for {LOCK_WAIT_SECONDS:g} seconds") from None
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError as error:
            raise Storage(f"{lock}: {error.strerror}", hint="keep the Home on a local file system") from error
        else:
            return


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
