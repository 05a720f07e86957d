"""Reading, finding and writing files: what the tools answer, and what they leave on the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from emelex_core.agent.ports import CancelToken
from emelex_core.agent.tools import writing
from emelex_core.agent.tools.finding import FindFiles, Grep
from emelex_core.agent.tools.globs import Glob
from emelex_core.agent.tools.reading import ListDirectory, ReadFile
from emelex_core.agent.tools.rooted import Root
from emelex_core.agent.tools.secrets import is_secret, is_secret_variable
from emelex_core.agent.tools.walk import DEPTH_MAX, Walk
from emelex_core.agent.tools.writing import EditFile, WriteFile
from emelex_core.errors import Storage, ToolError
from toolcalls import call


def test_read_a_whole_file(root: Root, work: Path) -> None:
    """Its text and nothing else, line ends as they are (K10)."""
    (work / "a.txt").write_bytes(b"one\r\ntwo\rthree\nfour")
    assert call(ReadFile(root), path="a.txt").text == "one\r\ntwo\rthree\nfour"


def test_read_part_of_a_file(root: Root, work: Path) -> None:
    """Lines are counted from 1, and the answer says where to read on."""
    (work / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 100_001)), "utf-8")
    outcome = call(ReadFile(root), path="a.txt", first_line=70_000, lines=2)
    assert outcome.text == (
        "line 70000\nline 70001\n\n[the file has 1088895 bytes and goes on; read on with first_line 70002]"
    )
    last = call(ReadFile(root), path="a.txt", first_line=100_000, lines=2)
    assert last.text == "line 100000\n"
    assert "no text is there" in call(ReadFile(root), path="a.txt", first_line=100_001).text


def test_read_what_does_not_fit(root: Root, work: Path) -> None:
    """Cut within a character of several bytes nothing is broken; a line that never fits is passed over."""
    (work / "a.txt").write_text("é" * 2_000 + "\nnext\n", "utf-8")
    outcome = call(ReadFile(root), path="a.txt", output_bytes_max=1_013)
    assert outcome.text.startswith("é" * 250 + "\n[")
    assert "\ufffd" not in outcome.text
    assert "line 1 is longer than what fits" in outcome.text
    assert "read on with first_line 2]" in outcome.text


def test_read_what_is_no_utf8_and_what_is_no_text(root: Root, work: Path) -> None:
    """Replaced and said, or refused; an empty file is said to be empty."""
    (work / "latin").write_bytes(b"caf\xe9\n")
    assert call(ReadFile(root), path="latin").text == "caf\ufffd\n\n[bytes that are no UTF-8 are shown as \ufffd]"
    (work / "cut").write_bytes(b"ends in \xf0\x9f")
    assert "no UTF-8" in call(ReadFile(root), path="cut").text
    (work / "mark").write_text("\ufffd", "utf-8")
    assert call(ReadFile(root), path="mark").text == "\ufffd"
    (work / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ToolError, match="no text"):
        call(ReadFile(root), path="binary")
    (work / "empty").write_bytes(b"")
    assert call(ReadFile(root), path="empty").text == "[no text is there]"


def test_list_a_directory(root: Root, work: Path) -> None:
    """Sorted, with kinds, and names made visible."""
    (work / "b.txt").write_text("12345", "utf-8")
    (work / "a").mkdir()
    (work / "c").symlink_to("b.txt")
    os.mkfifo(work / "d")
    (work / "odd\nname\x1b").write_text("", "utf-8")
    Path(os.fsdecode(os.fsencode(work) + b"/z\xff")).write_text("", "utf-8")
    assert call(ListDirectory(root)).text.split("\n") == [
        "a/",
        "b.txt (5 bytes)",
        "c (symbolic link)",
        "d (no regular file)",
        "odd␊name␛ (0 bytes)",
        "z\ufffd (0 bytes)",
    ]
    assert call(ListDirectory(root), path="a").text == "[it is empty]"
    with pytest.raises(ToolError):
        call(ListDirectory(root), path="b.txt")


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/down/a.py", True),
        ("*.py", "a.pyc", False),
        ("/a.py", "deep/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test_*", "a/b/test_c", True),
        ("src/**", "src/a/b", True),
        ("**", "a", True),
        ("[ab]?.txt", "bz.txt", True),
        ("a*b*c*d*e*f*g*h*", "a" * 200, False),
    ],
)
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    """Stars stay within a name, two of them go through directories."""
    assert Glob(pattern).matches(tuple(path.split("/"))) is fits


@pytest.mark.parametrize("pattern", ["../*", "", "/", "a\0", "/".join("a" * 70)])
def test_patterns_that_are_none(pattern: str) -> None:
    """They are refused in words."""
    with pytest.raises(ToolError):
        Glob(pattern)


def test_many_stars_take_no_time() -> None:
    """Two hundred names against sixty `**` is a table, not a tree of tries."""
    assert not Glob("/".join(["**", "a"] * 30) + "/end").matches(("a",) * 200)


def test_find_files(root: Root, work: Path) -> None:
    """Sorted paths below the start; what only machines read is left out, and said."""
    for name in ("b/x.py", "a/y.py", "a/z.txt", ".git/h.py", "node_modules/m/i.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("", "utf-8")
    assert call(FindFiles(root), pattern="*.py").text == "a/y.py\nb/x.py\n[not looked into: .git, node_modules]"
    assert call(FindFiles(root), pattern="*.py", path="b").text == "x.py"
    assert call(FindFiles(root), pattern="*.rs", path="a").text == "[no file fits]"


def test_walking_is_bounded(root: Root, work: Path) -> None:
    """In depth, in entries, and by the token; each is said."""
    deep = work
    for _ in range(DEPTH_MAX + 3):
        deep = deep / "d"
    deep.mkdir(parents=True)
    walk = Walk(CancelToken())
    assert len(list(walk.entries(root.descriptor()))) == DEPTH_MAX
    assert walk.notes == [f"1 directories lie deeper than {DEPTH_MAX}"]
    walk = Walk(CancelToken(), entries_max=5)
    assert len(list(walk.entries(root.descriptor()))) == 5
    assert walk.notes == ["stopped early: there are too many entries"]
    walk = Walk(CancelToken(), seconds_max=-1)
    assert list(walk.entries(root.descriptor())) == []
    assert walk.notes == ["stopped early: it took too long"]


def test_grep_for_words(root: Root, work: Path) -> None:
    """Literally, unless a regular expression is asked for; with place and number."""
    (work / "src").mkdir()
    (work / "src/a.py").write_text("x = a.b\ny = aXb\r\nA.B\n", "utf-8")
    (work / "b.txt").write_text("a.b", "utf-8")
    assert call(Grep(root), pattern="a.b").text == "b.txt:1: a.b\nsrc/a.py:1: x = a.b\n"
    assert call(Grep(root), pattern="a.b", files="*.py").text == "src/a.py:1: x = a.b\n"
    assert call(Grep(root), pattern="a.b", regex=True, path="src").text == (
        "src/a.py:1: x = a.b\nsrc/a.py:2: y = aXb\n"
    )
    assert call(Grep(root), pattern="a.b", ignore_case=True, path="src/a.py").text == (
        "src/a.py:1: x = a.b\nsrc/a.py:3: A.B\n"
    )
    assert call(Grep(root), pattern="nothing like it").text == "[no line fits]\n"


def test_grep_leaves_out_what_it_should(root: Root, work: Path) -> None:
    """Secrets, binaries, links and special files; how many is said, and nothing of them is shown."""
    (work / ".env").write_text("needle=1", "utf-8")
    (work / "binary").write_bytes(b"\0needle")
    (work / "link").symlink_to(".env")
    os.mkfifo(work / "fifo")
    (work / "a.txt").write_text("needle\n" * 600 + "n" * 10 + "needle" + "x" * 1_000, "utf-8")
    text = call(Grep(root), pattern="needle").text
    assert text.count("a.txt:") == 500
    assert "more than 500 lines fit" in text
    few = call(Grep(root), pattern="nnnnnneedle").text
    assert "… [cut]" in few
    assert len(few) < 700
    assert "1 files left out: they are likely to hold secrets; 1 files left out: they are no text" in few
    assert "=1" not in text + few
    assert call(Grep(root), approved=True, pattern="needle", path=".env").text == ".env:1: needle=1\n"


def test_grep_cannot_be_held_up_by_its_pattern(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that backtracks for years is ended with its process; one that is none is told."""
    (work / "a.txt").write_text("a" * 60 + "!", "utf-8")
    monkeypatch.setattr("emelex_core.agent.tools.finding.GREP_SECONDS_MAX", 1.0)
    with pytest.raises(ToolError, match="did not end within 1 seconds"):
        call(Grep(root), pattern="(a+)+$", regex=True)
    with pytest.raises(ToolError, match="no regular expression"):
        call(Grep(root), pattern="(a", regex=True)


