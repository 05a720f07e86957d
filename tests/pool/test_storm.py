"""The short form of the kill storm (issue 7, "Proof"); the long one is `ops/soak/pool_storm.py` with its defaults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STORM = Path(__file__).resolve().parents[2] / "ops" / "soak" / "pool_storm.py"


@pytest.mark.parametrize(("seed", "in_flight", "hold_ms"), [(7, 1, 20), (190, 1, 20), (35, 4, 150)])
def test_kills_at_random_cost_exactly_one_attempt_each(seed: int, in_flight: int, hold_ms: int) -> None:
    """Behaviour 190: workers, schedulers and parents die; every job is settled once, with exact attempts."""
    command = [sys.executable, "-P", str(STORM), "--jobs", "60", "--kills", "20", "--seed", str(seed)]
    command += ["--hold-ms", str(hold_ms), "--in-flight", str(in_flight)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["held"]
    assert report["jobs_orphaned"] > 0
    assert sum(report["kills"].values()) > 5
