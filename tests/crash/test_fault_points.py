"""A crash at every named point (house habit 13; behaviours 36, 122, 129, 181; reports K1).

What was acknowledged stands, what was not is whole or absent, and the same work can be done again to its end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore
from emelex_core.events import EventKind
from emelex_core.faults import POINTS
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from processes import keep
from stores import ROOT, rows, sound

ELSEWHERE: dict[str, str] = {
    "rebind.before_commit": "tests/archive/test_rebind.py",
    "backup.copied": "tests/archive/test_backup.py",
    "restore.assets_copied": "tests/archive/test_backup.py",
    "restore.database_copied": "tests/archive/test_backup.py",
    "model.staged": "tests/models/test_races.py",
    "model.copied": "tests/models/test_races.py",
    "model.recorded": "tests/models/test_races.py",
    "model.published": "tests/models/test_races.py",
    "model.quarantined": "tests/models/test_races.py",
    "bind.validated": "tests/models/test_races.py",
    "bind.committed": "tests/models/test_races.py",
    "journal.before_commit": "tests/journal/test_crash.py",
    "snapshot.stored": "tests/journal/test_crash.py",
    "turn.begun": "tests/journal/test_crash.py",
    "turn.planned": "tests/journal/test_crash.py",
    "turn.asked": "tests/journal/test_crash.py",
    "turn.decided": "tests/journal/test_crash.py",
    "tool.started": "tests/journal/test_crash.py",
    "tool.completed": "tests/journal/test_crash.py",
    "turn.checkpointed": "tests/journal/test_crash.py",
    "turn.finished": "tests/journal/test_crash.py",
    "turn.failed": "tests/journal/test_crash.py",
    "recover.accepted": "tests/journal/test_crash.py",
    "recover.settled": "tests/journal/test_crash.py",
    "recover.published": "tests/journal/test_crash.py",
}
"""Points that this scenario does not pass, each with the test file that kills there."""

PASSED_OFTEN = {
    "session.claimed": (1, 2),
    "append.before_commit": (1, 3, 5),
    "append.committed": (1, 4),
    "asset.written": (1, 2),
    "asset.published": (1, 2),
    "asset.cataloged": (1, 3),
    "job.claimed": (1, 2),
    "job.inferred": (1, 2),
    "job.settling": (1, 2),
    "job.settled": (1, 2),
}
"""Points that one life passes several times, with the times to die at."""

KILLS = [f"{point}:{nth}" for point in sorted(POINTS - set(ELSEWHERE)) for nth in PASSED_OFTEN.get(point, (1,))]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, Path]:
    """Where a scenario lives: its Home, its workspace, a transcript of our own, and what it acknowledged."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    transcript = tmp_path / "0b9d3c1e-5a64-4a56-9d0e-2f0f5d1c7a11.jsonl"
    records = [
        ("user", "a", None, {"role": "user", "content": "Please keep the port at 5433."}),
        (
            "assistant",
            "b",
            "a",
            {"role": "assistant", "content": [{"type": "text", "text": "The port stays at 5433."}]},
        ),
    ]
    transcript.write_text(
        "".join(
            json.dumps(
                {
                    "type": kind,
                    "uuid": f"00000000-0000-4000-8000-00000000000{name}",
                    "parentUuid": parent and f"00000000-0000-4000-8000-00000000000{parent}",
                    "sessionId": transcript.stem,
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "cwd": str(workspace),
                    "version": "2.1.0",
                    "isSidechain": False,
                    "userType": "external",
                    "message": message,
                }
            )
            + "\n"
            for kind, name, parent, message in records
        ),
        "utf-8",
    )
    return {"home": tmp_path / "home", "workspace": workspace, "transcript": transcript, "log": tmp_path / "log"}


def _start(place: dict[str, Path], fault: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "EMELEX_FAULT": fault, "PYTHONPATH": str(ROOT / "tests" / "support")}
    script = ROOT / "tests" / "support" / "crash_scenario.py"
    arguments = [str(place[name]) for name in ("home", "workspace", "transcript", "log")]
    return keep(
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    )


def _acknowledged(place: dict[str, Path]) -> list[dict[str, Any]]:
    if not place["log"].exists():
        return []
    lines = place["log"].read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _require_whole(place: dict[str, Path]) -> None:
    """Everything that must hold after a crash, whenever it came."""
    database = Home(place["home"]).database
    if not database.exists():
        assert _acknowledged(place) == []
        return
    with MemoryStore.open(place["home"], create=True) as store:
        assert sound(database)
        sessions = {session.id: session for session in store.list_sessions()}
        for session in sessions.values():
            assert session.held_until is None
            # Proves digests, sequences, turns, media links and the Summary; a hole would be Corrupt.
            with store.claim_session(session.id, place["workspace"]) as lease:
                assert lease.replay().tail.sequence == session.last_sequence
            assert [event.sequence for event in store.iterate_events(session)] == list(
                range(1, session.last_sequence + 1)
            )
        assert rows(database, "SELECT count(*) FROM events")[0][0] == sum(s.last_sequence for s in sessions.values())
        assert store.verify_assets().problems == ()
        _require_results(store)
        _require_acknowledged(place, store, set(sessions))


