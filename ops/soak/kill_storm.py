"""Writers, workers and readers are killed with SIGKILL at random, for minutes; nothing acknowledged may be lost.

    .venv/bin/python -P ops/soak/kill_storm.py [--kills 2000] [--minutes 10] [--seed N]

Ends after so many kills or minutes, whichever comes first. After every 100 kills, and at the end, a new process opens
the store, checks all of it and compares it with what the dead had been told. Prints a JSON line each; exits 1 on any
loss.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import crowd

ROLES = ("writer", "writer", "writer", "worker", "worker", "reader")
SHARED_SESSIONS = 6
LOOK_EVERY = 100
SESSION_TURNS_MAX = 1_500
"""Every claim proves its Session; a longer one would turn the storm into a reading contest."""


def main() -> int:
    """Storm, then look; return 1 when something was lost."""
    parser = argparse.ArgumentParser(description="Kill the processes of a store at random.")
    parser.add_argument("--kills", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "workspace"
        workspace.mkdir()
        wrong = storm(home, workspace, kills=options.kills, seconds=options.minutes * 60, seed=options.seed)
    for what in wrong[:20]:
        sys.stderr.write(what + "\n")
    return 1 if wrong else 0


def storm(home: Path, workspace: Path, *, kills: int, seconds: float, seed: int, quiet: bool = False) -> list[str]:
    """Kill and replace until the bound; return what was lost or wrong."""
    chance = random.Random(seed)  # noqa: S311 - a storm that can be repeated, not a secret
    sessions = crowd.make(home, workspace, SHARED_SESSIONS)
    ledger = crowd.Ledger()
    started = time.monotonic()
    until = started + seconds

    def spawn(role: str) -> crowd.Child:
        return crowd.spawn(role, home, workspace, sessions, chance.randrange(10**9), until=until + 60)

    children = [spawn(role) for role in ROLES]
    wrong: list[str] = []
    done = 0
    while done < kills and time.monotonic() < until and not wrong:
        time.sleep(chance.uniform(0.005, 0.12))
        for child in children:
            ledger.take(child.hear())
        victim = chance.randrange(len(children))
        ledger.take(children[victim].end())
        done += 1
        children[victim] = spawn(children[victim].role)
        if done % LOOK_EVERY == 0:
            wrong = ledger.errors + crowd.losses(home, ledger)
            _report(done, started, ledger, wrong, quiet)
            sessions = _rested(sessions, ledger, home, workspace)
    for child in children:
        ledger.take(child.end())
    wrong = wrong or ledger.errors + crowd.losses(home, ledger)
    _report(done, started, ledger, wrong, quiet)
    return wrong


def _rested(sessions: list[str], ledger: crowd.Ledger, home: Path, workspace: Path) -> list[str]:
    """Leave Sessions that have grown long, and make new ones in their place."""
    short = [session for session in sessions if len(ledger.turns.get(session, [])) < SESSION_TURNS_MAX]
    return short + (crowd.make(home, workspace, len(sessions) - len(short)) if len(short) < len(sessions) else [])


def _report(kills: int, started: float, ledger: crowd.Ledger, wrong: list[str], quiet: bool) -> None:
    if quiet:
        return
    line = {
        "soak": "kill_storm",
        "kills": kills,
        "seconds": round(time.monotonic() - started, 1),
        **dict(sorted(ledger.counts.items())),
        "errors": len(ledger.errors),
        "lost_or_wrong": len(wrong),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