def test_write_a_new_file(root: Root, work: Path) -> None:
    """The mode is what a new file gets here; bytes are the text's; nothing else is left."""
    mask = os.umask(0o027)
    try:
        outcome = call(WriteFile(root), path="new/deep/a.txt", text="naïve 😀\r\n\0end")
    finally:
        os.umask(mask)
    assert outcome.text == "Made new/deep/a.txt, 17 bytes."
    assert (work / "new/deep/a.txt").read_bytes() == "naïve 😀\r\n\0end".encode()
    assert stat.S_IMODE((work / "new/deep/a.txt").stat().st_mode) == 0o640
    assert [entry.name for entry in (work / "new/deep").iterdir()] == ["a.txt"]


def test_replace_a_file(root: Root, work: Path) -> None:
    """Its mode is kept, the old one is replaced in one step, and other names keep the old text."""
    path = work / "run.sh"
    path.write_text("old", "utf-8")
    path.chmod(0o751)
    (work / "other").hardlink_to(path)
    before = path.stat().st_ino
    outcome = call(WriteFile(root), approved=True, path="run.sh", text="new")
    assert outcome.text == "Replaced run.sh, 3 bytes. It had 1 other name, which keeps the old text."
    assert path.read_text("utf-8") == "new"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert (work / "other").read_text("utf-8") == "old"


