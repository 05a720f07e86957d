"""The Knowledge half of retention: audit lines, proposals, versions, records, indexes (behaviours 150 to 152)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emelex_core import MemoryStore
from emelex_core.archive.check import check
from emelex_core.retention.records import RetentionPolicy
from runs import active, distilled
from stores import edit, rows

Live = Callable[[int], None]


def test_what_expired_says_so(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """151: one line in the entry's record and one in the journal; new evidence brings it back."""
    distilled(store, workspace, ("db", "a"), ("pinned", "b"))
    store.pin(workspace, "pinned")
    live_through(181)
    store.maintain()
    assert active(store, workspace) == {"pinned": "b"}
    change = store.knowledge_changes(workspace, "db")[0]
    assert (change.action, change.actor, change.active_after) == ("expired", "retention", False)
    assert change.reason == "not touched for 180 days"
    distilled(store, workspace, ("db", "a"))
    assert active(store, workspace) == {"db": "a", "pinned": "b"}


def test_an_undo_does_not_bring_back_what_expired(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """ADR 0018: retention has changed the entry since."""
    run = distilled(store, workspace, ("db", "a"))
    live_through(181)
    store.maintain()
    assert store.undo(workspace, run.job_id).kept == ("db",)


def test_a_purge_takes_proposals_of_its_key_along(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """151 and K12: and the key stays forgotten."""
    distilled(store, workspace, ("db", "a"), ("other", "x"))
    store.forget(workspace, "db")
    store.pin(workspace, "other")
    distilled(store, workspace, ("db", "b"), ("other", "y"))
    assert len(store.review(workspace)) == 2
    live_through(31)
    store.maintain()
    assert [found.key for found in store.review(workspace)] == ["other"]
    assert rows(store.database.path, "SELECT count(*) FROM knowledge WHERE key = 'db'") == [(0,)]
    assert distilled(store, workspace, ("db", "c")).applied.outcomes[0].reason == "forgotten"


def test_proposals_that_nobody_decided_on_go(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """With a line in the journal; what was decided goes that long after its decision."""
    store.remember(workspace, "db", "mine")
    store.remember(workspace, "port", "mine")
    store.pin(workspace, "db")
    store.pin(workspace, "port")
    distilled(store, workspace, ("db", "b"), ("port", "c"))
    live_through(179)
    store.reject(workspace, store.review(workspace)[1].id)
    live_through(2)
    report = store.maintain()
    assert {phase.name: len(phase.removals) for phase in report.phases}["knowledge_proposals"] == 1
    assert rows(store.database.path, "SELECT key FROM knowledge_proposals") == [("port",)]
    assert rows(store.database.path, "SELECT count(*) FROM removals WHERE kind = 'knowledge_proposal'") == [(1,)]


def test_records_shrink_but_say_what_is_active(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """The last line of an entry stays, however old: what held then is told by it."""
    for content in "abc":
        store.remember(workspace, "db", content)
    store.pin(workspace, "db")
    live_through(366)
    store.maintain()
    assert [change.action for change in store.knowledge_changes(workspace, "db")] == ["pinned", "remembered"]
    assert [entry.content for entry in store.list_knowledge(workspace, as_of=store.clock())] == ["c"]


def test_versions_are_pruned_and_the_rest_is_sound(store: MemoryStore, workspace: Path, live_through: Live) -> None:
    """152: the active one stays wherever it stands; an undo of a run whose ground is gone changes nothing."""
    runs = [distilled(store, workspace, ("db", str(number))) for number in range(5)]
    store.activate(workspace, "db", version=1)
    live_through(1)
    store.maintain(RetentionPolicy(versions=2))
    assert [found.version for found in store.knowledge_history(workspace, "db")] == [5, 4, 1]
    assert store.undo(workspace, runs[-1].job_id).kept == ("db",)
    assert check(store).findings == ()


def test_a_check_makes_broken_indexes_anew(store: MemoryStore, workspace: Path, path: Path) -> None:
    """Issue 8, item 10: derived, so that they can be rebuilt; until then a check says what is wrong."""
    distilled(store, workspace, ("db", "PostgreSQL"), ("port", "5433"))
    store.search_sessions(workspace, "5433")
    edit(path, "DELETE FROM knowledge_index WHERE rowid = 1")
    edit(path, "INSERT INTO knowledge_index (rowid, key, content) VALUES (77, 'ghost', 'ghost')")
    edit(path, "DELETE FROM transcript_index WHERE rowid = 1")
    report = check(store)
    assert (report.derived, report.damage) == (2, 0)
    assert {finding.area for finding in report.findings} == {"search"}
    assert check(store, repair=True).repaired == 2
    assert check(store).findings == ()
    assert [hit.entry.key for hit in store.search_knowledge(workspace, "postgresql")] == ["db"]
    assert len(store.search_sessions(workspace, "PostgreSQL").hits) == 1
    assert store.search_knowledge(workspace, "ghost") == []
