"""The entrance: signals first, then everything else.

The module owns these invariants:

- From its first instruction to the last of the process, Ctrl-C and TERM end the program with 130 and 143, without a
  traceback (contract, "Exit codes"). Commands that hold a claim take both signals themselves meanwhile (`signals.py`).
- Nothing is raised into an import. Modules would stay half made, and extension modules are not written for it: orjson's
  initialiser crashes the process when a lookup of its own is interrupted. There the process ends at once; what is
  durable is made for being killed at any moment.
- Nothing that the interpreter has not loaded already is imported before the signals are taken: not even `signal`, whose
  own imports take several milliseconds.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    Handler = Callable[[int, FrameType | None], None]

_signal = __import__("_signal")
"""The interpreter's own part of `signal`. It has no type stubs."""

_TAKEN = (_signal.SIGINT, _signal.SIGTERM)
_IMPORTING = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


class Terminated(BaseException):
    """A TERM came. Whoever cleans up does so as after a Ctrl-C; whoever answers a Ctrl-C and goes on does not."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; the process is expected to end with it."""
    _on_signal(_end)
    import atexit

    from emelex_cli import line

    # The interpreter takes its handlers down while it ends; what comes then has come too late to matter.
    atexit.register(_hold_back)
    sys.unraisablehook = _unraisable
    try:
        _on_signal(_interrupt)
        code = line.run(sys.argv[1:] if arguments is None else arguments)
        _on_signal(_end)
    except KeyboardInterrupt:
        _on_signal(_end)
        return 128 + int(_signal.SIGINT)
    except Terminated:
        _on_signal(_end)
        return 128 + int(_signal.SIGTERM)
    return code


def _on_signal(handler: Handler) -> None:
    for number in _TAKEN:
        _signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    """End the process here: there is nothing to clean up yet, or any more."""
    del frame
    os._exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the command by an exception, unless the main thread is in the middle of an import."""
    while frame is not None:
        if frame.f_code.co_filename in _IMPORTING:
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt if number == _signal.SIGINT else Terminated


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """End by the signal when its exception was raised into a destructor, where it would be printed and forgotten."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        os._exit(128 + int(_signal.SIGINT))
    if isinstance(lost.exc_value, Terminated):
        os._exit(128 + int(_signal.SIGTERM))
    sys.__unraisablehook__(lost)


def _hold_back() -> None:
    # Ignored, not blocked: a thread of a native library would take in what this one blocks, and end the process by it.
    _on_signal(_signal.SIG_IGN)
