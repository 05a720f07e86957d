"""Log lines (issue 7, item 7): JSON under a supervisor, readable on a terminal, and no word of any message."""

from __future__ import annotations

import json

import pytest

from emelex_workers.observe import narrate
from emelex_workers.pool.events import PoolEvent, PoolStarted, WorkerEnded, WorkerFault
from emelex_workers.progress import JobEnded, JobStarted

NOW = 1_800_000_000_000
FAILED = JobEnded(
    outcome="failed",
    job="j1",
    kind="compaction",
    session="s1",
    attempt=3,
    seconds=1.23456,
    engine_seconds=1.0,
    prompt_tokens=5,
    output_tokens=6,
    error="attempt 3: the model wrote: SECRET-PARCEL",
)


def test_a_supervisor_gets_one_json_object_a_line() -> None:
    """With instant, level and event; the diagnostic is withheld, and that there is one is said."""
    found = json.loads(narrate.line(FAILED, now=NOW, as_json=True))
    assert found["at"] == "2027-01-15T08:00:00.000Z"
    assert (found["level"], found["event"], found["job"], found["seconds"]) == ("error", "job_ended", "j1", 1.235)
    assert found["has_diagnostic"] is True
    assert "SECRET" not in json.dumps(found)


def test_a_person_gets_words() -> None:
    """One line, what is empty left out."""
    text = narrate.line(
        PoolStarted(pid=7, workers=1, threads=1, reason="2 cores, of which one stays free"), now=NOW, as_json=False
    )
    assert text == (
        "2027-01-15T08:00:00.000Z info    pool_started pid=7 workers=1 threads=1 "
        'reason="2 cores, of which one stays free" in_flight=1'
    )
    assert "SECRET" not in narrate.line(FAILED, now=NOW, as_json=False)


def test_what_a_terminal_would_obey_is_defused() -> None:
    """159: a fault may name a path."""
    text = narrate.line(
        WorkerFault(worker="Worker-1", kind="Storage", message="a\x1b[31m\nb\u202e"), now=NOW, as_json=False
    )
    assert "\x1b" not in text
    assert "\n" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (JobStarted(job="j", kind="compaction", session="s", attempt=1), "info"),
        (WorkerEnded(worker="w", pid=1, why="recycled"), "info"),
        (WorkerEnded(worker="w", pid=1, why="killed", signal="SIGKILL"), "error"),
        (WorkerFault(worker="w", kind="Storage", message="m"), "error"),
        (FAILED, "error"),
    ],
)
def test_levels(event: PoolEvent, level: str) -> None:
    """What somebody should look at is an error."""
    assert narrate.level(event) == level


@pytest.mark.parametrize(
    ("environment", "supervised"),
    [
        ({}, False),
        ({"NOTIFY_SOCKET": "/x"}, True),
        ({"JOURNAL_STREAM": "8:1"}, True),
        ({"SUPERVISOR_ENABLED": "1"}, True),
    ],
)
def test_a_supervisor_is_known_by_its_variables(environment: dict[str, str], supervised: bool) -> None:
    """Those that each sets for what it runs."""
    assert narrate.is_supervised(environment) is supervised
