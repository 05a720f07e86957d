"""Pages and replay (behaviours 42 to 49, 52, 107, 122; reports K1): proven, never shortened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.errors import Corrupt, Invalid, PermanentFailure, SessionBusy
from emelex_core.events import EventKind
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from emelex_queue.lease import JobLease
from emelex_workers import compaction
from stores import edit, rechain, rows


def _replayed(store: MemoryStore, session: Session, workspace: Path) -> list[str]:
    with store.claim_session(session.id, workspace) as lease:
        return [event.text for event in lease.replay()]


def _compact(store: MemoryStore, session: Session, through: int, text: str = "so far") -> JobLease:
    """Complete a compaction as its worker does, with a text of ours."""
    plan = CompactionPlan(through_sequence=through, target_tokens=64, session_tokens=0, kept_tokens=0)
    store.queue_compaction(session.id, plan)
    return _settle(store, claims.claim(store.database, JobKind.COMPACTION, clock=store.clock), text)


def _settle(store: MemoryStore, lease: JobLease | None, text: str) -> JobLease:
    assert lease is not None
    source = lease.job.source
    provenance: dict[str, Any] = {
        "job_id": lease.job.id,
        "through_sequence": source.through_sequence,
        "source_event_count": source.source_event_count,
        "source_first_event_id": source.source_first_event_id,
        "source_last_event_id": source.source_last_event_id,
        "source_sha256": source.source_sha256,
    }
    lease.complete(
        lambda transaction: compaction._append_summary(transaction, lease.job, text, provenance, now=store.clock()),
        record={},
    )
    return lease


def test_a_page_is_bounded_by_its_bytes(store: MemoryStore, workspace: Path) -> None:
    """42: six events of 3 MiB do not fit; the cursor goes on; a first event is always returned."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        for _ in range(6):
            lease.append_turn([Event.user("x" * (3 * limits.MIB))])
    page = store.read_events(session.id)
    assert 1 <= len(page) < 6
    seen = [event.sequence for event in page]
    while page := store.read_events(session.id, after=seen[-1]):
        seen += [event.sequence for event in page]
    assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("limit", [0, -1, limits.PAGE_EVENTS_MAX + 1])
def test_a_page_has_a_limit(store: MemoryStore, session: Session, limit: int) -> None:
    """43."""
    with pytest.raises(Invalid, match="limit"):
        store.read_events(session.id, limit=limit)


@pytest.mark.parametrize(
    ("cap", "unit"),
    [("REPLAY_EVENTS_MAX", "events"), ("REPLAY_BYTES_MAX", "bytes"), ("REPLAY_MEDIA_BYTES_MAX", "media")],
)
def test_a_session_over_a_cap_is_refused_by_the_cap_and_still_compacts(
    store: MemoryStore, workspace: Path, session: Session, monkeypatch: pytest.MonkeyPatch, cap: str, unit: str
) -> None:
    """44 and 174: the cap is named; compaction reads pages, and makes the Session resumable again."""
    image = store.store_asset(b"GIF89a" + b"." * 100)
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("five", image)])
        lease.append_turn([Event.user("six")])
    monkeypatch.setattr(limits, cap, {"events": 4, "bytes": 160, "media": 50}[unit])
    with pytest.raises(Invalid, match=f"cap of .* {unit}"):
        _replayed(store, session, workspace)
    with store.claim_session(session.id, workspace) as lease:
        lease.prove()
    monkeypatch.undo()
    monkeypatch.setattr(limits, "REPLAY_EVENTS_MAX", 5)
    _compact(store, session, 5)
    assert _replayed(store, session, workspace) == ["so far", "six"]


def test_a_summary_stands_before_the_uncovered_tail(store: MemoryStore, session: Session, workspace: Path) -> None:
    """46 and 122: what it covers is not shown; what came between its boundary and itself is."""
    _compact(store, session, 2)
    assert _replayed(store, session, workspace) == ["so far", "three", "four"]
    with store.claim_session(session.id, workspace) as lease:
        replay = lease.replay()
        assert replay.summary is not None
        assert replay.summary is replay[0]
        assert replay.summary.kind is EventKind.SUMMARY
        lease.append_turn([Event.user("six")])
    assert _replayed(store, session, workspace) == ["so far", "three", "four", "six"]
    assert len(list(store.iterate_events(store.get_session(session.id)))) == 6


