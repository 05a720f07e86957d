"""Fixtures of the models' tests: the verified source, a copy made once, a small GGUF file, and a manager."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emelex_core.home import Home
from emelex_core.models import BUILTIN_REFERENCE, ModelManager, ResolvedFile, resolve_model
from emelex_core.models.derived import ensure_q8_0
from emelex_core.models.files import Verified, digest
from emelex_core.models.probe import Probed
from stores import ManualClock
from tinymodels import tiny_model


@pytest.fixture(scope="session")
def source() -> Verified:
    resolved = resolve_model(BUILTIN_REFERENCE, models_dir=Path("unused"), endpoints={})
    assert isinstance(resolved, ResolvedFile)
    return digest(resolved.path)


@pytest.fixture(scope="session")
def made(source: Verified, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a good copy and its manifest; tests work on copies of it."""
    directory = tmp_path_factory.mktemp("home") / "models" / "derived"
    ensure_q8_0(source, directory, name="m", threads=1)
    return directory


@pytest.fixture
def derived(made: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "derived"
    shutil.copytree(made, directory)
    return directory


@pytest.fixture(scope="session")
def gguf() -> bytes:
    return tiny_model()


@pytest.fixture
def tiny(gguf: bytes, tmp_path: Path) -> Path:
    """A file outside the Home to import."""
    path = tmp_path / "downloads" / "Tiny Model.Q8.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def manager(place: Home) -> ModelManager:
    """A manager whose probing is only written down: no tiny model can run."""
    return ModelManager(place, prober=lambda path: Probed(grammar=True, engine="a test"), clock=ManualClock())