def _require_results(store: MemoryStore) -> None:
    """What is completed has its result, and the record of what made it."""
    summaries = {
        (event.provenance or {}).get("job_id")
        for session in store.list_sessions()
        for event in store.iterate_events(session)
        if event.kind is EventKind.SUMMARY
    }
    for job in reading.list_jobs(store.database, state=JobState.COMPLETED):
        assert reading.get_job(store.database, job.id)[1] is not None
        assert job.kind is JobKind.DISTILLATION or job.id in summaries


def _require_acknowledged(place: dict[str, Path], store: MemoryStore, sessions: set[str]) -> None:
    facts = _acknowledged(place)
    jobs = {job.id: job for job in reading.list_jobs(store.database)}
    settled = {"completed": JobState.COMPLETED, "failed": JobState.FAILED}
    for fact in facts:
        if "deleted" in fact:
            assert fact["deleted"] not in sessions
        if "imported" in fact:
            assert fact["imported"] in sessions
        if "session" in fact:
            assert fact["session"] in sessions
        if "ids" in fact:
            events = store.read_events(fact["session"], after=fact["first"] - 1, limit=len(fact["ids"]))
            assert [event.id for event in events] == fact["ids"]
            assert {event.turn_id for event in events} == {fact["turn"]}
        if "asset" in fact:
            assert store.get_asset(fact["asset"]).sha256 == fact["asset"]
        if "job" in fact:
            assert jobs[fact["job"]].state is settled.get(fact["state"], jobs[fact["job"]].state)


def test_every_registered_point_is_died_at() -> None:
    """A point that no test passes proves nothing; what another test kills at is named there."""
    assert set(ELSEWHERE) <= POINTS
    for point, place in ELSEWHERE.items():
        assert point in (ROOT / place).read_text("utf-8"), f"{place} does not kill at {point}"
    assert {kill.partition(":")[0] for kill in KILLS} | set(ELSEWHERE) == POINTS


def test_the_scenario_runs_twice(place: dict[str, Path]) -> None:
    """Nothing below would mean anything if it did not reach its end."""
    for _ in range(2):
        process = _start(place)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
        _require_whole(place)
    states = {fact["state"] for fact in _acknowledged(place) if "state" in fact}
    assert states == {"pending", "completed"}


@pytest.mark.parametrize("fault", KILLS)
def test_a_crash_loses_nothing_and_leaves_nothing_half_done(place: dict[str, Path], fault: str) -> None:
    """Dies by SIGKILL at the point, is looked over, and is run to its end by another process."""
    process = _start(place, fault)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -9, f"{fault} was not reached: {errors.decode()}"
    _require_whole(place)
    process = _start(place)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    _require_whole(place)


WRITER = """
import json, os, sys
from pathlib import Path
from crash_scenario import Log
from emelex_core import Event, MemoryStore
store = MemoryStore.open(sys.argv[1])
log = Log(Path(sys.argv[3]))
session = store.start_session(sys.argv[2], title="storm")
log.note(session=session.id)
lease = store.claim_session(session.id, sys.argv[2])
number = 0
while True:
    number += 1
    log.turn(session.id, lease.append_turn([Event.user(f"{number}" * 200), Event.assistant("x" * 3000)]))
"""


def test_a_storm_of_kills_loses_no_acknowledged_turn(place: dict[str, Path]) -> None:
    """K1 and K2: 25 kills of three writers at seeded moments; acknowledged turns are there, every Session proves."""
    chance = random.Random(20_260_101)
    MemoryStore.open(place["home"], create=True).close()
    arguments = [str(place[name]) for name in ("home", "workspace", "log")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}

    def start() -> subprocess.Popen[bytes]:
        return keep(
            subprocess.Popen(
                [sys.executable, "-c", WRITER, *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        )

    writers = [start() for _ in range(3)]
    started = time.monotonic()
    kills = 0
    seen = 0
    try:
        while kills < 25 and time.monotonic() - started < 20:
            # Each kill waits for progress first, so that slow machines kill as much work as fast ones.
            while (grown := place["log"].stat().st_size if place["log"].exists() else 0) <= seen:
                assert all(writer.poll() is None for writer in writers), [
                    w.communicate()[1] for w in writers if w.poll()
                ]
                time.sleep(0.002)
            seen = grown
            time.sleep(chance.uniform(0, 0.02))
            victim = chance.randrange(len(writers))
            writers[victim].kill()
            writers[victim].communicate()
            writers[victim] = start()
            kills += 1
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert kills >= 10
    assert sum("ids" in fact for fact in _acknowledged(place)) > 20
    _require_whole(place)
