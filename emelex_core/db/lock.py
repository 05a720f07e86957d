"""The open lock: first-open and migrations happen one at a time (seed, "Durability and authority").

Two layers, since flock does not exclude threads that share a descriptor and a mutex does not exclude processes. The
sidecar `<database>.open.lock` is private and never unlinked: removing it would let two holders lock two files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emelex_core import home, limits
from emelex_core.errors import StorageBusy

_mutex: Final = threading.Lock()


@contextmanager
def open_lock(database: Path) -> Generator[None]:
    """Hold the open lock of a database. Raises: Refused, Storage, StorageBusy after a bounded wait."""
    sidecar = database.with_name(database.name + ".open.lock")
    deadline = time.monotonic() + limits.BUSY_WAIT_MS / 1000
    if not _mutex.acquire(timeout=limits.BUSY_WAIT_MS / 1000):
        raise StorageBusy(f"another thread is opening {database}")
    try:
        descriptor = home.open_private(sidecar, what="lock file")
        try:
            home.lock_within(descriptor, sidecar, seconds=max(0.0, deadline - time.monotonic()))
            yield
        finally:
            os.close(descriptor)
    finally:
        _mutex.release()