def test_a_tenth_summary_is_the_only_one_shown(store: MemoryStore, session: Session, workspace: Path) -> None:
    """175: each folds the one before it."""
    for number in range(10):
        with store.claim_session(session.id, workspace) as lease:
            lease.replay()
            boundary = lease.append_turn([Event.user(f"u{number}")]).last_sequence
            lease.append_turn([Event.user(f"kept{number}")])
        _compact(store, session, boundary, f"summary {number}")
    assert _replayed(store, session, workspace) == ["summary 9", "kept9"]


EDITS: dict[str, str] = {
    "payload": "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'o', 'a') AS BLOB) WHERE sequence = {}",
    "source record": "UPDATE events SET source_record = 'r' WHERE sequence = {}",
    "instant": "UPDATE events SET created_at = created_at + 1 WHERE sequence = {}",
    "occurred": "UPDATE events SET occurred_at = 1 WHERE sequence = {}",
    "id": "UPDATE events SET id = upper(id) || '' WHERE sequence = {}",
    "chain": "UPDATE events SET chain = zeroblob(32) WHERE sequence = {}",
    "kind": "UPDATE events SET kind = 'context', role = 'user' WHERE sequence = {}",
    "gone": "DELETE FROM events WHERE sequence = {}",
}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("sequence", [1, 2, 3, 4])
@pytest.mark.parametrize("what", EDITS)
def test_an_edited_event_is_corruption_wherever_it_stands(
    store: MemoryStore, session: Session, workspace: Path, what: str, sequence: int, compacted: bool
) -> None:
    """47: covered or not; the error names Session and event, and nothing shorter is ever returned."""
    if compacted:
        _compact(store, session, 2)
    if not edit(store.database.path, EDITS[what].format(sequence)) or what in ("payload", "id"):
        # Two texts hold no `o`, and some ids no letter: an edit that changes nothing is none.
        edit(store.database.path, f"UPDATE events SET payload = CAST('[]' AS BLOB) WHERE sequence = {sequence}")
    # Where the last event of a turn is missing, the turn's other event is the one to name.
    named = 3 if (what, sequence, compacted) == ("gone", 4, False) else sequence
    with pytest.raises(Corrupt, match=f"{session.id}.*event {named}"):
        _replayed(store, session, workspace)
    with store.claim_session(session.id, workspace) as lease, pytest.raises(Corrupt):
        lease.prove()
    with pytest.raises(Corrupt):
        list(store.iterate_events(store.get_session(session.id)))


TURN_FAULTS: dict[str, str] = {
    "starts inside": "UPDATE events SET turn_position = turn_position + 1, turn_size = 3 WHERE sequence IN (1, 2)",
    "ends inside": "UPDATE events SET turn_size = 3 WHERE sequence IN (3, 4)",
    "interleaves": "UPDATE events SET turn_id = (SELECT turn_id FROM events WHERE sequence = 1) WHERE sequence = 4",
}


@pytest.mark.parametrize("what", TURN_FAULTS)
def test_a_turn_that_is_not_whole_is_corrupt(store: MemoryStore, session: Session, workspace: Path, what: str) -> None:
    """45: also when the digests were made to agree with it."""
    edit(store.database.path, TURN_FAULTS[what])
    rechain(store.database.path)
    with pytest.raises(Corrupt, match=f"{session.id}.*turn"):
        _replayed(store, session, workspace)


def test_a_missing_tail_is_corrupt(store: MemoryStore, session: Session, workspace: Path) -> None:
    """47: the last turn was taken away; the Session's row remembers it."""
    edit(store.database.path, "DELETE FROM events WHERE sequence > 2")
    with pytest.raises(Corrupt, match="event 3 is missing"):
        _replayed(store, session, workspace)


def test_a_role_that_disagrees_with_its_kind_is_corrupt(store: MemoryStore, session: Session) -> None:
    """52: the schema refuses it, and reading does where the schema was circumvented."""
    with pytest.raises(Exception, match="CHECK"):
        edit(store.database.path, "UPDATE events SET role = 'tool' WHERE sequence = 1")
    for change in ("role = 'tool'", "kind = 'odd'"):
        edit(store.database.path, f"UPDATE events SET {change} WHERE sequence = 1", checks=False)
        with pytest.raises(Corrupt, match=session.id):
            store.read_events(session.id)


