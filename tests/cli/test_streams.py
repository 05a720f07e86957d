"""Terminals, pipes, full disks, locales and bare environments (behaviour 158; reports, K9 and K11)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Session
from program import PROGRAM, Program

Talk = Callable[..., Session]
STATUS = ("memory", "status")


def _shell(emelex: Program, line: str, *, env: dict[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of POSIX shell in which "$@" is the program."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM],
        cwd=emelex.workspace,
        env=emelex.env(env),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_reader_that_has_enough_ends_the_program_quietly(emelex: Program, talk: Talk) -> None:
    """`export | head -1`, unbuffered too: exit 0, nothing on stderr."""
    session = talk(400)
    for env in ({}, {"PYTHONUNBUFFERED": "1"}):
        line = f'{{ "$@" memory sessions export {session.id}; echo "code $?" >&2; }} | head -1'
        result = _shell(emelex, line, env=dict(env))
        assert (result.stdout, result.stderr) == ("{\n", "code 0\n")


@pytest.mark.parametrize("command", ["memory status", "memory status --json", "memory sessions list --json", "paths"])
def test_a_full_disk_below_stdout_is_an_error(emelex: Program, talk: Talk, command: str) -> None:
    """Never success: one line on stderr, exit 75."""
    talk(1)
    result = _shell(emelex, f'"$@" {command} >/dev/full')
    assert result.returncode == 75
    assert "No space left on device" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_full_disk_while_exporting(emelex: Program, talk: Talk) -> None:
    """More than a buffer: the error comes from the middle."""
    session = talk(100)
    result = _shell(emelex, f'"$@" memory sessions export {session.id} >/dev/full')
    assert (result.returncode, len(result.stderr.splitlines())) == (75, 1)


def test_closed_streams(emelex: Program, talk: Talk) -> None:
    """Without stdin or stderr it works; without stdout data has nowhere to go, which is an error."""
    talk(1)
    assert "1 Session" in _shell(emelex, '"$@" memory status <&-').stdout
    assert "1 Session" in _shell(emelex, '"$@" memory status 2>&-').stdout
    assert "1 Session" in _shell(emelex, '"$@" memory status <&- 2>&-').stdout
    closed = _shell(emelex, '"$@" memory status >&-')
    assert (closed.returncode, "standard output is closed" in closed.stderr) == (75, True)
    assert _shell(emelex, '"$@" memory status >&- 2>&- <&-').returncode == 75


def test_no_file_of_ours_takes_the_place_of_a_closed_stream(emelex: Program, transcript: Callable[..., Path]) -> None:
    """With 0, 1 and 2 closed an import still writes a sound database and nothing else into it."""
    path = transcript()
    _shell(emelex, f'"$@" import auto {path} --json <&- >&- 2>&-')
    assert emelex("memory", "sessions", "list", "--json").lines[0]["events"] == 4
    assert emelex.database.read_bytes()[:16] == b"SQLite format 3\0"


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_poor_locale_stops_nothing(emelex: Program, talk: Talk, env: dict[str, str]) -> None:
    """JSON stays UTF-8, byte for byte; text is escaped where the locale cannot say it."""
    session = talk(1)
    assert emelex("memory", "sessions", "export", session.id, env=dict(env)).out == (
        emelex("memory", "sessions", "export", session.id).out
    )
    shown = emelex("memory", "sessions", "show", session.id, env=dict(env))
    assert (shown.code, shown.err) == (0, "")
    assert "naïve 😀" in shown.out or "na\\xefve \\U0001f600" in shown.out
    missing = emelex("memory", "knowledge", "show", "naïve", "--json", env=dict(env))
    assert missing.error["kind"] == "NotFound"


def test_a_bare_environment(emelex: Program, tmp_path: Path) -> None:
    """`env -i`: HOME comes from the password database, and nothing is created anywhere."""
    empty = dict.fromkeys(("HOME", "LANG", "EMELEX_HOME"))
    before = sorted(path.name for path in emelex.workspace.iterdir())
    assert emelex("paths", "--json", env=empty).json["home"].endswith("/.emelex")
    assert emelex(*STATUS, "--home", tmp_path / "none", env=empty).code == 0
    assert emelex("paths", "--json", env={"HOME": "", "EMELEX_HOME": ""}).json["home"].endswith("/.emelex")
    assert sorted(path.name for path in emelex.workspace.iterdir()) == before


def test_a_home_that_can_be_none(emelex: Program) -> None:
    """HOME=/dev/null is refused in one line: it is not an empty Home."""
    result = emelex(*STATUS, "--json", env={"HOME": "/dev/null", "EMELEX_HOME": None})
    assert (result.code, result.error["kind"]) == (6, "Refused")
    assert "/dev/null" in result.error["message"]


def test_a_removed_current_directory(emelex: Program, talk: Talk) -> None:
    """What needs no workspace works; what needs one says so, and `-C` helps."""
    session = talk(1)
    gone = emelex.workspace.parent / "gone"
    for command, code in (
        ("memory status", 0),
        ("memory sessions list --all", 0),
        (f"memory sessions show {session.id} --all", 0),
        ("memory sessions list", 1),
        (f"memory sessions list -C {emelex.workspace}", 0),
        ("config show", 0),
        ("doctor", 0),
    ):
        gone.mkdir()
        result = _shell(emelex, f'cd {gone} && rmdir {gone} && "$@" {command}')
        assert result.returncode == code, (command, result.stderr)
        assert "Traceback" not in result.stderr


def test_no_terminal_means_no_colour_and_no_bar(emelex: Program, transcript: Callable[..., Path]) -> None:
    """Piped output holds no escape sequence, with any TERM; NO_COLOR and TERM=dumb change nothing."""
    path = transcript()
    for env in ({"TERM": "xterm-256color"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}):
        result = emelex("import", "auto", path, env=dict(env))
        assert result.code == 0
        assert "\x1b" not in result.out + result.err


@pytest.mark.parametrize(("term", "moves"), [("xterm-256color", True), ("dumb", False), ("", False)])
def test_a_bar_is_shown_where_it_can_move(
    emelex: Program, transcript: Callable[..., Path], term: str, moves: bool
) -> None:
    """On a terminal that can; stdout stays data."""
    controller, terminal = os.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, "import", "auto", str(transcript()), "--json"],
            cwd=emelex.workspace,
            env=emelex.env({"TERM": term}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
            timeout=60,
        )
        os.write(terminal, b"END")
        shown = os.read(controller, 65_536)
    finally:
        os.close(controller)
        os.close(terminal)
    assert (done.returncode, "\x1b" in done.stdout) == (0, False)
    assert (b"\x1b[" in shown) == moves, shown


def test_the_executables_are_the_same_program(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """bin/emelex of a checkout, also through a link and from elsewhere, and the installed script."""
    talk(1)
    command = ("memory", "sessions", "list")
    expected = emelex(*command).out
    checkout = Path(__file__).resolve().parents[2] / "bin" / "emelex"
    link = tmp_path / "emelex"
    link.symlink_to(checkout)
    installed = Path(PROGRAM[0]).parent / "emelex"
    for program in (checkout, link, installed):
        if program != installed and not (checkout.parents[1] / ".venv").exists():
            # A checkout without its own interpreter says what to do.
            assert "make setup" in emelex(*command, program=(str(program),)).err
            continue
        assert emelex(*command, program=(str(program),)).out == expected


def test_a_workspace_cannot_shadow_a_module(emelex: Program, talk: Talk) -> None:
    """A `typer.py` or `apsw.py` in the current directory is not imported."""
    talk(1)
    for name in ("typer", "apsw", "emelex_core", "json"):
        (emelex.workspace / f"{name}.py").write_text("raise SystemExit('hijacked')\n", "utf-8")
    for program in (PROGRAM, (str(Path(PROGRAM[0]).parent / "emelex"),)):
        assert emelex("memory", "jobs", "list", "--limit", "3", program=program).code == 0
