"""ops/setup.sh on a machine that lacks something, and on one that lacks nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house import tree

INPUTS = ("requirements.lock", "pyproject.toml", "ops/setup.sh")
PLAIN_TOOLS = ("sh", "cat", "cksum", "dirname", "uname", "sed", "grep", "awk", "mktemp", "rm", "mkdir")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, Path, Run]:
    """A checkout, a folder of programs that holds only what every POSIX system has, and the script run with these."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    (checkout / "ops").mkdir(parents=True)
    programs.mkdir()
    for place in INPUTS:
        shutil.copy(tree.ROOT / place, checkout / place)
    for tool in PLAIN_TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": str(programs), "HOME": str(tmp_path), **environment}
        command = ["sh", str(checkout / "ops" / "setup.sh")]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    return checkout, programs, run


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def test_everything_that_is_missing_is_named_in_one_line(bare: tuple[Path, Path, Run]) -> None:
    """One line says what, and how to get it; nothing was made."""
    checkout, _, run = bare
    result = run()
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    for word in (
        "Python 3.11",
        "C++ compiler",
        "cmake",
        "apt-get install" if os.uname().sysname == "Linux" else "brew",
    ):
        assert word in result.stderr
    assert not (checkout / ".venv").exists()


def test_an_older_python_does_not_count(bare: tuple[Path, Path, Run]) -> None:
    """A python3 whose version check fails is no Python; one that was asked for is named."""
    _, programs, run = bare
    _script(programs / "python3", "exit 1")
    assert "Python 3.11 or later" in run().stderr
    assert f"PYTHON={programs / 'python3'}" in run(PYTHON=str(programs / "python3")).stderr


def test_a_python_without_venv_is_told_apart(bare: tuple[Path, Path, Run]) -> None:
    """Debian packs the venv module on its own; what is there already is not asked for again."""
    _, programs, run = bare
    _script(programs / "python3", 'case "$2" in *venv*) exit 1 ;; esac')
    for tool in ("cc", "c++", "cmake"):
        _script(programs / tool, "exit 0")
    line = run().stderr
    assert "venv" in line
    assert "python3-venv" in line
    assert "cmake" not in line
    assert "compiler" not in line


def test_a_current_environment_is_left_alone(bare: tuple[Path, Path, Run]) -> None:
    """With the stamp of the same inputs the script says nothing and does nothing; changed inputs make it work again."""
    checkout, _, run = bare
    (checkout / ".venv" / "bin").mkdir(parents=True)
    _script(checkout / ".venv" / "bin" / "python", "exit 1")
    inputs = b"".join((checkout / place).read_bytes() for place in INPUTS)
    checksum = subprocess.run(["cksum"], input=inputs, capture_output=True, check=True).stdout.decode().strip()
    (checkout / ".venv" / ".setup-stamp").write_text(f"{checkout}  {checksum}\n", "utf-8")
    result = run()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert run().returncode == 1
