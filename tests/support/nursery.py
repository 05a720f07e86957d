"""Many short processes for crash tests, each forked from one that has imported everything and opened nothing.

A matrix of kills needs hundreds of processes, and an interpreter that starts and imports takes a second of a busy
machine. The nursery has no connection, no thread and no event loop, so that a fork of it is as good as a new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Ended:
    """How a process ended; a negative code is a signal's."""

    code: int
    out: str
    err: str


class Nursery:
    """Starts processes and waits for them. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SUPPORT / "nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        )

    def run(
        self, entry: str, *arguments: object, cwd: Path, fault: str = "", env: dict[str, str] | None = None
    ) -> Ended:
        """Run `life` (tests/support/agent_life.py) or `emelex` with these arguments, to the end or to the kill."""
        out, err = self._directory / "out", self._directory / "err"
        order = {
            "entry": entry,
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(cwd),
            "fault": fault,
            "env": env or {},
            "out": str(out),
            "err": str(err),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ended(code, out.read_text("utf-8"), err.read_text("utf-8"))

    def close(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=60)


def _child(order: dict[str, Any]) -> int:
    """Become what was ordered."""
    from emelex_core import faults

    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    point, _, nth = order["fault"].partition(":")
    faults._point, faults._remaining = point, int(nth or 1)
    return _enter(order["entry"], order["arguments"])


def _enter(entry: str, arguments: Sequence[str]) -> int:
    sys.argv = [entry, *arguments]
    if entry == "life":
        import agent_life

        agent_life.main()
        return 0
    from emelex_cli import app

    return app.main()


def _serve() -> None:
    # Everything that the children will need, so that none of them imports it anew.
    for module in ("agent_life", "emelex_cli.grammar", "emelex_cli.recover_cmd", "emelex_core.archive.check"):
        import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _child(order)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException:  # noqa: BLE001 - a child that fails says why, and never becomes a second nursery
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
