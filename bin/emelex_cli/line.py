"""One command line: its options, its command, and one exit code for each way it can end (contract, "Exit codes").

The module owns these invariants:

- Whatever happens, a person sees one clear error and never a traceback; a program sees the documented code.
- A command line that needs no parser starts without one: `memory status` must not pay for the whole grammar.
- Descriptors 0 to 2 are open before anything else is, so that no file of ours can take the place of a closed stream.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Final, cast

from emelex_cli.call import Call, Run, take_globals
from emelex_cli.output import Output, ReaderGone, abandon_stdout
from emelex_core.errors import EmelexError, Storage

SHORTCUTS: Final[dict[tuple[str, ...], str]] = {
    ("memory", "status"): "emelex_cli.status_cmd:status",
    ("memory", "work"): "emelex_cli.work_cmd:work",
    ("memory", "failures"): "emelex_cli.jobs_cmd:failures",
    ("memory", "jobs", "list"): "emelex_cli.jobs_cmd:list_jobs",
    ("memory", "sessions", "list"): "emelex_cli.sessions_cmd:list_sessions",
    ("memory", "knowledge", "list"): "emelex_cli.knowledge_cmd:list_knowledge",
    ("config", "show"): "emelex_cli.config_cmd:show",
    ("paths",): "emelex_cli.config_cmd:paths",
    ("doctor",): "emelex_cli.doctor_cmd:doctor",
    ("--version",): "emelex_cli.config_cmd:version",
}
"""Command lines without options of their own, and the functions that the grammar would lead to."""

DEBUG_VARIABLE: Final = "EMELEX_DEBUG"
"""Set to anything, an internal error shows its traceback, for a bug report."""


class InternalError(EmelexError):
    """A fault of Emelex memory itself."""

    kind = "InternalError"


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code. Raises: KeyboardInterrupt and whatever else a signal raises."""
    _hold_standard_descriptors()
    out = Output(json="--json" in words)
    try:
        code = _run(list(words), out)
        out.flush()
    except ReaderGone:
        abandon_stdout()
        return 0
    except EmelexError as error:
        return _fail(error, out)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _fail(_internal(error), out)
    return code


def _run(words: list[str], out: Output) -> int:
    options, rest = take_globals(words)
    out.json = options.json
    run = _shortcut(rest)
    if run is None:
        from emelex_cli import grammar

        parsed = grammar.parse(rest)
        if isinstance(parsed, int):
            return parsed
        run = parsed
    return run(Call(options, out))


def _shortcut(words: list[str]) -> Run | None:
    place = SHORTCUTS.get(tuple(words))
    if place is None:
        return None
    module, _, name = place.partition(":")
    return cast(Run, getattr(importlib.import_module(module), name))


def _fail(error: EmelexError, out: Output) -> int:
    """Tell an error after what was written before it; return its code."""
    try:
        out.flush()
    except (ReaderGone, Storage):
        abandon_stdout()
    out.error(error)
    return error.exit_code


def _internal(error: Exception) -> InternalError:
    found = InternalError(
        f"internal error: {type(error).__name__}: {error}",
        hint=f"this is a fault of Emelex memory; {DEBUG_VARIABLE}=1 shows where it happened",
    )
    found.__cause__ = error
    return found


def _hold_standard_descriptors() -> None:
    """Open /dev/null in the place of each closed standard stream."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is taken, which is this one.
            os.open(os.devnull, os.O_RDWR)