@pytest.mark.parametrize("step", ["fsync", "rename", "fchmod"])
def test_a_write_that_fails_leaves_the_old_file(
    root: Root, work: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And no temporary one."""
    (work / "a.txt").write_text("old", "utf-8")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, step, full)
    with pytest.raises(ToolError, match="no space is left"):
        call(WriteFile(root), path="a.txt", text="new")
    monkeypatch.undo()
    assert (work / "a.txt").read_text("utf-8") == "old"
    assert [entry.name for entry in work.iterdir()] == ["a.txt"]


def test_a_file_that_appears_meanwhile_is_not_replaced(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be new must still be new when it gets its name."""
    original = os.fsync

    def somebody_writes(descriptor: int) -> None:
        (work / "a.txt").write_text("theirs", "utf-8")
        original(descriptor)

    monkeypatch.setattr(writing.os, "fsync", somebody_writes)
    with pytest.raises(ToolError, match="exists already"):
        call(WriteFile(root), path="a.txt", text="ours")
    assert (work / "a.txt").read_text("utf-8") == "theirs"
    assert [entry.name for entry in work.iterdir()] == ["a.txt"]


def test_a_file_system_without_hard_links(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a rename gives the name."""

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(writing.os, "link", refused)
    call(WriteFile(root), path="a.txt", text="ours")
    assert [(entry.name, entry.read_text("utf-8")) for entry in work.iterdir()] == [("a.txt", "ours")]


def test_edit_a_passage(root: Root, work: Path) -> None:
    """Exactly one, or every one when asked; bytes around it stay as they are, UTF-8 or not."""
    path = work / "a.txt"
    path.write_bytes(b"\xff one\r\ntwo two\n")
    path.chmod(0o640)
    assert call(EditFile(root), path="a.txt", old="one\r\n", new="1\n").text == "Edited a.txt, now 12 bytes."
    assert path.read_bytes() == b"\xff 1\ntwo two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    for arguments, words in (
        ({"old": "three", "new": "3"}, "does not stand in it"),
        ({"old": "two", "new": "2"}, "2 times"),
        ({"old": "1", "new": "1"}, "the new text is the old one"),
    ):
        with pytest.raises(ToolError, match=words):
            call(EditFile(root), path="a.txt", **arguments)
    call(EditFile(root), path="a.txt", old="two", new="2", everywhere=True)
    assert path.read_bytes() == b"\xff 1\n2 2\n"


def test_an_edit_of_a_file_that_changes_meanwhile(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of theirs is lost: the edit is refused."""
    path = work / "a.txt"
    path.write_text("old", "utf-8")
    original = os.fsync

    def somebody_writes(descriptor: int) -> None:
        path.write_text("theirs", "utf-8")
        original(descriptor)

    monkeypatch.setattr(writing.os, "fsync", somebody_writes)
    with pytest.raises(ToolError, match="changed by somebody else"):
        call(EditFile(root), path="a.txt", old="old", new="new")
    assert path.read_text("utf-8") == "theirs"


def test_an_edit_that_would_grow_too_large(root: Root, work: Path) -> None:
    """Counted before it is made."""
    (work / "a.txt").write_text("a" * 100_000, "utf-8")
    with pytest.raises(ToolError, match="would have more than"):
        call(EditFile(root), path="a.txt", old="a", new="b" * 100_000, everywhere=True)
    (work / "large").write_bytes(b"a" * (writing.EDIT_BYTES_MAX + 1))
    with pytest.raises(ToolError, match="too much to edit"):
        call(EditFile(root), path="large", old="a", new="b")


def test_previews_show_what_would_change(root: Root) -> None:
    """The person who approves sees path, size and text (test_showing.py)."""
    written = WriteFile(root).preview({"path": "a", "text": "é"})
    assert written.startswith("a becomes: 1 line, 2 bytes, SHA-256 ")
    assert written.endswith("\n1 | é")
    edited = EditFile(root).preview({"path": "a", "old": "x", "new": "y", "everywhere": True})
    assert edited.startswith("in a, every passage of 1 line, 1 bytes, SHA-256 ")
    assert edited.endswith("\n+1 | y")
    assert "git" in (WriteFile(root).caution({"path": ".git/hooks/pre-commit", "text": ""}) or "")


def test_a_root_must_be_a_directory(work: Path) -> None:
    """Anything else is refused when it is opened; a link to one is the one that it leads to."""
    (work / "file").write_text("", "utf-8")
    for name in ("file", "none"):
        with pytest.raises(Storage):
            Root(work / name)
    (work / "sub").mkdir()
    (work / "sub" / "x").write_text("here", "utf-8")
    (work / "link").symlink_to("sub")
    with Root(work / "link") as opened:
        assert call(ReadFile(opened), path=str(work / "link" / "x")).text == "here"
        assert call(ReadFile(opened), path=str(work / "sub" / "x")).text == "here"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (".env", True),
        (".ENV.production", True),
        (".env.sample", False),
        ("environment", False),
        ("id_ed25519", True),
        ("id_ed25519.pub", False),
        ("key.py", False),
        ("tls.KEY", True),
        ("app-secrets.yaml", True),
        ("aws_credentials", True),
        ("service-account-prod.json", True),
        (".bash_history", True),
        ("terraform.tfstate", True),
        ("monkey.txt", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    """By the name alone, whatever its case (187)."""
    assert is_secret(("src", name)) is secret
    assert is_secret((".ssh", "known", "x"))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("github_token", True),
        ("DB_PASSWORD", True),
        ("PATH", False),
        ("GIT_AUTHOR_NAME", False),
    ],
)
def test_names_of_secret_variables(name: str, secret: bool) -> None:
    """What a command does not get to see."""
    assert is_secret_variable(name) is secret
