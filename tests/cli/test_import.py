"""`emelex import`: the shapes of the contract, and every bad input that it can be given (issue 2, "Bad input")."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from program import PROGRAM, Program

Transcript = Callable[..., Path]


def test_import_tells_each_session_and_the_totals(emelex: Program, transcript: Transcript) -> None:
    """One `import_session` a Session, then `import_complete`; the Session is there and waits for its distillation."""
    path = transcript(prompts=2)
    session, complete = emelex("import", "claude-code", path, "--json").lines
    assert session["type"] == "import_session"
    assert (session["source"], session["source_id"], session["already"]) == ("claude-code", path.stem, False)
    assert (session["turns"], session["events"], session["workspace"]) == (2, 4, str(emelex.workspace))
    assert (complete["type"], complete["files"], complete["sessions"], complete["new_sessions"]) == (
        "import_complete",
        1,
        1,
        1,
    )
    shown = emelex("memory", "sessions", "show", session["id"]).out
    assert "Prompt 2: never sort parcels by colour." in shown
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["id"], job["kind"]) == (session["distillation"], "distillation")


def test_importing_again_changes_nothing(emelex: Program, transcript: Transcript) -> None:
    """`already`, no new events, the same status; a file that grew adds what is new."""
    path = transcript(prompts=2)
    emelex("import", "auto", path)
    before = emelex("memory", "status", "--json").json
    session, complete = emelex("import", "auto", path, "--json").lines
    assert (session["already"], complete["already"], complete["events"]) == (True, 1, 0)
    after = emelex("memory", "status", "--json").json
    assert {**after, "queues": None} == {**before, "queues": None}
    transcript(prompts=3)
    grown = emelex("import", "auto", path, "--json").lines[0]
    assert (grown["already"], grown["turns"], grown["events"]) == (False, 1, 2)


def test_what_was_deleted_stays_away(emelex: Program, transcript: Transcript) -> None:
    """Behaviour 157: one line says so and what to do; nothing is queued, and `--again` brings it back."""
    path = transcript(prompts=2)
    first = emelex("import", "auto", path, "--json").lines[0]
    emelex("memory", "sessions", "delete", first["id"])
    transcript(prompts=3)
    told, complete = emelex("import", "auto", path, "--json").lines
    assert (told["removed"], told["id"], told["distillation"], complete["removed"]) == (True, None, None, 1)
    assert "import with --again" in emelex("import", "auto", path, "--dry-run").out
    assert emelex("memory", "jobs", "list", "--json").lines == []
    back = emelex("import", "auto", path, "--again", "--json").lines[0]
    assert (back["turns"], back["removed"]) == (3, False)
    assert emelex("import", "auto", path, "--json").lines[0]["already"] is True


def test_the_text_says_where_the_sessions_went(emelex: Program, transcript: Transcript, elsewhere: Path) -> None:
    """Counts carry their noun; a Session of another directory is found with what the last line says."""
    path = transcript(prompts=1)
    first = emelex("import", "auto", path, "-C", elsewhere).out
    assert "1 turn, 2 events" in first
    assert "1 file, 1 Session (1 new, 0 already here)" in first
    hint = f"1 Session of {elsewhere}; list with: emelex memory sessions list -C {elsewhere}"
    assert hint in first.splitlines()
    listed = emelex(*hint.partition("emelex ")[2].split(), "--json").lines
    assert [session["source_id"] for session in listed] == [path.stem]
    assert "list with" not in emelex("import", "auto", path, "--dry-run").out


def test_several_sessions_of_one_file(emelex: Program, transcript: Transcript) -> None:
    """A file that somebody put together: each Session is told, counted and stored by itself."""
    both = transcript("one").with_name("everything.jsonl")
    both.write_bytes(transcript("one").read_bytes() + transcript("two", prompts=1).read_bytes())
    *sessions, complete = emelex("import", "auto", both, "--json").lines
    told = [(session["source_id"], session["turns"], session["parent"]) for session in sessions]
    assert told == [("one", 2, None), ("two", 1, None)]
    assert (complete["files"], complete["sessions"], complete["new_sessions"]) == (1, 2, 2)
    titles = {session["title"] for session in sessions}
    assert titles == {"Prompt 1: never sort parcels by colour."}
    assert emelex("import", "auto", both, "--json").lines[-1]["events"] == 0


def test_from_a_directory_that_was_removed(emelex: Program, transcript: Transcript, elsewhere: Path) -> None:
    """Where the transcript's own directory is gone too, the error says what is missing and what to do."""
    path = transcript()
    path.write_bytes(path.read_bytes().replace(str(emelex.workspace).encode(), b"/nowhere/at/all"))
    gone = ("sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(elsewhere), *PROGRAM)
    result = emelex("import", "auto", path, "--json", program=gone, env={"PWD": None})
    assert result.code == 1
    assert "the current one cannot stand in for it" in result.error["message"]
    assert "-C" in result.error["hint"]


def test_a_dry_run_stores_nothing(emelex: Program, transcript: Transcript) -> None:
    """It reads and counts everything, and does not even make a Home."""
    session, complete = emelex("import", "auto", transcript(), "--dry-run", "--json").lines
    assert (session["id"], session["turns"], complete["dry_run"]) == (None, 2, True)
    assert not emelex.home.exists()


def test_no_distill_and_the_configuration(emelex: Program, transcript: Transcript) -> None:
    """Either leaves the queue empty."""
    emelex("import", "auto", transcript("one"), "--no-distill")
    emelex("import", "auto", transcript("two"), env={"EMELEX_DISTILLATION_ENABLED": "false"})
    assert emelex("memory", "sessions", "list", "--json").lines != []
    assert emelex("memory", "jobs", "list", "--json").lines == []


def test_directory_option_binds_the_sessions(emelex: Program, transcript: Transcript, elsewhere: Path) -> None:
    """`-C` names their workspace, before and after the command, and relative paths start there as in git."""
    path = transcript()
    relative = os.path.relpath(path, elsewhere)
    session = emelex("import", "auto", relative, "-C", elsewhere, "--json").lines[0]
    assert session["workspace"] == str(elsewhere)


def test_an_unknown_format_names_the_nearest(emelex: Program, transcript: Transcript) -> None:
    """And what there is."""
    result = emelex("import", "claude-cod", transcript(), "--json")
    assert result.code == 2
    assert "did you mean claude-code?" in result.error["hint"]


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def _foreign(path: Path) -> None:
    path.write_text('{"colour": "blue"}\n{"colour": "red"}\n', "utf-8")


def _prose(path: Path) -> None:
    path.write_text("Dear diary,\ntoday I weighed parcels.\n", "utf-8")


def _folder(path: Path) -> None:
    path.mkdir()


def _folder_without(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("no transcript", "utf-8")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: None, 3),
        (_empty, 1),
        (_binary, 1),
        (_foreign, 1),
        (_prose, 1),
        (_folder, 3),
        (_folder_without, 3),
        (_pipe, 1),
        (_loop, 1),
        (_dangling, 3),
    ],
    ids=[
        "missing",
        "empty",
        "binary",
        "foreign",
        "prose",
        "empty folder",
        "folder without",
        "pipe",
        "loop",
        "dangling",
    ],
)
def test_bad_input_is_one_clear_error(emelex: Program, tmp_path: Path, make: Callable[[Path], None], code: int) -> None:
    """What and where, the documented code, and state as before: not even a Home is made."""
    path = tmp_path / "given.jsonl"
    make(path)
    result = emelex("import", "auto", path, "--json")
    assert result.code == code, result.err
    assert str(path) in result.error["message"]
    assert result.out == ""
    assert not emelex.home.exists()
    text = emelex("import", "auto", path)
    assert (text.code, text.out) == (code, "")
    assert text.err.startswith("emelex: error: ")
    assert "Traceback" not in text.err


