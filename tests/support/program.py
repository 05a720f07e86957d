"""The real program in processes of its own, and how each run ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import keep

PROGRAM = (sys.executable, "-P", "-m", "emelex_cli")
TRICKY = "Plan \x1b[31mred\x07 \u202egnp.exe\u2066 \x9bsecond\nline"
"""A text with an escape sequence, a bell, bidi overrides, a C1 control and a line break."""


@dataclass(frozen=True)
class Result:
    """How one run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Stdout as one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error object on stderr: its last line."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        assert set(found) == {"error"}
        return found["error"]


@dataclass(frozen=True)
class Program:
    """Runs the program with a Home, in a workspace, in a bare environment."""

    home: Path
    workspace: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def env(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The environment of a run; None takes a variable away."""
        wanted: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            "LANG": "C.UTF-8",
            "EMELEX_HOME": str(self.home),
            **self.environment,
            **(changes or {}),
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def __call__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> Result:
        """Run to the end."""
        done = subprocess.run(
            [*program, *map(str, arguments)],
            cwd=cwd or self.workspace,
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=100,
        )
        # Strict: whatever the locale, what leaves the program is UTF-8.
        return Result(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    @contextmanager
    def started(
        self, *arguments: str | Path, env: Mapping[str, str | None] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Start and do not wait; what still runs at the end of the block is killed."""
        process = keep(
            subprocess.Popen(
                [*PROGRAM, *map(str, arguments)],
                cwd=self.workspace,
                env=self.env(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    @property
    def database(self) -> Path:
        return self.home / "memory" / "emelex.sqlite3"
