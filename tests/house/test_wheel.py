"""The wheel: four packages, their SQL, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house import tree


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=tree.ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_four_packages_whole(wheel: Path) -> None:
    """Each file below a package is in it under the package's name: code, SQL, type markers; no test, no cache."""
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in tree.packages()
        for path in tree.files()
        if path.is_relative_to(package)
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    contents = {name for name in names if ".dist-info/" not in name}
    assert contents == expected
    assert any(name.endswith(".sql") for name in contents)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_check_wheel_contents_has_no_complaint(wheel: Path) -> None:
    """The public tool agrees about the top level and finds no common slip."""
    command = [sys.executable, "-P", "-m", "check_wheel_contents", str(wheel)]
    result = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
