"""The tree itself: source roots that are no packages, guarded floors, the papers of a house."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.house import tree

ADR_SECTIONS = ("## Context", "## Decision", "## Consequences", "## What would change our mind")


@pytest.mark.parametrize("folder", tree.SOURCE_ROOTS)
def test_source_roots_are_not_packages(folder: str) -> None:
    """A package named `queue` would shadow the standard library's and break concurrent.futures (house.md, must)."""
    inner = tree.ROOT / folder / "__init__.py"
    assert not inner.exists(), f"delete {inner}: {folder}/ is a source root; its packages carry their own __init__.py"


def test_the_standard_library_keeps_its_queue() -> None:
    """Even an interpreter started in the repository, with the current folder on its path, gets the real `queue`."""
    code = (
        "import queue, concurrent.futures as f; assert queue.SimpleQueue; f.ThreadPoolExecutor(1).submit(int).result()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, check=True)


def test_every_package_is_a_floor() -> None:
    """The wheel, import-linter and check-wheel-contents speak of the same four packages, all typed."""
    names = {package.name for package in tree.packages()}
    tools = tree.project()["tool"]
    contracts = {contract["id"]: contract for contract in tools["importlinter"]["contracts"]}
    assert set(tools["importlinter"]["root_packages"]) == names
    assert set(contracts["floors"]["layers"]) == names
    assert set(tools["check-wheel-contents"]["toplevel"]) == names
    assert all((package / "py.typed").is_file() for package in tree.packages())


def test_the_rooms_of_a_floor_are_listed_exhaustively() -> None:
    """A contract about the inside of a package refuses rooms that it does not know."""
    contracts = tree.project()["tool"]["importlinter"]["contracts"]
    inside = [contract for contract in contracts if "containers" in contract]
    assert {container for contract in inside for container in contract["containers"]} >= {"emelex_core"}
    assert all(contract.get("exhaustive") is True for contract in inside)


@pytest.mark.parametrize("paper", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"])
def test_the_papers_of_the_house_are_written(paper: str) -> None:
    """None is missing, none is a stub."""
    path = tree.ROOT / paper
    assert path.is_file(), f"{paper} is missing"
    assert len(path.read_text("utf-8")) > 200, f"{paper} says nothing yet"


def test_decisions_are_numbered_without_gaps_and_say_what_they_must() -> None:
    """One decision a file in docs/adr, each with context, decision, consequences and what would change it."""
    records = sorted((tree.ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(record.name.split("-")[0]) for record in records]
    assert numbers, "docs/adr holds no decision"
    assert numbers == list(range(1, len(records) + 1))
    for record in records:
        text = record.read_text("utf-8")
        missing = [section for section in ADR_SECTIONS if section not in text]
        assert not missing, f"{record.name} lacks {missing}"


def test_decisions_that_files_refer_to_exist() -> None:
    """A decision's path, or its beginning up to the number, leads somewhere in whatever file it stands."""
    numbers = {record.name[:4] for record in (tree.ROOT / "docs" / "adr").glob("*.md")}
    names = {record.name for record in (tree.ROOT / "docs" / "adr").glob("*.md")}
    for path in tree.files():
        if path.suffix not in {".py", ".md", ".sql", ".sh", ".toml"}:
            continue
        for number, name in re.findall(r"docs/adr/(\d{4})(-[\w-]+\.md)?", path.read_text("utf-8")):
            assert number in numbers, f"{path}: there is no decision {number}"
            assert not name or number + name in names, f"{path}: there is no {number + name}"
