"""Global options, help, and usage errors (contract, "Commands" and "Exit codes")."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_cli.call import Globals, Run, take_globals
from emelex_cli.grammar import parse
from emelex_cli.line import SHORTCUTS, _shortcut
from emelex_core.errors import UsageError
from program import Program


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("memory status", Globals(), "memory status"),
        ("--json memory status", Globals(json=True), "memory status"),
        ("memory --json status --home /h", Globals(json=True, home="/h"), "memory status"),
        ("memory status --home=/h -C /w", Globals(home="/h", directory="/w"), "memory status"),
        ("-C/w memory status", Globals(directory="/w"), "memory status"),
        ("-C a memory -C b status --directory=c", Globals(directory="a/b/c"), "memory status"),
        ("-C a memory status -C /b", Globals(directory="/b"), "memory status"),
        ("import auto -- --json -C x", Globals(), "import auto -- --json -C x"),
        ("memory work --max-jobs 3 --json", Globals(json=True), "memory work --max-jobs 3"),
        ("--home= memory status", Globals(home=""), "memory status"),
    ],
)
def test_global_options_stand_anywhere(words: str, options: Globals, rest: str) -> None:
    """Before and after commands; several `-C` go on from each other, as in git."""
    assert take_globals(words.split()) == (options, rest.split())


@pytest.mark.parametrize("words", ["memory status --home", "-C", "memory --directory"])
def test_a_global_option_needs_its_value(words: str) -> None:
    """A usage error names it."""
    with pytest.raises(UsageError, match="needs a path"):
        take_globals(words.split())


@pytest.mark.parametrize("words", SHORTCUTS, ids=" ".join)
def test_a_shortcut_leads_where_the_grammar_does(words: tuple[str, ...]) -> None:
    """Both give the same function, with the same options: the parser is left out, not replaced."""
    short, parsed = _shortcut(list(words)), parse(list(words))
    assert short is not None
    assert not isinstance(parsed, int)
    assert _defaults(short) == _defaults(parsed)


def _defaults(run: Run) -> tuple[object, dict[str, object]]:
    function = getattr(run, "func", run)
    given: dict[str, object] = dict(getattr(run, "keywords", {}))
    return function, {**(function.__kwdefaults__ or {}), **given}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "emelex needs a command"),
        (["memory"], "emelex memory needs a command"),
        (["memory", "sessions"], "emelex memory sessions needs a command"),
        (["memory", "statu"], "Did you mean 'status'?"),
        (["memory", "status", "--jsn"], "No such option"),
        (["memory", "status", "surplus"], "surplus"),
        (["memory status"], "No such command"),
        (["memory", "sessions", "show"], "SESSION"),
        (["import", "auto"], "PATH"),
        (["", ""], "No such command"),
    ],
)
def test_usage_errors_are_one_error(emelex: Program, words: list[str], message: str) -> None:
    """Exit 2, one line and a hint; one object with `--json`, wherever it stands; nothing on stdout."""
    text = emelex(*words)
    assert (text.code, text.out) == (2, "")
    assert message in text.err
    assert [line.split(":")[0] for line in text.err.splitlines()] == ["emelex", "hint"]
    as_json = emelex("--json", *words)
    assert (as_json.code, as_json.out, as_json.error["kind"]) == (2, "", "UsageError")
    assert message in as_json.error["message"]
    assert as_json.error["hint"].endswith("--help")


def test_help_is_plain_text(emelex: Program) -> None:
    """On stdout, exit 0, no escape sequence, the global options in it."""
    for words in (["--help"], ["memory", "--help"], ["memory", "work", "--help"]):
        result = emelex(*words, env={"TERM": "xterm-256color", "FORCE_COLOR": "1"})
        assert (result.code, result.err) == (0, "")
        assert "--json" in result.out
        assert "\x1b" not in result.out


def test_version(emelex: Program) -> None:
    """The release and what it runs on, also with another option beside it."""
    assert emelex("--version").out.startswith("emelex 0.")
    assert set(emelex("--version", "--json").json) == {"emelex", "python", "sqlite"}


def test_the_home_option_wins(emelex: Program, tmp_path: Path) -> None:
    """Over EMELEX_HOME; an empty one is an error, an empty variable is unset."""
    assert emelex("paths", "--home", tmp_path / "x", "--json").json["home"] == str(tmp_path / "x")
    assert emelex("paths", "--home", "", "--json").error["kind"] == "Invalid"
    assert emelex("paths", "--json", env={"EMELEX_HOME": ""}).json["home"] == str(tmp_path / ".emelex")


def test_a_missing_directory_is_named(emelex: Program, tmp_path: Path) -> None:
    """By what needs it."""
    from emelex_core import MemoryStore

    MemoryStore.open(emelex.home, create=True).close()
    missing = tmp_path / "missing"
    result = emelex("-C", missing, "memory", "sessions", "list", "--json")
    assert (result.code, result.error["kind"]) == (1, "Invalid")
    assert str(missing) in result.error["message"]
    assert emelex("-C", "", "memory", "sessions", "list").code == 1


def test_an_internal_error_shows_no_traceback(emelex: Program) -> None:
    """A fault of ours is one error, exit 1; a variable brings the traceback for a bug report."""
    code = (
        "import sys, emelex_cli.status_cmd as s\n"
        "def broken(call): raise KeyError('\\x1b[31mboom')\n"
        "s.status = broken\n"
        "from emelex_cli.app import main\n"
        "sys.exit(main(['memory', 'status', *sys.argv[1:]]))\n"
    )
    from program import PROGRAM

    program = (PROGRAM[0], "-P", "-c", code)
    text = emelex(program=program)
    assert (text.code, text.out) == (1, "")
    assert text.err.startswith("emelex: error: internal error: KeyError")
    assert "Traceback" not in text.err
    assert "\x1b" not in text.err
    as_json = emelex("--json", program=program)
    assert (as_json.error["kind"], len(as_json.error["causes"])) == ("InternalError", 1)
    assert "Traceback" in emelex(program=program, env={"EMELEX_DEBUG": "1"}).err
