"""`memory assets list`, `export` and `verify` (behaviours 102 to 107, 149, 160)."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import AssetRef, MemoryStore, Session
from pictures import picture
from program import Program

Show = Callable[..., Session]


@pytest.fixture
def refs(store: MemoryStore) -> list[AssetRef]:
    """Three stored pictures."""
    return [store.store_asset(picture(seed)) for seed in range(3)]


def test_assets_are_listed_page_by_page(emelex: Program, refs: list[AssetRef], show: Show) -> None:
    """The newest first; the cursor of the last line goes on; a table for people (149)."""
    show(refs[0])
    first = emelex("memory", "assets", "list", "--limit", "2", "--json").lines
    rest = emelex("memory", "assets", "list", "--limit", "2", "--cursor", first[-1]["cursor"], "--json").lines
    found = {line["sha256"]: line for line in (*first, *rest)}
    assert [len(first), len(rest), set(found)] == [2, 1, {ref.sha256 for ref in refs}]
    assert [found[ref.sha256]["references"] for ref in refs] == [1, 0, 0]
    assert {(line["size"], line["media_type"]) for line in found.values()} == {(64, "image/png")}
    table = emelex("memory", "assets", "list", "--limit", "2")
    assert "image/png" in table.out
    assert "--cursor" in table.err


def test_a_sessions_assets_are_listed_in_its_order(emelex: Program, refs: list[AssetRef], show: Show) -> None:
    """By event and place; an asset that is named twice stands twice."""
    session = show(refs[2], refs[0], refs[2])
    named = ("memory", "assets", "list", "--session", session.id[:8], "--json")
    lines = emelex(*named).lines
    assert [line["sha256"] for line in lines] == [ref.sha256 for ref in (refs[2], refs[0], refs[2])]
    assert [(line["sequence"], line["ordinal"]) for line in lines] == [(1, 0), (1, 1), (1, 2)]
    pages = [emelex(*named, "--limit", "1", "--cursor", cursor).lines for cursor in ("0.0", lines[0]["cursor"])]
    assert [page[0]["ordinal"] for page in pages] == [0, 1]
    assert refs[0].sha256[:16] in emelex(*named[:-1]).out
    assert emelex("memory", "assets", "list", "--session", "00000000").code == 3


@pytest.mark.parametrize("cursor", ["", "x", "1.2", f"{'9' * 40}.{'a' * 64}"])
def test_a_foreign_cursor_is_a_usage_error(emelex: Program, refs: list[AssetRef], cursor: str) -> None:
    """Also one of another list."""
    result = emelex("memory", "assets", "list", "--cursor", cursor, "--json")
    assert (result.code, result.error["kind"]) == (2, "UsageError")


def test_an_asset_is_copied_out_whole_and_private(emelex: Program, refs: list[AssetRef], tmp_path: Path) -> None:
    """The bytes that were stored, mode 0600, by a prefix of the digest; never over a file (160)."""
    target = tmp_path / "a.png"
    export = ("memory", "assets", "export", refs[1].sha256[:8].upper(), "--output", target, "--json")
    assert emelex(*export).json == {
        "type": "exported_asset",
        "sha256": refs[1].sha256,
        "size": 64,
        "path": str(target),
    }
    assert target.read_bytes() == picture(1)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.write_bytes(b"mine")
    again = emelex(*export)
    assert (again.code, again.error["kind"]) == (6, "Refused")
    assert target.read_bytes() == b"mine"


def test_what_cannot_be_copied_is_named(
    emelex: Program, refs: list[AssetRef], store: MemoryStore, tmp_path: Path
) -> None:
    """Unknown, misspelt, into nowhere, damaged, and without a target: one error each, and no file."""
    for sha256, target, code in (
        ("0" * 64, "x.png", 3),
        ("short", "x.png", 2),
        (refs[0].sha256, "nowhere/x.png", 3),
        (refs[0].sha256, "", 1),
    ):
        assert emelex("memory", "assets", "export", sha256, "-o", target).code == code, (sha256, target)
    assert emelex("memory", "assets", "export", refs[0].sha256).code == 2
    (store.assets_directory / refs[0].sha256).write_bytes(picture(9))
    damaged = emelex("memory", "assets", "export", refs[0].sha256, "-o", "x.png", "--json")
    assert (damaged.code, damaged.error["kind"]) == (7, "Corrupt")
    assert list(emelex.workspace.iterdir()) == []


def test_verify_finds_what_is_missing_and_what_changed(
    emelex: Program, refs: list[AssetRef], store: MemoryStore
) -> None:
    """Exit 7, each by name; the sound one is counted, and nothing is repaired."""
    sound = emelex("memory", "assets", "verify")
    assert (sound.code, sound.out.split(":")[0]) == (0, "sound")
    (store.assets_directory / refs[0].sha256).unlink()
    (store.assets_directory / refs[1].sha256).write_bytes(picture(9))
    found = emelex("memory", "assets", "verify", "--json")
    assert (found.code, found.json["assets"], found.json["problem_count"]) == (7, 3, 2)
    assert {problem["name"] for problem in found.json["problems"]} == {refs[0].sha256, refs[1].sha256}
    told = emelex("memory", "assets", "verify")
    assert told.code == 7
    assert f"{refs[0].sha256}: it has no file" in told.out


def test_looking_creates_nothing(emelex: Program) -> None:
    """A Home in which nothing was ever stored has no assets, which is no error; naming one is."""
    assert emelex("memory", "assets", "list", "--json").out == ""
    assert emelex("memory", "assets", "verify").code == 0
    assert emelex("memory", "assets", "export", "0" * 64, "-o", "x").code == 3
    assert not emelex.home.exists()
