"""Model files: hashed through one descriptor, copied through one buffer, and published whole or not at all.

The module owns these invariants:

- What was verified is what gets loaded: digest and identity come from one descriptor, and `unchanged` compares the path
  with that identity after the load.
- A file appears under its name complete and synced, mode 0600, and never over another one.
- Every failure of the file system is a member of the error tree that names the path.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, TypeAlias

from emelex_core import home, limits
from emelex_core.errors import ModelUnusable, Refused

LOCK_WAIT_SECONDS: Final = 60.0
"""A derived model is made in a second or two, a linked one is hashed in a few; who holds the lock longer is stuck."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done in a word (`copying`, `hashing`, `probing`), how many bytes of it are done, and of how many
in all."""

_BUFFER_BYTES: Final = limits.MIB
"""Large enough that hashing runs at the speed of the processor, small enough for any machine."""


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


def digest(path: Path, *, hint: str | None = None, progress: Progress | None = None) -> Verified:
    """Hash a regular file. `hint` is what to do when that cannot be done.

    Raises: ModelUnusable naming the path when it is missing, no regular file, or cannot be read.
    """
    with reading(path, hint=hint) as file:
        return _pump(file, path, None, "hashing", progress)


def copy(source: Path, target: Path, *, progress: Progress | None = None) -> Verified:
    """Copy a regular file into a new private one through one buffer, sync it, and return the source as it was read.

    Raises: ModelUnusable when the source cannot be read or changed meanwhile; Storage for the target.
    """
    with reading(source) as file:
        create_private(target)
        with translated(target):
            descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = _pump(file, source, lambda piece: _write_all(descriptor, piece, target), "copying", progress)
            with translated(target):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return found


def verify(path: Path, sha256: str, *, hint: str, progress: Progress | None = None) -> Verified:
    """Hash a file and compare it with what it must be.

    Raises: ModelUnusable naming the file and both digests.
    """
    found = digest(path, hint=hint, progress=progress)
    if found.sha256 != sha256:
        raise ModelUnusable(
            f"{path}: its SHA-256 is {found.sha256}, and it must be {sha256}: it was altered or cut", hint=hint
        )
    return found


@contextmanager
def reading(path: Path, *, hint: str | None = None) -> Generator[BufferedReader]:
    """Open a regular file for reading. Raises: ModelUnusable naming the path, also for a failure inside the block."""
    try:
        with open(path, "rb", opener=_open_reader) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ModelUnusable(f"{path}: it is not a regular file", hint=hint)
            yield file
    except OSError as error:
        raise ModelUnusable(f"{path}: it cannot be read: {error.strerror}", hint=hint) from error


def private_directory(path: Path) -> None:
    """Create a directory of mode 0700, parents included.

    Raises: Refused when one stands there that others may read or that is not ours; Storage.
    """
    with translated(path):
        # One by one, because mkdir gives the parents that it makes whatever mode the umask leaves.
        missing = [place for place in (path, *path.parents) if not home.exists(place)]
    for place in reversed(missing):
        home.make_private_directory(place)
    require_private_directory(path)


def require_private_directory(path: Path) -> None:
    """Raise Refused unless a directory is ours and closed to everybody else, Storage when it cannot be looked at."""
    with translated(path):
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(f"{path}: it must be a directory of your own with mode 0700")


@contextmanager
def exclusive(lock: Path) -> Generator[None]:
    """Hold a file's kernel lock, which no crash leaves behind. The file itself is never removed.

    Raises: StorageBusy when another holds it for longer than `LOCK_WAIT_SECONDS`; Refused, Storage.
    """
    descriptor = home.open_private(lock, what="lock file")
    try:
        home.lock_within(descriptor, lock, seconds=LOCK_WAIT_SECONDS)
        yield
    finally:
        os.close(descriptor)


def create_private(path: Path) -> None:
    """Put an empty file of mode 0600 there, under any umask. Raises: Storage, also when something is there already."""
    with translated(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, home.PRIVATE_FILE))
        path.chmod(home.PRIVATE_FILE)


def write_private(path: Path, data: bytes) -> None:
    """Put a new private file there and sync it. Raises: Storage, also when something is there already."""
    create_private(path)
    with translated(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def publish(temporary: Path, target: Path) -> None:
    """Give a complete temporary file its name: synced, never over an existing file, and durable with its directory."""
    with translated(target):
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(temporary, target)
        temporary.unlink()
    home.sync_directory(target.parent)


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
        raise home.storage_error(error, str(path)) from error


def _pump(
    file: BufferedReader, path: Path, write: Callable[[memoryview], None] | None, doing: str, progress: Progress | None
) -> Verified:
    """Read a whole file through one buffer; return what it is. Raises: ModelUnusable when it changes meanwhile."""
    before = os.fstat(file.fileno())
    hashed = hashlib.sha256()
    view = memoryview(bytearray(_BUFFER_BYTES))
    done = 0
    # One byte past the end is enough to see growth: a file that somebody keeps appending to must not be followed.
    while count := file.readinto(view[: min(len(view), before.st_size - done + 1)]):
        hashed.update(view[:count])
        if write is not None:
            write(view[:count])
        done += count
        if done > before.st_size:
            break
        if progress is not None:
            progress(doing, done, before.st_size)
    after = os.fstat(file.fileno())
    if done != before.st_size or after.st_mtime_ns != before.st_mtime_ns or after.st_size != before.st_size:
        raise ModelUnusable(f"{path}: it changed while it was read")
    return Verified(
        path=path,
        sha256=hashed.hexdigest(),
        device=before.st_dev,
        inode=before.st_ino,
        size=before.st_size,
        modified_ns=before.st_mtime_ns,
    )


def _write_all(descriptor: int, piece: memoryview, target: Path) -> None:
    with translated(target):
        while piece:
            piece = piece[os.write(descriptor, piece) :]


def _open_reader(path: str, flags: int) -> int:
    # Non-blocking, so that a pipe put in a model's place cannot hang whoever opens it.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
