"""Eight processes store, link, collect and delete the same media at once; at the end everything that is named is there.

    python -P ops/soak/asset_race.py [--seconds 60 | --rounds N] [--seed N] [--processes 8]

Two pools of pictures are fought over, in a fresh Home below a temporary directory:

- *collected*: each begins as an orphan whose grace is long over, is stored again and then linked, while other processes
  collect. Its Sessions are never deleted: no append may be refused, ever.
- *deleted*: most Sessions that show them are deleted, while others store and link them. An append may be refused with
  Invalid there (the Session that was deleted in between was the last to link it); storing again must then help.

A linked picture is read back at once, every time.

Prints one JSON line. Exit 1 when a process failed, an append was refused that may not be, an asset that is named cannot
be read, a history does not replay, or a row is without its file.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from emelex_core import AssetRef, Event, MemoryStore, SessionLease, limits
from emelex_core.clock import system_clock
from emelex_core.errors import Invalid

MONTH_MS = 30 * 24 * 60 * 60 * 1_000
GRACE_MS = 60 * 60 * 1_000
WINDOW = 3
"""How many pictures of the first pool are fought over at a time; all processes walk through them in the same order."""
DELETED_PICTURES = 4
ROUNDS_KEPT = 10
"""Every so many rounds a process of the second pool keeps its Session, and takes new pictures."""
PICTURE_BYTES_MAX = 40_000
ROLES = ("link", "delete", "collect", "link", "delete", "collect", "link", "delete")


class Worker:
    """One process: its store, its dice, its counts."""

    def __init__(self, home: Path, workspace: Path, seed: int) -> None:
        self.store = MemoryStore.open(home)
        self.past = MemoryStore.open(home, clock=lambda: system_clock() - MONTH_MS)
        self.workspace = workspace
        self.dice = random.Random(seed)  # noqa: S311 - dice of a test, no secret
        self.counts: Counter[str] = Counter()

    def link(self, number: int) -> None:
        """Make expired orphans of the next window; store some of this one again and link them."""
        window = number // WINDOW * WINDOW
        for ahead in range(WINDOW, 2 * WINDOW):
            self.past.store_asset(picture("collected", window + ahead))
        lease = self._session("stays")
        for _ in range(self.dice.randint(1, 3)):
            data = picture("collected", window + self.dice.randrange(WINDOW))
            ref = self.store.store_asset(data)
            lease.append_turn([Event.user("look", ref), Event.assistant("I see")])
            self._read_back(ref, data)
        lease.release()

    def collect(self, number: int) -> None:
        """One pass with the shortest grace that protects an append which has just stored its bytes."""
        del number
        report = self.store.collect_assets(grace_ms=GRACE_MS)
        self.counts["collected"] += report.rows
        self.counts["problems"] += report.problem_count

    def delete(self, number: int) -> None:
        """Show pictures of the second pool in a Session and delete it, most of the time."""
        lease = self._session("goes")
        for _ in range(self.dice.randint(1, 3)):
            self._link_anyway(
                lease, picture("deleted", number // ROUNDS_KEPT * 100 + self.dice.randrange(DELETED_PICTURES))
            )
        session_id = lease.session_id
        lease.release()
        if number % ROUNDS_KEPT == ROUNDS_KEPT - 1:
            return
        report = self.store.delete_session(session_id)
        self.counts["deleted_sessions"] += 1
        self.counts["deleted_assets"] += report.assets
        self.counts["kept_assets"] += report.kept_assets
        self.counts["problems"] += len(report.problems)

    def _session(self, title: str) -> SessionLease:
        session = self.store.start_session(self.workspace, title=title)
        return self.store.claim_session(session.id, self.workspace)

    def _read_back(self, ref: AssetRef, data: bytes) -> None:
        self.counts["linked"] += 1
        if self.store.read_asset(ref) != data:
            raise AssertionError(f"{ref.sha256} came back as other bytes")

    def _link_anyway(self, lease: SessionLease, data: bytes) -> None:
        """Link a picture; what was deleted in between is stored again, as the refusal asks for."""
        while True:
            ref = self.store.store_asset(data)
            try:
                lease.append_turn([Event.user("and this", ref)])
            except Invalid:
                self.counts["stored_again"] += 1
            else:
                self._read_back(ref, data)
                return


def picture(pool: str, number: int) -> bytes:
    """The bytes of one picture, the same in every process."""
    dice = random.Random(f"{pool} {number}")  # noqa: S311 - dice of a test, no secret
    return b"\x89PNG\r\n\x1a\n" + dice.randbytes(dice.randint(8, PICTURE_BYTES_MAX))


def work(options: argparse.Namespace) -> int:
    """Play one role until the time or the rounds are over, collectors until all others are done; print the counts."""
    worker = Worker(options.home, options.workspace, options.seed)
    play = {"link": worker.link, "collect": worker.collect, "delete": worker.delete}[options.role]
    deadline = time.monotonic() + options.seconds
    number = 0
    while _goes_on(options, number) and time.monotonic() < deadline:
        play(number)
        number += 1
    worker.counts["rounds"] = number
    sys.stdout.write(json.dumps(worker.counts) + "\n")
    return 0


def _goes_on(options: argparse.Namespace, number: int) -> bool:
    if options.role == "collect":
        told, _, _ = select.select([sys.stdin], [], [], 0)
        return not told
    return bool(number < options.rounds)


def check(home: Path, workspace: Path) -> dict[str, int]:
    """Replay every Session, read everything that it names, hash every asset; raise for what does not hold."""
    named: set[AssetRef] = set()
    sessions = 0
    with MemoryStore.open(home) as store:
        before: tuple[int, str] | None = None
        while page := store.list_sessions(limit=limits.PAGE_SESSIONS_MAX, before=before):
            before = (page[-1].updated_at, page[-1].id)
            for session in page:
                with store.claim_session(session.id, workspace) as lease:
                    named.update(ref for event in lease.replay() for ref in event.media)
                sessions += 1
        for ref in named:
            store.read_asset(ref)
        report = store.verify_assets()
        temporaries = len(list(store.assets_directory.glob(".tmp-*")))
    return {
        "sessions": sessions,
        "named": len(named),
        "assets": report.assets,
        "damaged": report.problem_count,
        "uncataloged": report.uncataloged,
        "temporaries": temporaries,
    }


def race(options: argparse.Namespace, directory: Path) -> int:
    """Start the processes, wait for them, check what they left; print the result."""
    home, workspace = directory / "home", directory / "workspace"
    workspace.mkdir()
    MemoryStore.open(home, create=True).close()
    began = time.monotonic()
    roles = [ROLES[index % len(ROLES)] for index in range(options.processes)]
    processes = [_start(options, home, workspace, index, role) for index, role in enumerate(roles)]
    counts: Counter[str] = Counter()
    failures: list[str] = []
    # The end of its standard input tells a collector that nobody stores any more: the others are waited for first.
    for _, process in sorted(zip(roles, processes, strict=True), key=lambda pair: pair[0] == "collect"):
        out, errors = process.communicate()
        if process.returncode:
            failures.append(errors[-2_000:])
        else:
            counts.update(json.loads(out))
    found = check(home, workspace)
    good = not failures and not (counts["problems"] or found["damaged"] or found["uncataloged"] or found["temporaries"])
    result = {"seed": options.seed, "seconds": round(time.monotonic() - began, 1), **counts, **found, "good": good}
    sys.stdout.write(json.dumps({**result, "failures": failures}) + "\n")
    return 0 if good else 1


def _start(options: argparse.Namespace, home: Path, workspace: Path, index: int, role: str) -> subprocess.Popen[str]:
    """Start this script again, as one process of the race."""
    places = ["--role", role, "--home", str(home), "--workspace", str(workspace)]
    bounds = ["--seconds", str(options.seconds), "--rounds", str(options.rounds), "--seed", str(options.seed + index)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-P", __file__, *places, *bounds], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def main() -> int:
    """Race, or play one role of a race."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--role", choices=sorted(set(ROLES)), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        return work(options)
    with tempfile.TemporaryDirectory() as directory:
        return race(options, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
