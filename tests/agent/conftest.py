"""Fixtures of the agent's tests: a working directory for tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core.agent.tools.rooted import Root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


@pytest.fixture
def root(work: Path) -> Iterator[Root]:
    with Root(work) as opened:
        yield opened
