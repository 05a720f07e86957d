"""Processes that compete, and that are killed: the short forms of ops/soak/contention.py and kill_storm.py."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from stores import ROOT


def soak(script: str, *arguments: str) -> dict[str, Any]:
    """Run a soak as a person does; return its last line. What it prints on stderr is what went wrong."""
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "ops" / "soak" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("seed", ["3"])
def test_eight_processes_compete_and_no_lock_error_surfaces(seed: str) -> None:
    """K2: sequences contiguous, no turn interleaved, every acknowledgement kept, the log emptied at the end."""
    line = soak("contention.py", "--seconds", "8", "--processes", "8", "--seed", seed)
    assert (line["errors"], line["wrong"], line["wal_bytes_left"]) == (0, 0, 0)
    assert line["turn"] > 50
    assert line["completed"] > 5
    assert line["read"] > 5


def test_a_storm_of_kills_loses_nothing() -> None:
    """K1: sixty processes killed at random; whatever the dead had been told is there."""
    line = soak("kill_storm.py", "--kills", "60", "--minutes", "1", "--seed", "3")
    assert (line["kills"], line["errors"], line["lost_or_wrong"]) == (60, 0, 0)
    assert line["turn"] > 20