@pytest.mark.parametrize("name", ["", "nul\0byte"[:3] + "\n", "x" * 5_000])
def test_impossible_names_are_errors_too(emelex: Program, name: str) -> None:
    """An empty name, a line break, a name that no file can have."""
    result = emelex("import", "auto", name, "--json")
    assert result.code in (1, 2, 3)
    assert set(result.error) == {"kind", "message", "hint", "causes"}


def test_the_wrong_agent_is_named(emelex: Program, transcript: Transcript) -> None:
    """A Claude Code transcript is no Codex one."""
    result = emelex("import", "codex", transcript(), "--json")
    assert result.code == 1
    assert "claude-code" in result.error["message"]


def test_one_bad_file_leaves_the_others_alone(emelex: Program, transcript: Transcript) -> None:
    """In a folder a file that fails is told; what is no transcript is passed over."""
    good = transcript()
    (good.parent / "broken.jsonl").write_bytes(os.urandom(4_096))
    (good.parent / "diary.jsonl").write_text("no json\n", "utf-8")
    result = emelex("import", "auto", good.parent, "--json")
    assert result.code == 0, result.err
    assert [line["type"] for line in result.lines] == ["import_session", "import_complete"]


def test_torn_and_foreign_lines_are_counted(emelex: Program, transcript: Transcript) -> None:
    """They are skipped by name; what is whole is imported."""
    path = transcript()
    with path.open("ab") as file:
        file.write(b'\xff\xfe not text\n{"type": "user", "uuid": \n[1, 2]\n')
    session = emelex("import", "auto", path, "--json").lines[0]
    assert session["events"] == 4
    assert sum(session["defects"].values()) == 3


def test_paths_that_are_no_text_are_shown(emelex: Program, transcript: Transcript, tmp_path: Path) -> None:
    """A byte FF in a file name: imported, and the name is printed as valid UTF-8."""
    odd = tmp_path / os.fsdecode(b"odd-\xff-\x1b[31m.jsonl")
    shutil.copy(transcript(), odd)
    session = emelex("import", "auto", odd, "--json").lines[0]
    assert session["path"].endswith("odd-\\xff-\x1b[31m.jsonl")
    missing = emelex("import", "auto", tmp_path / os.fsdecode(b"\xff\x1b[31m"))
    assert missing.code == 3
    assert "\x1b" not in missing.err


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_between_turns(emelex: Program, transcript: Transcript, asked: signal.Signals) -> None:
    """Exit 130 or 143; importing again completes it, and nothing is there twice."""
    path = transcript(prompts=1)
    whole = path.read_bytes()
    # Noise keeps the reader busy for long enough; the signal comes when it has surely begun.
    noise = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{"trackedFileBackups":{}}}\n'
    with path.open("ab") as file:
        for _ in range(20):
            file.write(noise * 20_000)
        file.write(whole.replace(b"u-", b"v-").replace(b"a-", b"b-"))
    with emelex.started("import", "auto", path, "--json") as process:
        while not emelex.database.exists():
            assert process.poll() is None, "it ended before it made a database"
        process.send_signal(asked)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + asked, (out, err)
    assert "Traceback" not in err
    session = emelex("import", "auto", path, "--json").lines[0]
    assert session["id"] is not None
    assert emelex("import", "auto", path, "--json").lines[0]["already"]
