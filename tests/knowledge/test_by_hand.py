"""What a person does with Knowledge, and what waits for them (behaviours 142 to 145, 148)."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from emelex_core.errors import Corrupt, Invalid, NotFound, WorkspaceMismatch
from emelex_core.knowledge.by_hand import SourceEvent
from runs import active, distilled
from stores import edit, rows


def test_versions_count_up(store: MemoryStore, workspace: Path) -> None:
    """142: remember twice is version 2; after activating 1 the next is 3; identical content is none."""
    assert store.remember(workspace, "db", "a").version == 1
    assert store.remember(workspace, "db", "b").version == 2
    assert store.remember(workspace, "db", "b").version == 2
    assert store.activate(workspace, "db", version=1).content == "a"
    entry = store.remember(workspace, "db", "c")
    assert (entry.version, entry.origin, entry.confidence) == (3, "user", 1.0)
    assert [version.version for version in store.knowledge_history(workspace, "db")] == [3, 2, 1]
    assert [version.version for version in store.knowledge_history(workspace, "db", limit=1, before=3)] == [2]
    assert [change.action for change in store.knowledge_changes(workspace, "db")] == [
        "remembered",
        "activated",
        "remembered",
        "remembered",
    ]


def test_a_source_session_is_of_the_same_workspace(store: MemoryStore, workspace: Path, elsewhere: Path) -> None:
    """143: and its range and digest are kept."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("one"), Event.assistant("two")])
    source = SourceEvent(session_id=session.id, sequence=2)
    with pytest.raises(Invalid, match="another workspace"):
        store.remember(elsewhere, "db", "a", source=source)
    with pytest.raises(NotFound):
        store.remember(workspace, "db", "a", source=SourceEvent(session_id=session.id, sequence=3))
    assert store.list_knowledge(None) == []
    assert store.remember(workspace, "db", "a", source=source).session_id == session.id
    (stored,) = rows(
        store.database.path,
        "SELECT source_session_id, source_first_sequence, source_last_sequence, length(source_sha256) "
        "FROM knowledge_versions",
    )
    assert stored == (session.id, 2, 2, 64)


def test_another_workspace_changes_nothing(store: MemoryStore, workspace: Path, elsewhere: Path) -> None:
    """144: refused, naming where the key is; a key that is nowhere is not found."""
    store.remember(workspace, "db", "a")
    for change in (store.activate, store.forget, store.pin, store.unpin):
        with pytest.raises(WorkspaceMismatch, match="workspace"):
            change(elsewhere, "db")
        with pytest.raises(NotFound):
            change(workspace, "never")
    assert store.get_knowledge(workspace, "db").pinned is False
    workspace.rename(workspace.with_name("moved"))
    workspace.mkdir()
    with pytest.raises(WorkspaceMismatch):
        store.forget(workspace, "db")
    assert store.pin(workspace.with_name("moved"), "db").pinned


def test_forgetting(store: MemoryStore, workspace: Path, path: Path) -> None:
    """145: hidden, unpinned, one line in the record; once more is nothing; activate revives."""
    store.remember(workspace, "db", "a")
    store.pin(workspace, "db")
    entry = store.forget(workspace, "db", reason="wrong")
    assert (entry.pinned, entry.tombstoned_by, active(store, workspace)) == (False, "user", {})
    assert store.forget(workspace, "db") == entry
    record = [(change.action, change.reason) for change in store.knowledge_changes(workspace, "db")]
    assert record == [("forgotten", "wrong"), ("pinned", None), ("remembered", None)]
    with pytest.raises(Invalid):
        store.pin(workspace, "db")
    assert rows(path, "SELECT count(*) FROM forgotten_keys") == [(1,)]
    assert store.activate(workspace, "db").tombstoned_at is None
    assert active(store, workspace) == {"db": "a"}
    assert rows(path, "SELECT count(*) FROM forgotten_keys") == [(0,)]


def test_a_person_may_forget_what_retention_hid(store: MemoryStore, workspace: Path, path: Path) -> None:
    """140: from then on distillation does not bring it back."""
    distilled(store, workspace, ("db", "a"))
    edit(path, "UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = 'retention'")
    assert store.forget(workspace, "db").tombstoned_by == "user"
    assert distilled(store, workspace, ("db", "b")).applied.proposed == 1


def test_remembering_what_was_forgotten(store: MemoryStore, workspace: Path) -> None:
    """The same words or others: it is wanted again."""
    store.remember(workspace, "db", "a")
    store.forget(workspace, "db")
    assert store.remember(workspace, "db", "a").version == 1
    store.forget(workspace, "db")
    assert store.remember(workspace, "db", "b").version == 2
    assert active(store, workspace) == {"db": "b"}


