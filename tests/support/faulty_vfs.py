"""A disk that fails on demand: an apsw VFS over SQLite's own, and what a power cut would leave of the files on it.

The machine counts every write, sync, truncation, deletion, opening and read. It can fail the n-th of a kind once, with
EIO or ENOSPC, half of the bytes written; be full until it is mended; or lose its power at the n-th of all, after which
nothing works any more. `image` then builds what the platter holds: everything synced, and of what was not synced no
sector, every sector, or some at random. Shared memory is the kernel's and passes through; its system calls fail through
`failing_calls`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512
KINDS = ("write", "sync", "truncate", "delete", "open", "read")
NAME = "faulty"
_CODES = {
    ("write", "EIO"): apsw.SQLITE_IOERR_WRITE,
    ("sync", "EIO"): apsw.SQLITE_IOERR_FSYNC,
    ("truncate", "EIO"): apsw.SQLITE_IOERR_TRUNCATE,
    ("delete", "EIO"): apsw.SQLITE_IOERR_DELETE,
    ("open", "EIO"): apsw.SQLITE_CANTOPEN,
    ("read", "EIO"): apsw.SQLITE_IOERR_READ,
}


@dataclass
class _Disk:
    """One file as it is on the platter, and what was written since its last sync."""

    durable: bytearray
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)


class Machine:
    """The state of the disk, and when it fails. One at a time is the process's default VFS."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.total = 0
        self.dead = False
        self.failed: str | None = None
        self._armed: tuple[str, int, str] | None = None
        self._cut_at: int | None = None
        self._full_from: int | None = None
        self._disks: dict[str, _Disk] = {}
        self._ghosts: dict[str, bytes] = {}

    def arm(self, kind: str, nth: int, error: str) -> None:
        """Let the n-th operation of a kind fail, once, with EIO or ENOSPC."""
        self._armed = (kind, nth, error)

    def fill_up_at(self, nth: int) -> None:
        """Let the disk be full from the n-th write on, until it is mended."""
        self._full_from = nth

    def mend(self) -> None:
        """Nothing fails any more."""
        self._armed = self._full_from = None

    def cut_at(self, nth: int) -> None:
        """Let the power go at the n-th operation of all."""
        self._cut_at = nth

    def reach(self, kind: str) -> None:
        """Count an operation; raise when it fails."""
        self.counts[kind] += 1
        self.total += 1
        if self.total == self._cut_at:
            self.dead = True
            self.failed = kind
        if self.dead:
            raise _error(kind, "EIO")
        if self._full_from is not None and kind == "write" and self.counts[kind] >= self._full_from:
            self.failed = kind
            raise _error(kind, "ENOSPC")
        if self._armed is not None and self._armed[:2] == (kind, self.counts[kind]):
            error = self._armed[2]
            self._armed = None
            self.failed = kind
            raise _error(kind, error)

    def opened(self, path: str) -> None:
        """A file is opened; what stands in it at the first look is on the platter."""
        if path not in self._disks:
            file = Path(path)
            self._disks[path] = _Disk(bytearray(file.read_bytes() if file.exists() else b""))
            self._ghosts.pop(path, None)

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        """Bytes were handed over; nothing says that they are on the platter."""
        self._disks[path].pending.append((offset, data))

    def truncated(self, path: str, size: int) -> None:
        """A file was cut; that is not on the platter either."""
        self._disks[path].pending.append(size)

    def synced(self, path: str) -> None:
        """Everything that was handed over is on the platter."""
        disk = self._disks[path]
        for change in disk.pending:
            _apply(disk.durable, change)
        disk.pending.clear()

    def deleted(self, path: str, *, synced: bool) -> None:
        """A name went; unless the directory was synced, it may come back."""
        disk = self._disks.pop(path, None)
        if disk is not None and not synced:
            self._ghosts[path] = bytes(disk.durable)

    def image(self, target: Path, *, keep: str, chance: random.Random) -> None:
        """Write the files into a directory as a power cut leaves them; `keep` is none, all or some of the unsynced."""
        for path, data in self._ghosts.items():
            if chance.random() < 0.5:
                _put(target / Path(path).name, data)
        for path, disk in self._disks.items():
            content = bytearray(disk.durable)
            for change in disk.pending:
                for piece in _sectors(change):
                    if keep == "all" or (keep == "some" and chance.random() < 0.5):
                        _apply(content, piece)
            _put(target / Path(path).name, content)


