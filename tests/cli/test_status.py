"""`memory status`, and looking at a Home in which nothing was ever stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emelex_core import MemoryStore, Session
from program import Program

EMPTY_QUEUE = {
    "pending": 0,
    "running": 0,
    "waiting": 0,
    "blocked": 0,
    "failed": 0,
    "completed": 0,
    "oldest_pending_seconds": None,
}


def test_status_has_the_keys_of_the_contract(
    emelex: Program, talk: Callable[[int], Session], store: MemoryStore
) -> None:
    """Each key of "JSON of the main job", with what is stored."""
    talk(3)
    found = emelex("memory", "status", "--json").json
    assert list(found) == [
        "database_bytes",
        "sessions",
        "events",
        "knowledge",
        "tombstoned_knowledge",
        "assets",
        "asset_bytes",
        "schema_version",
        "sqlite_version",
        "queues",
        "coverage",
    ]
    assert (found["sessions"], found["events"], found["schema_version"]) == (1, 12, store.totals().schema_version)
    assert found["database_bytes"] == store.totals().database_bytes
    assert found["queues"]["compaction"] == EMPTY_QUEUE
    assert found["queues"]["distillation"] | {"oldest_pending_seconds": 0} == EMPTY_QUEUE | {
        "pending": 1,
        "oldest_pending_seconds": 0,
    }
    assert found["queues"]["distillation"]["oldest_pending_seconds"] >= 0
    assert found["coverage"] == {"sessions": 1, "distilled": 0, "failed": 0, "pending": 1}


def test_status_for_people_says_the_same(emelex: Program, talk: Callable[[int], Session]) -> None:
    """Text on stdout, nothing on stderr, no escape sequence."""
    talk(1)
    result = emelex("memory", "status")
    assert (result.code, result.err) == (0, "")
    assert "1 Session, 4 events" in result.out
    assert "0 of 1 Session distilled, 1 pending, 0 failed" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize(
    ("command", "keys"),
    [(("memory", "status"), {"sessions": 0, "events": 0}), (("memory", "work"), {"remaining_jobs": 0})],
)
def test_nothing_stored_is_zeros(emelex: Program, command: tuple[str, ...], keys: dict[str, int]) -> None:
    """Exit 0 with zeros and a note; looking creates nothing."""
    result = emelex(*command, "--json")
    assert result.code == 0
    assert result.json.items() >= keys.items()
    assert "nothing is stored yet" in result.err
    assert not emelex.home.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("memory", "sessions", "list"),
        ("memory", "knowledge", "list"),
        ("memory", "jobs", "list"),
        ("memory", "failures"),
    ],
)
def test_nothing_stored_is_an_empty_list(emelex: Program, command: tuple[str, ...]) -> None:
    """Lists print no line, exit 0."""
    result = emelex(*command, "--json")
    assert (result.code, result.out) == (0, "")
    assert "nothing is stored yet" in result.err
    assert not emelex.home.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("memory", "sessions", "show", "0123456789ab"),
        ("memory", "sessions", "export", "0123456789ab"),
        ("memory", "knowledge", "show", "rule.parcels"),
        ("memory", "jobs", "show", "0123456789ab"),
        ("memory", "retry", "0123456789ab"),
        ("memory", "compact", "0123456789ab"),
        ("memory", "distill", "0123456789ab"),
    ],
)
def test_nothing_stored_is_not_found(emelex: Program, command: tuple[str, ...]) -> None:
    """What names something needs it to be there: exit 3, and still nothing is created."""
    result = emelex(*command, "--json")
    assert result.code == 3
    assert result.error["kind"] == "NotFound"
    assert not emelex.home.exists()
