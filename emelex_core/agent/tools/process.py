"""One process and all that it starts, within bounds of time and output. Runs on a thread; nothing outlives the call.

The module owns these invariants:

- The process leads a session of its own, without a terminal, with nothing open but its input, its output and what was
  named; its input is at an end.
- A keeper stands between us and it (`keeper`), which adopts whatever leaves the tree. When the time is over or the
  token is cancelled, the whole tree is ended, first politely, then by force; after a process that ended by itself, what
  it left behind is. When we die, the keeper ends everything.
- A keeper that was killed itself leaves a mark in the environment of all that it kept, by which they are found.
- Output is read to its end, so that nothing waits for us.
"""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

from emelex_core import ids
from emelex_core.agent.tools import keeper
from emelex_core.agent.tools.kept_output import HeadAndTail
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import ToolError

MARK: Final = "EMELEX_TOOL_RUN"
GRACE_SECONDS: Final = 1.0
"""How long a process that was asked politely may take."""
KEEPER_SECONDS: Final = 5.0

_READ_BYTES: Final = 65_536
_ROUNDS_MAX: Final = 20
_AFTER_SECONDS: Final = 0.2
"""How long output is still awaited from what a process left behind, once it ended."""
_KILLED: Final = -9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """What to run. `directory` is an open descriptor; `descriptors` are those that the process may use."""

    argv: tuple[str, ...]
    directory: int
    environment: dict[str, str]
    input: bytes = b""
    descriptors: tuple[int, ...] = ()
    seconds_max: float
    output_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it went. `exit_code` is negative for a signal; `stopped` says why it was ended, None when it ended itself.

    `replaced` says that some output was no UTF-8; `left_behind` counts processes that were ended after it.
    """

    text: str
    exit_code: int
    stopped: str | None
    replaced: bool
    left_behind: int


def run_process(plan: ProcessPlan, cancel: CancelToken) -> Ended:
    """Run a plan to its end. Raises: ToolError when it cannot be started."""
    kept = HeadAndTail(plan.output_bytes_max)
    tree = _Tree(plan)
    try:
        stopped = _Watch(tree, plan, kept, cancel).wait()
    except BaseException:
        tree.end(polite=False)
        raise
    left = tree.end(polite=stopped is not None)
    text, replaced = kept.text()
    return Ended(text=text, exit_code=tree.exit_code, stopped=stopped, replaced=replaced, left_behind=left)


class _Tree:
    """A keeper with its command, and the three ways to it: input, output, and whether the command has ended."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._mark = ids.random_id()
        self._code: int | None = None
        control, self._control = os.pipe()
        self.status, status = os.pipe()
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(control), str(status), *plan.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # The child changes to the open directory, wherever its name has gone, before its descriptors close.
                cwd=f"/proc/self/fd/{plan.directory}",
                env={**plan.environment, MARK: self._mark},
                pass_fds=(control, status, *plan.descriptors),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            os.close(self._control)
            os.close(self.status)
            raise ToolError(f"it cannot be started: {error}") from None
        finally:
            os.close(control)
            os.close(status)

    @property
    def input(self) -> IO[bytes]:
        """What the command reads."""
        assert self._keeper.stdin is not None
        return self._keeper.stdin

    @property
    def output(self) -> IO[bytes]:
        """What the command and all below it write."""
        assert self._keeper.stdout is not None
        return self._keeper.stdout

    @property
    def exit_code(self) -> int:
        """The command's exit code, negative for a signal; that of a kill where nobody is left to tell."""
        return _KILLED if self._code is None else self._code

    def note_end(self) -> None:
        """Read the exit code, once `status` is readable."""
        data = os.read(self.status, keeper.STATUS.size)
        if len(data) == keeper.STATUS.size:
            (self._code,) = keeper.STATUS.unpack(data)

    def end(self, *, polite: bool) -> int:
        """End all of it; return how many processes the command had left behind."""
        if polite:
            with suppress(OSError):
                os.write(self._control, b"t")
            if select.select([self.status], [], [], GRACE_SECONDS)[0]:
                self.note_end()
        os.close(self._control)
        try:
            left = self._keeper.wait(KEEPER_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            left = self._keeper.wait()
        if not 0 <= left <= keeper.COUNT_MAX:
            left = _sweep(self._mark)
        for stream in (self.input, self.output):
            with suppress(OSError):
                stream.close()
        os.close(self.status)
        return left


class _Watch:
    """Waits for a process's output and end, for the clock, and for the token, whichever comes first."""

    def __init__(self, tree: _Tree, plan: ProcessPlan, kept: HeadAndTail, cancel: CancelToken) -> None:
        self._tree = tree
        self._plan = plan
        self._kept = kept
        self._cancel = cancel
        self._unsent = plan.input

    def wait(self) -> str | None:
        """Return why it has to be stopped, or None when it ended by itself."""
        ears, mouth = os.pipe()
        os.set_blocking(mouth, False)
        until = time.monotonic() + self._plan.seconds_max
        try:
            with selectors.DefaultSelector() as selector, self._cancel.watched(lambda: _wake(mouth)):
                selector.register(ears, selectors.EVENT_READ)
                return self._loop(selector, until)
        finally:
            os.close(ears)
            os.close(mouth)

    def _loop(self, selector: selectors.BaseSelector, until: float) -> str | None:
        output, entry = self._tree.output, self._tree.input
        os.set_blocking(output.fileno(), False)
        os.set_blocking(entry.fileno(), False)
        selector.register(output, selectors.EVENT_READ)
        selector.register(entry, selectors.EVENT_WRITE)
        selector.register(self._tree.status, selectors.EVENT_READ)
        while not self._cancel.cancelled:
            left = until - time.monotonic()
            if left <= 0:
                return f"it did not end within {self._plan.seconds_max:g} seconds"
            ready = {key.fileobj for key, _ in selector.select(left)}
            if entry in ready:
                self._feed(selector)
            if output in ready and not self._listen():
                selector.unregister(output)
            if self._tree.status in ready:
                self._tree.note_end()
                # What it left behind may hold the output open for ever; what it wrote is there already.
                self._drain(time.monotonic() + _AFTER_SECONDS)
                return None
        return "it was cancelled"

    def _feed(self, selector: selectors.BaseSelector) -> None:
        entry = self._tree.input
        try:
            sent = os.write(entry.fileno(), self._unsent[:_READ_BYTES]) if self._unsent else 0
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            selector.unregister(entry)
            with suppress(OSError):
                entry.close()

    def _listen(self) -> bool:
        """Read what is there; return whether more can come."""
        try:
            data = os.read(self._tree.output.fileno(), _READ_BYTES)
        except BlockingIOError:
            return True
        self._kept.add(data)
        return bool(data)

    def _drain(self, until: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._tree.output, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0 and selector.select(min(left, 0.05)):
                if not self._listen():
                    return


def _sweep(mark: str) -> int:
    """Kill whatever carries a mark; return how many processes that were. For a keeper that was killed itself."""
    import psutil

    killed: set[int] = set()
    for _ in range(_ROUNDS_MAX):
        marked: list[psutil.Process] = []
        for other in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if other.status() != psutil.STATUS_ZOMBIE and other.environ().get(MARK) == mark:
                    marked.append(other)
        if not marked:
            break
        killed.update(found.pid for found in marked)
        for found in marked:
            with suppress(psutil.Error, OSError):
                found.kill()
        psutil.wait_procs(marked, timeout=GRACE_SECONDS / _ROUNDS_MAX)
    return len(killed)


def _wake(mouth: int) -> None:
    with suppress(OSError):
        os.write(mouth, b"!")
