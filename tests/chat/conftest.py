"""A Home and a workspace for chats, and a scripted server in the place of a large model."""

from __future__ import annotations

from pathlib import Path

import pytest

from program import Program


@pytest.fixture
def emelex(tmp_path: Path) -> Program:
    """The program with an empty Home and an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Program(home=tmp_path / "home", workspace=workspace)