def _restate(store: MemoryStore, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the Summary says of its source, with all digests made to fit."""
    (row,) = rows(store.database.path, "SELECT sequence, payload FROM events WHERE kind = 'summary'")
    stated = orjson.loads(row[1])
    change(stated["provenance"])
    data = orjson.dumps(stated, option=orjson.OPT_SORT_KEYS)
    edit(store.database.path, "UPDATE events SET payload = ? WHERE sequence = ?", (data, row[0]))
    rechain(store.database.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda stated: stated.update(through_sequence=4),
        lambda stated: stated.update(source_event_count=3),
        lambda stated: stated.update(source_sha256="0" * 64),
        lambda stated: stated.update(source_first_event_id="x"),
        lambda stated: stated.pop("source_last_event_id"),
        lambda stated: stated.update(job_id="x"),
        lambda stated: stated.pop("job_id"),
    ],
)
def test_a_summary_must_describe_what_it_replaces(
    store: MemoryStore, session: Session, workspace: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """48: whatever it states otherwise is corruption, also when every digest fits."""
    _compact(store, session, 2)
    _restate(store, lambda stated: None)
    assert _replayed(store, session, workspace) == ["so far", "three", "four"]
    _restate(store, change)
    with pytest.raises(Corrupt, match=f"{session.id}: Summary 5"):
        _replayed(store, session, workspace)


@pytest.mark.parametrize(
    "sql",
    [
        f"UPDATE jobs SET source_sha256 = '{0:064}'",
        "UPDATE jobs SET source_first_event_id = source_last_event_id",
        "UPDATE jobs SET state = 'pending', completed_at = NULL",
        "DELETE FROM jobs",
        "UPDATE sessions SET covered_sequence = 4",
        "UPDATE sessions SET covered_sequence = 1",
        "UPDATE sessions SET summary_sequence = 4, covered_sequence = 2",
        "UPDATE sessions SET summary_sequence = 0, covered_sequence = 0",
    ],
)
def test_job_row_and_summary_agree(store: MemoryStore, session: Session, workspace: Path, sql: str) -> None:
    """48 and 49: a Summary without its job, or in another place than the row says, is never passed over."""
    _compact(store, session, 2)
    edit(store.database.path, sql)
    with pytest.raises(Corrupt, match=session.id):
        _replayed(store, session, workspace)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO event_assets SELECT session_id, sequence, 1, sha256, kind FROM event_assets",
        "INSERT INTO event_assets SELECT session_id, 1, 0, sha256, kind FROM event_assets",
        "UPDATE event_assets SET kind = 'audio'",
        "UPDATE event_assets SET ordinal = 1",
        "DELETE FROM event_assets",
    ],
)
def test_links_and_media_agree(store: MemoryStore, session: Session, workspace: Path, sql: str) -> None:
    """106 and 107: an extra, missing, renumbered or relabelled link is corruption, naming the event."""
    image = store.store_asset(b"GIF89a")
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("five", image)])
    assert _replayed(store, session, workspace)[-1] == "five"
    assert edit(store.database.path, sql) == 1
    with pytest.raises(Corrupt, match=f"{session.id}: event"):
        _replayed(store, session, workspace)


def test_an_overtaken_compaction_writes_nothing(store: MemoryStore, session: Session, workspace: Path) -> None:
    """118 and 175: the longer one is done first; the shorter must not put its Summary behind it.

    The queue runs one of them at a time, so that the overtaking is made by hand: the guard stands on its own.
    """
    for through in (2, 4):
        plan = CompactionPlan(through_sequence=through, target_tokens=64, session_tokens=0, kept_tokens=0)
        store.queue_compaction(session.id, plan)
    shorter = claims.claim(store.database, JobKind.COMPACTION, clock=store.clock)
    assert shorter is not None
    path = store.database.path
    ((token, until, owner),) = rows(
        path, "SELECT lease_token, lease_until, lease_owner FROM jobs WHERE id = ?", (shorter.job.id,)
    )
    later = "UPDATE jobs SET state = 'pending', lease_token = NULL, lease_until = NULL, lease_owner = NULL, run_at = ? "
    edit(path, later + "WHERE id = ?", (until - 1, shorter.job.id))
    _settle(store, claims.claim(store.database, JobKind.COMPACTION, clock=store.clock), "longer")
    again = "UPDATE jobs SET state = 'running', lease_token = ?, lease_until = ?, lease_owner = ? WHERE id = ?"
    edit(path, again, (token, until, owner, shorter.job.id))
    with pytest.raises((SessionBusy, PermanentFailure)):
        _settle(store, shorter, "shorter")
    assert _replayed(store, session, workspace) == ["longer"]
    shorter.fail("overtaken", permanent=True)
