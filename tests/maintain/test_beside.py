"""Maintenance is safe beside everything (issue 7, item 5): writers, other runs, and a kill in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from emelex_core import Event, MemoryStore, limits
from emelex_core.home import Home
from emelex_core.retention.records import RetentionPolicy
from emelex_workers.maintain import maintain
from stores import DAY, ManualClock, answer, child, line, rows, sound

WRITER = """
    import json, sys
    from emelex_core import Event, MemoryStore
    from emelex_core.errors import NotFound
    acknowledged = {}
    with MemoryStore.open(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        while len(acknowledged) < int(sys.argv[3]):
            number = len(acknowledged)
            session = store.start_session(sys.argv[2], title=f"Session {number}")
            try:
                lease = store.claim_session(session.id, sys.argv[2])
            except NotFound:
                # Nobody had used it for a whole millisecond.
                continue
            with lease:
                ref = store.store_asset(b"%PDF-1.7 " + str(number).encode())
                lease.append_turn([Event.user("Weigh.", ref), Event.assistant("Weighed.")])
                lease.release(distill=True)
            acknowledged[session.id] = 2
    print(json.dumps(acknowledged))
"""

KEEPER = """
    import json, sys
    from emelex_core import MemoryStore
    from emelex_core.retention.records import RetentionPolicy
    from emelex_workers.maintain import maintain
    policy = RetentionPolicy(session_ms=1, knowledge_ms=1, tombstone_ms=1, job_ms=1, versions=1)
    runs, problems = 0, []
    with MemoryStore.open(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(sys.argv[2])):
            found = maintain(store, policy, vacuum=number % 2 == 0)
            if found is not None:
                runs += 1
                problems += [problem.message for problem in found.report.problems]
    print(json.dumps([runs, problems]))
"""


def test_the_greediest_policy_takes_nothing_that_is_wanted(store: MemoryStore, home: Home, workspace: Path) -> None:
    """Two keepers that remove whatever is a millisecond old, beside two writers: pending work keeps its Session."""
    writers = [child(WRITER, home.root, workspace, 20) for _ in range(2)]
    keepers = [child(KEEPER, home.root, 15) for _ in range(2)]
    for process in (*writers, *keepers):
        assert line(process) == "ready"
    for process in (*writers, *keepers):
        _go(process)
    wanted = [found for process in writers for found in answer(process)]
    told = [answer(process) for process in keepers]
    assert sum(runs for runs, _ in told) >= 15
    assert [problems for _, problems in told] == [[], []]
    kept = {row[0] for row in rows(home.database, "SELECT session_id FROM jobs WHERE state = 'pending'")}
    assert set(wanted) == kept
    assert rows(home.database, "SELECT count(*) FROM event_assets") == [(len(wanted),)]
    assert store.verify_assets().problem_count == 0
    assert sound(home.database)


def test_a_killed_run_leaves_a_store_that_the_next_one_finishes(
    store: MemoryStore, home: Home, workspace: Path, clock: ManualClock
) -> None:
    """SIGKILL some way into the removals: each Session is whole or gone, and so is its line of the journal."""
    for number in range(60):
        session = store.start_session(workspace, title=f"Session {number}")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("Weigh."), Event.assistant("Weighed.")])
    killed = 0
    while rows(home.database, "SELECT count(*) FROM sessions") != [(0,)] and killed < 5:
        process = child(KEEPER, home.root, 1)
        assert line(process) == "ready"
        _go(process)
        before = rows(home.database, "SELECT count(*) FROM removals")[0][0]
        while rows(home.database, "SELECT count(*) FROM removals")[0][0] < min(60, before + 8):
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        killed += 1
        assert sound(home.database)
        ((left, journalled, events),) = rows(
            home.database,
            "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM removals), (SELECT count(*) FROM events)",
        )
        assert left + journalled == 60
        assert events == 2 * left
    assert killed
    clock.turn(DAY)
    found = maintain(store, RetentionPolicy(session_ms=1, rows_max=limits.MAINTAIN_ROWS_MAX))
    assert found is not None
    assert found.report.problems == ()
    assert rows(home.database, "SELECT count(*) FROM sessions") == [(0,)]


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
