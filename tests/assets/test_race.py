"""The race of ops/soak/asset_race.py in its short form: eight processes, a fixed number of rounds, fixed dice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RACE = Path(__file__).parents[2] / "ops" / "soak" / "asset_race.py"


@pytest.mark.timeout(180)
def test_eight_processes_fight_over_the_same_media() -> None:
    """108 and 110: no append that stored its bytes is refused for a collection, and all that is named can be read."""
    done = subprocess.run(
        [sys.executable, "-P", RACE, "--rounds", "12", "--seconds", "150", "--seed", "7"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["failures"]) == (0, []), done.stderr
    assert result["good"]
    # The processes did meet: things were collected, deleted and linked.
    assert min(result["collected"], result["deleted_assets"], result["named"]) > 0
    assert result["named"] == result["assets"]
