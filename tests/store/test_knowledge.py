"""Applying distilled candidates, and reading them (behaviours 137, 138, 140, 145, 148, 149, 172): all or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import Corrupt, Invalid, NotFound
from emelex_core.jobs.kinds import JobKind
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge.records import Applied, Evidence, Source, Upsert
from emelex_queue import claims
from emelex_queue.lease import JobLease
from stores import DAY, ManualClock, edit, rows


def _upsert(key: str = "db", content: str = "PostgreSQL 15", confidence: float = 0.9) -> Upsert:
    evidence = Evidence(event_id="e", sequence=1, speaker="user", quote="PostgreSQL")
    return Upsert(key=key, content=content, confidence=confidence, evidence=evidence)


def _claimed(store: MemoryStore, session: Session, workspace: Path) -> JobLease:
    """A claimed distillation of a transcript that has just grown."""
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("more")])
        lease.release(distill=True)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    return job


def _complete(store: MemoryStore, job: JobLease, candidates: Sequence[Upsert]) -> Applied:
    applied: list[Applied] = []
    workspace_id = store.get_session(job.job.session_id).workspace_id
    source = Source(
        made_by=b"{}",
        job_id=job.job.id,
        session_id=job.job.session_id,
        first_sequence=1,
        last_sequence=job.job.source.through_sequence,
        sha256=job.job.source.source_sha256,
    )

    def write(transaction: Any) -> None:
        applied.append(knowledge.apply(transaction, workspace_id, candidates, source=source, now=store.clock()))

    job.complete(write, record={})
    return applied[0]


def _learn(store: MemoryStore, session: Session, workspace: Path, *candidates: Upsert) -> Applied:
    return _complete(store, _claimed(store, session, workspace), candidates)


BAD: dict[str, list[Upsert]] = {
    "too many": [_upsert(str(number)) for number in range(limits.CANDIDATES_MAX + 1)],
    "a key twice": [_upsert("a"), _upsert("b"), _upsert("a")],
    "nan": [_upsert("a"), _upsert("b", confidence=math.nan)],
    "infinite": [_upsert(confidence=math.inf)],
    "above one": [_upsert(confidence=1.01)],
    "below zero": [_upsert(confidence=-0.01)],
    "a blank key": [_upsert(" ")],
    "a long key": [_upsert("k" * 257)],
    "a surrogate": [_upsert("a"), _upsert("\ud800")],
    "blank content": [_upsert(content="\n")],
    "long content": [_upsert(content="x" * (limits.MIB + 1))],
    "a blank quote": [replace(_upsert(), evidence=Evidence(event_id="e", sequence=1, speaker="user", quote=""))],
    "a surrogate speaker": [
        _upsert("a"),
        replace(_upsert(), evidence=Evidence(event_id="e", sequence=1, speaker="\ud800", quote="q")),
    ],
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_candidate_refuses_all_and_the_job_runs_on(
    store: MemoryStore, session: Session, workspace: Path, what: str
) -> None:
    """137 and 183: nothing of the others is applied, and the same lease can still settle."""
    job = _claimed(store, session, workspace)
    with pytest.raises(Invalid):
        _complete(store, job, BAD[what])
    for table in ("knowledge", "knowledge_versions", "knowledge_proposals", "job_records"):
        assert rows(store.database.path, f"SELECT count(*) FROM {table}") == [(0,)]
    assert rows(store.database.path, "SELECT state, failure_count FROM jobs") == [("running", 0)]
    assert _complete(store, job, [_upsert()]) == Applied(changed=1, unchanged=0, proposed=0)


def test_128_candidates_and_none_are_both_fine(store: MemoryStore, session: Session, workspace: Path) -> None:
    """137 and 184: "nothing to remember" is success."""
    many = [_upsert(str(number)) for number in range(limits.CANDIDATES_MAX)]
    assert _learn(store, session, workspace, *many).changed == limits.CANDIDATES_MAX
    assert _learn(store, session, workspace) == Applied(changed=0, unchanged=0, proposed=0)


def test_a_change_is_a_version_and_the_same_is_none(store: MemoryStore, session: Session, workspace: Path) -> None:
    """138: versions count up and stay; provenance and evidence stand in each."""
    assert _learn(store, session, workspace, _upsert()).changed == 1
    assert _learn(store, session, workspace, _upsert(confidence=0.1)).unchanged == 1
    assert _learn(store, session, workspace, _upsert(content="PostgreSQL 16")).changed == 1
    entry = store.get_knowledge(workspace, "db")
    assert (entry.version, entry.content, entry.origin, entry.pinned) == (2, "PostgreSQL 16", "distillation", False)
    assert entry.evidence == _upsert().evidence
    assert entry.session_id == session.id
    assert entry.source_alive
    assert rows(store.database.path, "SELECT version, content FROM knowledge_versions ORDER BY version") == [
        (1, "PostgreSQL 15"),
        (2, "PostgreSQL 16"),
    ]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE knowledge SET pinned = 1", "pinned"),
        ("UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = 'user'", "forgotten"),
        ("UPDATE knowledge_versions SET origin = 'user'", "user_written"),
    ],
)
def test_what_a_person_decided_is_not_changed_but_proposed(
    store: MemoryStore, session: Session, workspace: Path, sql: str, reason: str
) -> None:
    """138 and 140: the candidate waits for review, with its evidence; the entry stays as it was."""
    _learn(store, session, workspace, _upsert())
    edit(store.database.path, sql)
    before = store.get_knowledge(workspace, "db")
    other = _upsert(content="PostgreSQL 16")
    assert _learn(store, session, workspace, other) == Applied(changed=0, unchanged=0, proposed=1)
    assert store.get_knowledge(workspace, "db") == before
    assert rows(store.database.path, "SELECT key, content, reason, evidence_quote FROM knowledge_proposals") == [
        ("db", "PostgreSQL 16", reason, "PostgreSQL")
    ]


def test_a_forgotten_key_stays_forgotten_even_with_the_same_words(
    store: MemoryStore, session: Session, workspace: Path
) -> None:
    """140."""
    _learn(store, session, workspace, _upsert())
    edit(store.database.path, "UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = 'user'")
    assert _learn(store, session, workspace, _upsert()).proposed == 1
    assert store.list_knowledge(workspace) == []


@pytest.mark.parametrize("by", ["retention", "distillation"])
def test_what_no_person_took_away_comes_back(store: MemoryStore, session: Session, workspace: Path, by: str) -> None:
    """140, from the other side: with its new evidence, as a new version."""
    _learn(store, session, workspace, _upsert())
    edit(store.database.path, "UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = ?", (by,))
    assert store.list_knowledge(workspace) == []
    assert _learn(store, session, workspace, _upsert()).changed == 1
    (entry,) = store.list_knowledge(workspace)
    assert (entry.version, entry.tombstoned_at) == (2, None)


def test_after_an_older_version_was_activated_numbers_go_on(
    store: MemoryStore, session: Session, workspace: Path
) -> None:
    """142: the next is past the newest, not past the active one."""
    for content in ("a", "b"):
        _learn(store, session, workspace, _upsert(content=content))
    edit(store.database.path, "UPDATE knowledge SET active_version = 1")
    _learn(store, session, workspace, _upsert(content="c"))
    assert store.get_knowledge(workspace, "db").version == 3


def test_the_last_version_number_is_an_end(store: MemoryStore, session: Session, workspace: Path) -> None:
    """148: Corrupt, and nothing of the batch is written."""
    _learn(store, session, workspace, _upsert())
    edit(store.database.path, "UPDATE knowledge_versions SET version = 4294967295")
    edit(store.database.path, "UPDATE knowledge SET active_version = 4294967295")
    job = _claimed(store, session, workspace)
    with pytest.raises(Corrupt, match="version"):
        _complete(store, job, [_upsert("another"), _upsert(content="b")])
    assert [entry.key for entry in store.list_knowledge(workspace)] == ["db"]


def test_pages_of_knowledge(
    store: MemoryStore, session: Session, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """149 and limits: a cursor goes on without repeats; a page is bounded in bytes, its first row always there."""
    _learn(store, session, workspace, *[_upsert(key) for key in ("a", "b", "c")])
    page = store.list_knowledge(workspace, limit=2)
    rest = store.list_knowledge(workspace, limit=2, before=(page[-1].updated_at, page[-1].row))
    assert [entry.key for entry in page + rest] == ["c", "b", "a"]
    assert store.list_knowledge(tmp_path) == []
    assert len(store.list_knowledge(None)) == 3
    for limit in (0, limits.PAGE_KNOWLEDGE_MAX + 1):
        with pytest.raises(Invalid):
            store.list_knowledge(workspace, limit=limit)
    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 1)
    assert len(store.list_knowledge(workspace)) == 1


def test_a_key_is_a_literal(store: MemoryStore, session: Session, workspace: Path, tmp_path: Path) -> None:
    """K11: `%` and `_` find nothing but themselves; a surrogate is refused, not a traceback."""
    _learn(store, session, workspace, _upsert("100%"), _upsert("a_b"))
    assert store.get_knowledge(workspace, "100%").key == "100%"
    for key in ("%", "a%", "axb", "", "'"):
        with pytest.raises(NotFound):
            store.get_knowledge(workspace, key)
    with pytest.raises(NotFound):
        store.get_knowledge(tmp_path, "100%")
    with pytest.raises(Invalid):
        store.get_knowledge(workspace, "\ud800")


def test_a_later_change_sorts_first_while_the_clock_stands(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """K2: order never rests on the clock alone."""
    _learn(store, session, workspace, _upsert("a"), _upsert("b"))
    clock.turn(-60_000)
    _learn(store, session, workspace, _upsert("a", content="other"))
    assert [entry.key for entry in store.list_knowledge(workspace)] == ["a", "b"]


def test_an_entry_that_a_wrong_clock_dated_ahead_comes_down(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock, path: Path
) -> None:
    """182: its next version is dated by the clock that is right."""
    _learn(store, session, workspace, _upsert())
    edit(path, "UPDATE knowledge SET updated_at = ?", (clock.now + 400 * DAY,))
    clock.turn(DAY)
    assert _learn(store, session, workspace, _upsert(content="PostgreSQL 16")).changed == 1
    assert rows(path, "SELECT updated_at FROM knowledge") == [(clock.now,)]
