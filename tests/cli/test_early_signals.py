"""Ctrl-C and TERM at any moment of a run, from the first instruction of ours to the last of the process (167)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from processes import keep
from program import PROGRAM, Program

DELAYS_MS = range(0, 300, 12)
"""Where a run is then differs from one to the next: in the interpreter, in imports, in the database, at the end."""
ENDS = {0, 130, 143, -signal.SIGINT, -signal.SIGTERM}
THIN = (str(Path(__file__).resolve().parents[2] / "bin" / "emelex"),)
RECORD = {
    "type": "user",
    "uuid": "u1",
    "sessionId": "s1",
    "timestamp": "2026-01-01T00:00:00Z",
    "cwd": "/nowhere",
    "message": {"role": "user", "content": "Count the ships that pass the light."},
}


def interrupted(emelex: Program, program: tuple[str, ...], words: list[str], number: int, delay: float) -> str | int:
    """Start a run, signal it after so many seconds, and return its exit code, or what it should not have said."""
    process = keep(
        subprocess.Popen(
            [*program, *words],
            cwd=emelex.workspace,
            env=emelex.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    # The moment is what is tested; there is nothing to wait for.
    time.sleep(delay)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    if "KeyboardInterrupt" in told and not re.search(r"emelex_cli/(?!__)|emelex_core", told):
        # The interpreter had not come to our first instruction yet: it starts with a handler of its own.
        return -signal.SIGINT
    return process.returncode if "Traceback" not in told and process.returncode in ENDS else told


@pytest.mark.parametrize("words", ["memory status", "memory work", "memory top --once", "import claude-code t.jsonl"])
@pytest.mark.parametrize("program", [PROGRAM, THIN], ids=["module", "bin/emelex"])
def test_a_signal_at_any_moment_ends_quietly(emelex: Program, words: str, program: tuple[str, ...]) -> None:
    """Never a traceback, never a crash; -2 and -15 only while the interpreter itself starts."""
    MemoryStore.open(emelex.home, create=True).close()
    (emelex.workspace / "t.jsonl").write_text(json.dumps(RECORD) + "\n")
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(interrupted, emelex, program, words.split(), number, delay / 1000)
            for delay in DELAYS_MS
            for number in (signal.SIGINT, signal.SIGTERM)
        ]
        ends = Counter(run.result() for run in runs)
    assert set(ends) <= ENDS, ends
    assert ends[130] > 0, "no SIGINT met the program while it ran"
    assert ends[143] > 0, "no SIGTERM met the program while it ran"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_raised_into_an_import(emelex: Program, number: int, code: int) -> None:
    """orjson's initialiser crashed the process (SIGSEGV) when an exception met its own imports; found by the sweep."""
    script = f"""
        import os, sys
        from emelex_cli import app

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "orjson":
                    os.kill(os.getpid(), {int(number)})
                return None

        sys.meta_path.insert(0, Interrupting())
        sys.exit(app.main(["memory", "status"]))
    """
    MemoryStore.open(emelex.home, create=True).close()
    result = emelex(program=(sys.executable, "-P", "-c", textwrap.dedent(script)))
    assert (result.code, result.err) == (code, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_destructor_is_not_forgotten(emelex: Program, number: int, code: int) -> None:
    """Python prints what a destructor raises, and goes on."""
    script = f"""
        import os, sys
        from emelex_cli import app, line

        class Dropped:
            def __del__(self):
                os.kill(os.getpid(), {int(number)})

        def run(words):
            dropped = Dropped()
            del dropped
            return 0

        line.run = run
        sys.exit(app.main([]))
    """
    result = emelex(program=(sys.executable, "-P", "-c", textwrap.dedent(script)))
    assert (result.code, result.err) == (code, "")


def test_a_signal_while_the_interpreter_ends_is_held_back(emelex: Program) -> None:
    """What comes after the result was told changes nothing."""
    script = """
        import os, signal, sys
        from emelex_cli import app, line
        line.run = lambda words: 0
        code = app.main([])
        class Late:
            def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGTERM):
                kill(me, number)
        sys.modules["late"] = Late()
        sys.exit(code)
    """
    result = emelex(program=(sys.executable, "-P", "-c", textwrap.dedent(script)))
    assert (result.code, result.err) == (0, "")
