"""A kill at every fault point of the room: nothing that was acknowledged is lost, no row is without its file."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, faults
from emelex_core.clock import system_clock
from pictures import picture
from stores import child, line, sound

SUPPORT = Path(__file__).parents[1] / "support"
DAY = 24 * 60 * 60 * 1_000
SCENARIO = """
    import sys, time
    sys.path.insert(0, sys.argv[3])
    from emelex_core import Event, MemoryStore
    from pictures import picture

    def say(*words):
        print(*words, flush=True)

    past = lambda: time.time_ns() // 1_000_000 - 40 * 86_400_000
    with MemoryStore.open(sys.argv[1], clock=past) as store:
        store.store_asset(picture(1))
        say("orphan")
    with MemoryStore.open(sys.argv[1]) as store:
        shown = store.store_asset(picture(2))
        say("shown")
        session = store.start_session(sys.argv[2], title="t")
        with store.claim_session(session.id, sys.argv[2]) as lease:
            lease.append_turn([Event.user("x", shown, store.store_asset(picture(1)))])
        say("appended", session.id)
    with MemoryStore.open(sys.argv[1], clock=past) as store:
        store.store_asset(picture(3))
    with MemoryStore.open(sys.argv[1]) as store:
        say("collected", store.collect_assets().rows)
        say("deleted", store.delete_session(session.id).assets)
"""
POINTS = sorted(point for point in faults.POINTS if point.startswith(("asset.", "collect.", "session.deleted")))
KILLS = [(point, number) for point in POINTS for number in (1, 2) if (point, number) not in {
    ("collect.rows_removed", 2),
    ("session.deleted", 2),
}]  # fmt: skip


@pytest.mark.parametrize(("point", "number"), KILLS)
def test_a_kill_at_a_fault_point(tmp_path: Path, point: str, number: int) -> None:
    """108, 110 and 156 across a SIGKILL."""
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    workspace.mkdir()
    MemoryStore.open(home, create=True).close()
    process = child(SCENARIO, home, workspace, SUPPORT, env={"EMELEX_FAULT": f"{point}:{number}"})
    said, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    with MemoryStore.open(home) as store:
        check = store.verify_assets()
        assert check.problem_count == 0, "no row without its file"
        for words in (spoken.split() for spoken in said.splitlines()):
            if words[0] == "appended" and not point.startswith(("session.deleted", "collect.file_removed")):
                with store.claim_session(words[1], workspace) as lease:
                    assert len(lease.replay()[0].media) == 2
        for seed in (1, 2, 3):
            assert store.read_asset(store.store_asset(picture(seed))) == picture(seed)
        session = store.start_session(workspace, title="again")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("x", store.store_asset(picture(3)))])
        assert sound(store.database.path)
    later = _later()
    with MemoryStore.open(home, clock=lambda: later) as store:
        store.delete_session(session.id)
        store.collect_assets()
        assert store.verify_assets().uncataloged == 0
        assert not list(store.assets_directory.glob(".tmp-*"))


def test_the_scenario_reaches_its_end(tmp_path: Path) -> None:
    """Without a kill each step does what the test above is about."""
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    workspace.mkdir()
    MemoryStore.open(home, create=True).close()
    process = child(SCENARIO, home, workspace, SUPPORT)
    assert [line(process) for _ in range(2)] == ["orphan", "shown"]
    assert line(process).startswith("appended")
    assert [line(process) for _ in range(2)] == ["collected 1", "deleted 2"]
    assert process.wait(timeout=60) == 0
    process.communicate()


def _later() -> int:
    """An instant by which every grace is over."""
    return system_clock() + 30 * DAY
