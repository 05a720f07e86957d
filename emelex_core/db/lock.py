"""The open lock: first-open and migrations happen one at a time (seed, "Durability and authority").

Two layers, since flock does not exclude threads that share a descriptor and a mutex does not exclude processes. The
sidecar `<database>.open.lock` is private and never unlinked: removing it would let two holders lock two files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emelex_core import home, limits
from emelex_core.errors import Refused, Storage, StorageBusy

_mutex: Final = threading.Lock()
_POLL_SECONDS: Final = 0.005


@contextmanager
def open_lock(database: Path) -> Generator[None]:
    """Hold the open lock of a database. Raises: Refused, Storage, StorageBusy after a bounded wait."""
    sidecar = database.with_name(database.name + ".open.lock")
    deadline = time.monotonic() + limits.BUSY_WAIT_MS / 1000
    if not _mutex.acquire(timeout=limits.BUSY_WAIT_MS / 1000):
        raise StorageBusy(f"another thread is opening {database}")
    try:
        descriptor = open_private(sidecar, what="lock file")
        try:
            _flock(descriptor, sidecar, deadline)
            yield
        finally:
            os.close(descriptor)
    finally:
        _mutex.release()


def open_private(path: Path, *, what: str) -> int:
    """Open a private never-unlinked file for reading and writing, making it with mode 0600 when it is missing.

    Raises: Refused, naming it, for a link, a foreign owner or another mode; Storage when it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, home.PRIVATE_FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{what} {path} is a symbolic link") from None
        raise Storage(f"cannot open {what} {path}: {error.strerror}") from error
    try:
        # What was opened is what the name stands for: both are looked at, so that no swap between them goes unseen.
        if not os.path.samestat(home.check_private_file(path, what=what), os.fstat(descriptor)):
            raise Refused(f"{what} {path} was replaced while it was opened")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _flock(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise StorageBusy(f"another process holds {path}") from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            raise Refused(
                f"the file system of {path} cannot lock files: {error.strerror}",
                hint="keep the Home on a local file system",
            ) from error
        else:
            return