def test_pinning_twice_is_pinning_once(store: MemoryStore, workspace: Path) -> None:
    """And so is taking the pin away."""
    store.remember(workspace, "db", "a")
    assert store.pin(workspace, "db") == store.pin(workspace, "db")
    assert store.unpin(workspace, "db") == store.unpin(workspace, "db")
    assert len(store.knowledge_changes(workspace, "db")) == 3


def test_the_last_version_number_is_an_end(store: MemoryStore, workspace: Path, path: Path) -> None:
    """148: Corrupt, nothing written."""
    store.remember(workspace, "db", "a")
    edit(path, "UPDATE knowledge_versions SET version = 4294967295")
    edit(path, "UPDATE knowledge SET active_version = 4294967295")
    with pytest.raises(Corrupt, match="version"):
        store.remember(workspace, "db", "b")
    assert active(store, workspace) == {"db": "a"}
    assert len(store.knowledge_changes(workspace, "db")) == 1


@pytest.mark.parametrize(
    ("key", "content", "confidence"),
    [("", "a", 1), (" ", "a", 1), ("k" * 257, "a", 1), ("k", " ", 1), ("k", "\ud800", 1), ("k", "a", float("nan"))],
)
def test_what_cannot_be_remembered(
    store: MemoryStore, workspace: Path, key: str, content: str, confidence: float
) -> None:
    """183: nothing is written."""
    with pytest.raises(Invalid):
        store.remember(workspace, key, content, confidence=confidence)
    assert store.list_knowledge(None) == []


def test_a_missing_version_is_not_found(store: MemoryStore, workspace: Path) -> None:
    """And activating the active one changes nothing."""
    before = store.remember(workspace, "db", "a")
    with pytest.raises(NotFound, match="version 2"):
        store.activate(workspace, "db", version=2)
    assert store.activate(workspace, "db") == before


def test_accepting_makes_it_a_persons_own(store: MemoryStore, workspace: Path) -> None:
    """138 and 140: pinned stays pinned, forgotten comes back, with the evidence; it is protected from then on."""
    distilled(store, workspace, ("pinned", "a"), ("forgotten", "a"))
    store.pin(workspace, "pinned")
    store.forget(workspace, "forgotten")
    run = distilled(store, workspace, ("pinned", "b"), ("forgotten", "b"))
    for proposal in store.review(workspace):
        assert store.accept(workspace, proposal.id[:8]).state == "accepted"
    assert active(store, workspace) == {"pinned": "b", "forgotten": "b"}
    entry = store.get_knowledge(workspace, "pinned")
    assert (entry.pinned, entry.origin, entry.session_id) == (True, "user", run.session.id)
    assert entry.evidence is not None
    assert entry.evidence.quote == "b"
    assert distilled(store, workspace, ("forgotten", "c")).applied.proposed == 1


def test_a_proposal_is_decided_once_and_at_home(store: MemoryStore, workspace: Path, elsewhere: Path) -> None:
    """144: another workspace is refused; a second decision is invalid."""
    store.remember(workspace, "db", "a")
    distilled(store, workspace, ("db", "b"))
    (proposal,) = store.review(workspace)
    assert store.review(elsewhere) == []
    with pytest.raises(WorkspaceMismatch):
        store.accept(elsewhere, proposal.id)
    assert store.reject(workspace, proposal.id).state == "rejected"
    with pytest.raises(Invalid, match="rejected"):
        store.accept(workspace, proposal.id)
    assert active(store, workspace) == {"db": "a"}
    assert store.review(workspace) == []


def test_accepting_a_tombstone_hides(store: MemoryStore, workspace: Path) -> None:
    """New evidence may bring it back: a person agreed with a run, and forgot nothing."""
    store.remember(workspace, "db", "a")
    distilled(store, workspace, ("db", None))
    store.accept(workspace, store.review(workspace)[0].id)
    assert active(store, workspace) == {}


def test_accepting_outlives_the_session(store: MemoryStore, workspace: Path) -> None:
    """141: the uuid stays, the reference is null."""
    store.remember(workspace, "db", "a")
    run = distilled(store, workspace, ("db", "b"))
    store.delete_session(run.session.id)
    store.accept(workspace, store.review(workspace)[0].id)
    entry = store.get_knowledge(workspace, "db")
    assert (entry.content, entry.session_id, entry.source_alive) == ("b", run.session.id, False)


def test_pages_of_proposals(store: MemoryStore, workspace: Path) -> None:
    """149."""
    for key in "abc":
        store.remember(workspace, key, "mine")
    distilled(store, workspace, ("a", "x"), ("b", "x"), ("c", "x"))
    page = store.review(workspace, limit=2)
    assert [found.key for found in page + store.review(workspace, after=page[-1].row)] == ["a", "b", "c"]
    with pytest.raises(Invalid):
        store.review(workspace, limit=0)
