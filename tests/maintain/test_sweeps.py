"""Retention of Knowledge, its versions and finished jobs (behaviours 150 to 152, 177; the seed)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.db import statements
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_core.retention import journal
from emelex_core.retention.records import MaintenanceReport, RetentionPolicy
from emelex_queue import claims
from stores import DAY, ManualClock, edit, rows

Live = Callable[[int], None]
Talk = Callable[..., Session]
Learn = Callable[..., None]


def _counts(report: MaintenanceReport) -> dict[str, int]:
    assert report.problems == ()
    return {phase.name: len(phase.removals) for phase in report.phases}


def test_old_knowledge_is_hidden_first_and_purged_after_its_grace(
    store: MemoryStore, learn: Learn, live_through: Live, home: Home, workspace: Path
) -> None:
    """151: a tombstone can be brought back for 30 days; then the entry goes with all its versions."""
    learn("rule.parcels")
    live_through(181)
    assert _counts(store.maintain()) | {"purged_knowledge": 0} == {
        "purged_knowledge": 0,
        "tombstoned_knowledge": 1,
        "knowledge_versions": 0,
        "knowledge_proposals": 0,
        "completed_jobs": 0,
        "failed_jobs": 0,
    }
    assert store.list_knowledge(workspace) == []
    assert rows(home.database, "SELECT tombstoned_by FROM knowledge") == [("retention",)]
    live_through(29)
    assert _counts(store.maintain())["purged_knowledge"] == 0
    live_through(2)
    assert _counts(store.maintain())["purged_knowledge"] == 1
    assert rows(home.database, "SELECT count(*) FROM knowledge_versions") == [(0,)]


def test_pinned_knowledge_is_kept(
    store: MemoryStore, learn: Learn, pin: Callable[[str], None], live_through: Live, workspace: Path
) -> None:
    """150: however old it is, and however many versions it has."""
    for number in range(12):
        learn("rule.parcels", f"Parcels are weighed {number} times.")
    pin("rule.parcels")
    live_through(400)
    counts = _counts(store.maintain(RetentionPolicy(versions=1)))
    assert counts["tombstoned_knowledge"] == counts["knowledge_versions"] == 0
    assert [entry.version for entry in store.list_knowledge(workspace)] == [12]


def test_old_versions_go_and_the_active_one_stays(store: MemoryStore, learn: Learn, home: Home) -> None:
    """152 and 142: the newest so many, and the active one wherever it stands; the next version counts on."""
    for number in range(12):
        learn("rule.parcels", f"Parcels are weighed {number} times.")
    edit(home.database, "UPDATE knowledge SET active_version = 2")
    report = store.maintain(RetentionPolicy(versions=3))
    assert _counts(report)["knowledge_versions"] == 8
    kept = [row[0] for row in rows(home.database, "SELECT version FROM knowledge_versions ORDER BY version")]
    assert kept == [2, 10, 11, 12]
    learn("rule.parcels", "Parcels are not weighed.")
    assert rows(home.database, "SELECT max(version) FROM knowledge_versions") == [(13,)]


def _complete(store: MemoryStore, kind: JobKind = JobKind.DISTILLATION) -> str:
    lease = claims.claim(store.database, kind, clock=store.clock)
    assert lease is not None
    lease.complete(lambda transaction: None, record={"rules": "test"})
    return lease.job.id


def _say_more(store: MemoryStore, session: Session, workspace: Path) -> None:
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("And more."), Event.assistant("More.")])
        lease.release(distill=True)


def test_the_watermark_survives_the_job_history(
    store: MemoryStore, talk: Talk, workspace: Path, live_through: Live, home: Home
) -> None:
    """177: overtaken distillations go, the newest of a Session stays; so nothing is evidence twice."""
    session = talk(distill=True)
    made = [_complete(store)]
    for _ in range(3):
        _say_more(store, session, workspace)
        made.append(_complete(store))
    mark = statements.load("emelex_core", "jobs")["distilled_through"]
    with store.database.read() as transaction:
        before = transaction.one(mark, {"session_id": session.id})
    for _ in range(4):
        live_through(30)
        store.claim_session(session.id, workspace).release()
    assert _counts(store.maintain())["completed_jobs"] == 3
    assert [row[0] for row in rows(home.database, "SELECT id FROM jobs")] == [made[-1]]
    assert rows(home.database, "SELECT count(*) FROM job_records") == [(1,)]
    with store.database.read() as transaction:
        assert transaction.one(mark, {"session_id": session.id}) == before
    assert store.queue_distillation(session.id).state == "completed"  # type: ignore[union-attr]  # it was published


def test_a_job_that_knowledge_or_a_proposal_names_is_kept(
    store: MemoryStore, talk: Talk, workspace: Path, learn: Learn, live_through: Live, home: Home
) -> None:
    """141: what an entry rests on can still be shown."""
    session = talk(distill=True)
    named = _complete(store)
    _say_more(store, session, workspace)
    _complete(store)
    learn("rule.parcels", job=named)
    for _ in range(4):
        live_through(30)
        store.claim_session(session.id, workspace).release()
    assert _counts(store.maintain())["completed_jobs"] == 0
    edit(home.database, "DELETE FROM knowledge_versions")
    edit(home.database, "DELETE FROM knowledge")
    assert _counts(store.maintain())["completed_jobs"] == 1


def test_a_summarys_job_is_never_pruned(store: MemoryStore, home: Home) -> None:
    """46 and 48: replay proves a Summary by its job; no statement of retention removes a compaction that completed."""
    texts = statements.load("emelex_core", "retention")
    for name in ("jobs_done", "prune_job"):
        assert "kind = 'distillation'" in texts[name]
    assert "state = 'failed'" in texts["prune_failure"]


def test_failures_that_a_later_success_covers_go(
    store: MemoryStore, talk: Talk, workspace: Path, live_through: Live, home: Home
) -> None:
    """Others stay until somebody retries them."""
    session, other = talk(distill=True), talk(distill=True)
    for _ in range(2):
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        lease.fail("it cannot be done", permanent=True)
    _say_more(store, session, workspace)
    _complete(store)
    for _ in range(4):
        live_through(30)
        for one in (session, other):
            store.claim_session(one.id, workspace).release()
    assert _counts(store.maintain())["failed_jobs"] == 1
    assert [job.session_id for job in reading.failed_jobs(store.database)] == [other.id]


def test_the_journal_says_what_went_and_holds_no_text(
    store: MemoryStore, talk: Talk, learn: Learn, live_through: Live, home: Home
) -> None:
    """K12: what is deleted does not live on in the record of its deletion; the journal forgets after a year."""
    learn("rule.ZX-41", "ZX-41 is a parcel.")
    talk("About ZX-41")
    live_through(220)
    store.maintain()
    live_through(31)
    store.maintain()
    lines = journal.page(store.database)
    assert {line.kind for line in lines} == {"session", "knowledge_tombstone", "knowledge"}
    assert [line.row for line in journal.page(store.database, limit=2, before=lines[0].row)] == [
        line.row for line in lines[1:3]
    ]
    assert "ZX-41" not in repr(rows(home.database, "SELECT * FROM removals"))
    live_through(366)
    store.maintain()
    assert journal.page(store.database) == []


def test_forgotten_words_are_gone_from_the_disk_in_the_end(
    store: MemoryStore, learn: Learn, talk: Talk, live_through: Live, home: Home
) -> None:
    """K12: after the grace and a vacuum, no file below `memory` holds them."""
    learn("rule.ZX-41", "ZX-41 is a parcel.")
    talk("About ZX-41")
    assert _grep(home, "ZX-41")
    live_through(220)
    store.maintain()
    live_through(31)
    report = store.maintain(vacuum=True)
    assert report.file is not None
    assert report.file.vacuum == "whole"
    assert not report.file.wal_busy
    assert _grep(home, "ZX-41") == []


def _grep(home: Home, words: str) -> list[str]:
    """The files that hold the words. Another process reads: by hand, this one would drop the store's locks."""
    found = subprocess.run(["grep", "-rl", words, str(home.memory)], capture_output=True, text=True, check=False)
    return found.stdout.splitlines()


@pytest.mark.parametrize("limit", [0, 10_001])
def test_pages_of_the_journal_are_bounded(store: MemoryStore, limit: int) -> None:
    """43."""
    from emelex_core.errors import Invalid

    with pytest.raises(Invalid):
        journal.page(store.database, limit=limit)


def test_time_that_is_not_believed_purges_nothing(
    store: MemoryStore, learn: Learn, clock: ManualClock, home: Home
) -> None:
    """K4 for Knowledge: a leap neither hides nor purges."""
    learn("rule.parcels")
    store.maintain()
    clock.turn(400 * DAY)
    assert sum(_counts(store.maintain()).values()) == 0
    assert rows(home.database, "SELECT tombstoned_at FROM knowledge") == [(None,)]
