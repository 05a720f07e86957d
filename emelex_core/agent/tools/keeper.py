"""The process between us and a command: it keeps the command's whole tree, and ends it. Run by its path, with `-I -S`:

    python -I -S keeper.py CONTROL STATUS COMMAND …

CONTROL and STATUS are descriptors. It starts the command in a session of its own and writes its exit code to STATUS as
one 32-bit number. On CONTROL each byte asks it to terminate the tree politely; the end of CONTROL, which also comes
when the one who started us dies, has it kill the tree and exit with how many processes the command had left behind.

It uses the standard library alone, so that it starts fast and from wherever it lies. Whatever leaves the command's tree
becomes its child (Linux: child subreaper), with or without a session, whatever its environment.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress

STATUS = struct.Struct("=i")
COUNT_MAX = 100

_SET_CHILD_SUBREAPER = 36
_ROUNDS_MAX = 200
_LOOK_SECONDS = 0.005
_CANNOT_START = 127


class Keeper:
    """One command and its tree."""

    def __init__(self, control: int, status: int, command: list[str]) -> None:
        self._control = control
        self._status = status
        self._command = command
        self._leader = 0
        self._ended = False

    def run(self) -> int:
        """Start the command, serve until CONTROL ends, and return how many it had left behind."""
        for descriptor in (self._control, self._status):
            os.set_inheritable(descriptor, False)
        ears, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _nothing)
        _adopt_orphans()
        self._leader = self._start()
        # The output ends with the command's tree, not with us.
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        while True:
            ready, _, _ = select.select([self._control, ears], [], [])
            if ears in ready:
                os.read(ears, 4096)
            self._bury()
            if self._control in ready:
                if not os.read(self._control, 64):
                    return self._kill_all()
                self._signal_all(signal.SIGTERM)

    def _start(self) -> int:
        leader = os.fork()
        if leader:
            return leader
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(self._command[0], self._command)  # noqa: S606 - the command names its own shell
        except OSError as error:
            os.write(2, f"{self._command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        finally:
            os._exit(_CANNOT_START)

    def _bury(self) -> bool:
        """Take the ends of children that are done; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._leader and not self._ended:
                self._ended = True
                with suppress(OSError):
                    os.write(self._status, STATUS.pack(os.waitstatus_to_exitcode(status)))
                os.close(self._status)

    def _kill_all(self) -> int:
        """Kill until nothing is left; return how many were there although the command had ended."""
        behind: set[int] = set()
        for _ in range(_ROUNDS_MAX):
            if not self._bury():
                break
            found = descendants(os.getpid())
            if self._ended:
                behind.update(found)
            self._signal_all(signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)
        return min(len(behind), COUNT_MAX)

    def _signal_all(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                os.kill(pid, number)


def descendants(top: int) -> list[int]:
    """Ids of all living processes below one, by the parents that the kernel names."""
    children: dict[int, list[int]] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries]
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name before it may hold anything, so the fields are counted from its last bracket.
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    waiting = [top]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _nothing(number: int, frame: object) -> None:
    """What a signal needs in order to wake a select: a handler."""


def _adopt_orphans() -> None:
    import ctypes

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(Keeper(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]).run())
