"""Owner liveness by kernel lock (behaviour 181; ADR 0005).

Each store that claims something holds one byte of one never-deleted file with an open-file-description lock. The
byte's offset is a random number, stored beside the lease. The kernel drops the lock when the process dies, in whatever
container it ran, so that death is seen at the next look. Process ids are never used.

Where the system has no such locks, or the file cannot be looked at, an owner counts as alive and the lease's expiry
decides. A forked child gives its copies of the descriptors back, so that it does not keep a dead parent's byte.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import weakref
from pathlib import Path
from typing import Final

from emelex_core.errors import EmelexError, Storage
from emelex_core.home import open_private

_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""
_SLOT_MAX: Final = 2**62
_ATTEMPTS: Final = 8
_GET: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_SET: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)


class Owners:
    """The lock file of one database: this process's own byte, and the look at others'."""

    def __init__(self, database: Path, *, read_only: bool = False) -> None:
        self._path = database.with_name(database.name + ".owners.lock")
        self._read_only = read_only
        self._mutex = threading.Lock()
        self._held: int | None = None
        self._slot: int | None = None
        self._probe: int | None = None
        _all.add(self)

    def slot(self) -> int:
        """This owner's byte, taken at the first call. Raises: Storage, Refused."""
        with self._mutex:
            if self._slot is None:
                self._held = open_private(self._path, what="owner lock file")
                self._slot = self._take(self._held)
            return self._slot

    def alive(self, slot: int) -> bool:
        """Whether the owner of a byte lives. Unknown counts as alive: expiry then decides."""
        if _GET is None:
            return True
        with self._mutex:
            try:
                if self._probe is None:
                    self._probe = self._open_probe()
                answer = fcntl.fcntl(self._probe, _GET, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0))
            except (OSError, EmelexError):
                return True
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def close(self) -> None:
        """Give the byte back; whoever looks sees this owner as gone. A second call does nothing."""
        with self._mutex:
            for descriptor in (self._held, self._probe):
                if descriptor is not None:
                    os.close(descriptor)
            self._held = self._probe = self._slot = None

    def leave_to_parent(self) -> None:
        """Close the descriptors that a fork copied; the parent's byte stays locked by the parent's own."""
        # A thread of the parent may have held the mutex; in the child there is only this one.
        self._mutex = threading.Lock()
        self.close()

    def _open_probe(self) -> int:
        """A descriptor of its own, since a lock never conflicts with its own description. A reader makes no file."""
        if self._read_only:
            return os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        return open_private(self._path, what="owner lock file")

    def _take(self, descriptor: int) -> int:
        """Lock a random free byte. A slot is never used twice, so that an old lease cannot look alive again."""
        for _ in range(_ATTEMPTS):
            slot = 1 + int.from_bytes(os.urandom(8), "big") % _SLOT_MAX
            if _SET is None:
                return slot
            try:
                fcntl.fcntl(descriptor, _SET, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0))
            except BlockingIOError:
                continue
            except OSError as error:
                raise Storage(f"cannot lock {self._path}: {error.strerror}") from error
            return slot
        raise Storage(f"cannot find a free owner byte in {self._path}")


_all: Final[weakref.WeakSet[Owners]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for owners in list(_all):
        owners.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