class FaultyVfs(apsw.VFS):
    """SQLite's own file system with a machine in front of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        super().__init__(NAME, "unix")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self.machine.reach("open")
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return FaultyFile(self.machine, path or "", name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.machine.reach("delete")
        super().xDelete(filename, syncdir)
        self.machine.deleted(filename, synced=syncdir)

    def excepthook(self, etype: object, evalue: object, etraceback: object) -> None:
        """SQLite may go on after a failure of a file system; that is nobody's error here."""


class FaultyFile(apsw.VFSFile):
    """One open file on the machine. A sync is only counted: the platter is the machine's."""

    def __init__(self, machine: Machine, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._machine = machine
        self._path = path
        super().__init__("unix", name, flags)
        machine.opened(path)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._machine.reach("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        try:
            self._machine.reach("write")
        except apsw.Error:
            if not self._machine.dead:
                self._write(data[: len(data) // 2], offset)
            raise
        self._write(data, offset)

    def xSync(self, flags: int) -> None:
        self._machine.reach("sync")
        self._machine.synced(self._path)

    def xTruncate(self, newsize: int) -> None:
        self._machine.reach("truncate")
        super().xTruncate(newsize)
        self._machine.truncated(self._path, newsize)

    def excepthook(self, etype: object, evalue: object, etraceback: object) -> None:
        """As of the VFS."""

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._machine.wrote(self._path, offset, bytes(data))


@contextmanager
def plugged_in() -> Iterator[Machine]:
    """Make a fresh machine the disk of every connection that is opened in the block."""
    machine = Machine()
    vfs = FaultyVfs(machine)
    apsw.set_default_vfs(NAME)
    try:
        yield machine
    finally:
        apsw.set_default_vfs("unix")
        vfs.unregister()


class Calls:
    """How often a system call was made, and which of them fails."""

    def __init__(self, nth: int | None) -> None:
        self.made = 0
        self.lived = 0
        self.failed = False
        self._nth = nth

    def mend(self) -> None:
        """Nothing fails any more; how many calls there were until then is `lived`."""
        self._nth = None
        self.lived = self.lived or self.made

    def fails(self, call: str, arguments: tuple[object, ...]) -> bool:
        """Count a call; whether it is the one. Giving a lock back never fails on a local file system: not counted."""
        if call == "fcntl" and not _takes_lock(*arguments):
            return False
        self.made += 1
        if self.made == self._nth:
            self.failed = True
        return self.made == self._nth


_POINTER = ctypes.c_void_p
_SIGNATURES = {
    "mmap": (_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    "fcntl": (ctypes.c_int, ctypes.c_int, ctypes.c_int, _POINTER),
}


@contextmanager
def failing_calls(call: str, nth: int | None, error: int = errno.EIO) -> Iterator[Calls]:
    """Let the n-th `mmap` or `fcntl` that SQLite makes for shared memory and locks fail; None only counts."""
    calls = Calls(nth)
    shape = ctypes.CFUNCTYPE(*_SIGNATURES[call], use_errno=True)
    real = ctypes.CDLL(None, use_errno=True)[call]
    real.restype, real.argtypes = _SIGNATURES[call][0], _SIGNATURES[call][1:]

    def instead(*arguments: object) -> int | None:
        if calls.fails(call, arguments):
            ctypes.set_errno(error)
            return -1
        result: int | None = real(*arguments)
        return result

    callback = shape(instead)
    unix = apsw.VFS("calls", "unix")
    unix.xSetSystemCall(call, ctypes.cast(callback, _POINTER).value or 0)
    try:
        yield calls
    finally:
        unix.xSetSystemCall(call, 0)
        unix.unregister()


def _takes_lock(*arguments: object) -> bool:
    _, command, pointer = arguments
    if command not in (fcntl.F_SETLK, fcntl.F_SETLKW, getattr(fcntl, "F_OFD_SETLK", -1)) or not isinstance(
        pointer, int
    ):
        return False
    return ctypes.c_short.from_address(pointer).value != fcntl.F_UNLCK


def _error(kind: str, error: str) -> Exception:
    code = apsw.SQLITE_FULL if error == "ENOSPC" and kind in ("write", "truncate") else _CODES[kind, "EIO"]
    return apsw.exception_for(code)


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        return
    offset, data = change
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _sectors(change: tuple[int, bytes] | int) -> Iterator[tuple[int, bytes] | int]:
    if isinstance(change, int):
        yield change
        return
    offset, data = change
    while data:
        size = SECTOR - offset % SECTOR
        yield offset, data[:size]
        offset, data = offset + size, data[size:]


def _put(path: Path, data: bytes | bytearray) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
