"""`emelex memory export`, `check`, `backup`, `restore`, `sessions rebind` as programs (behaviours 158 to 161, 180)."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from life import Life
from program import Program, Result
from stores import edit


class Archive:
    """The program with the commands of the archive."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __call__(self, *words: str | Path, **options: Any) -> Result:
        return self.program("memory", *words, **options)


@pytest.fixture
def memory(life: Life, home: Path, workspace: Path) -> Archive:
    return Archive(Program(home=home, workspace=workspace))


def test_an_export_goes_to_stdout_or_to_a_new_file(memory: Archive, tmp_path: Path) -> None:
    """160 and 161: the same document, JSON with and without --json; the file is private and never replaced."""
    shown = memory("export")
    assert shown.code == 0, shown.err
    assert set(shown.json) == {"schema_version", "workspace", "sessions", "knowledge"}
    target = tmp_path / "all.json"
    written = memory("export", "--all", "--output", target, "--json")
    assert written.json == {"type": "exported", "workspace": None, "path": str(target)}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    assert len(json.loads(before)["sessions"]) == 2
    again = memory("export", "--all", "-o", target, "--json")
    assert (again.code, again.error["kind"]) == (6, "Refused")
    assert target.read_bytes() == before


def test_a_check_says_what_it_looked_at_and_exits_with_seven_on_damage(
    memory: Archive, path: Path, native: str
) -> None:
    """Exit codes: 0 for a sound store, 7 for a damaged one; the finding names Session and event."""
    sound = memory("check")
    assert (sound.code, sound.out.split(":")[0]) == (0, "sound")
    edit(path, "UPDATE events SET created_at = 1 WHERE session_id = ? AND sequence = 2", (native,))
    damaged = memory("check", "--json")
    assert damaged.code == 7
    *findings, last = damaged.lines
    assert [(found["session"], found["sequence"], found["weight"]) for found in findings] == [(native, 2, "damage")]
    assert (last["type"], last["sound"], last["damage"]) == ("check_complete", False, 1)
    plain = memory("check")
    assert plain.code == 7
    assert f"Session {native} event 2" in plain.out


def test_a_check_repairs_only_when_asked(memory: Archive, path: Path) -> None:
    """What other values decide is set right by --repair, and left alone without."""
    edit(path, "UPDATE sessions SET event_bytes = 1")
    assert memory("check").code == 7
    assert memory("check").code == 7
    assert memory("check", "--repair").code == 0
    assert memory("check").code == 0


def test_a_backup_is_made_read_in_place_and_restored(memory: Archive, tmp_path: Path, life: Life) -> None:
    """From one Home to another through the command line alone."""
    made = memory("backup", tmp_path / "backup", "--json")
    assert made.code == 0, made.err
    assert (made.json["type"], made.json["sessions"], made.json["check"]["sound"]) == ("backup_complete", 2, True)
    assert Archive(replace(memory.program, home=tmp_path / "backup"))("check").code == 0
    assert memory("backup", tmp_path / "backup", "--json").error["kind"] == "Invalid"
    assert memory("restore", tmp_path / "backup", "--json").error["kind"] == "Refused"
    fresh = Archive(replace(memory.program, home=tmp_path / "fresh"))
    *workspaces, last = fresh("restore", tmp_path / "backup", "--json").lines
    assert [(found["type"], found["needs_rebind"]) for found in workspaces] == [("restored_workspace", False)]
    assert (last["type"], last["sessions"], last["to_rebind"]) == ("restore_complete", 2, 0)
    assert len(fresh("export").json["sessions"]) == len(life.record.texts)


def test_a_replaced_directory_is_told_and_bound_anew(
    memory: Archive, native: str, workspace: Path, tmp_path: Path
) -> None:
    """180 and K9: lists refuse with the command to run; it shows both identities; then everything is there."""
    workspace.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", workspace)
    shutil.rmtree(tmp_path / "old")
    for words in (("sessions", "list"), ("knowledge", "list"), ("export",)):
        refused = memory(*words, "--json")
        assert (refused.code, refused.error["kind"]) == (6, "WorkspaceMismatch"), words
        assert "rebind" in refused.error["hint"]
    shown = memory("sessions", "rebind", native[:8], "--dry-run", "--json").json
    assert shown["done"] is False
    assert shown["old"]["inode"] != shown["new"]["inode"] == workspace.stat().st_ino
    plain = memory("sessions", "rebind", native[:8])
    assert plain.code == 0, plain.err
    assert f"inode {shown['old']['inode']}" in plain.out
    assert f"inode {shown['new']['inode']}" in plain.out
    assert len(memory("sessions", "list", "--json").lines) == 2
    assert memory("sessions", "rebind", native[:8], "--json").error["kind"] == "Invalid"


def test_nothing_stored_is_not_found(tmp_path: Path, workspace: Path) -> None:
    """Exit 3, and nothing is made by looking."""
    memory = Archive(Program(home=tmp_path / "none", workspace=workspace))
    for words in (("export",), ("check",), ("check", "--repair"), ("backup", tmp_path / "backup")):
        assert memory(*words, "--json").code == 3, words
    assert memory("restore", tmp_path / "nothing", "--json").error["kind"] == "NotFound"
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "backup").exists()
