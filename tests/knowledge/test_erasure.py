"""Erasing a Session with what was derived from it, and what stays without (issue 8, item 9; reports, K12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, limits
from emelex_core.archive.check import check
from emelex_core.errors import NotFound, SessionBusy
from emelex_core.jobs.kinds import JobKind
from emelex_core.retention.records import RetentionPolicy
from emelex_core.sessions import removed
from emelex_core.sessions.records import ImportSource
from emelex_queue import claims
from foreign import put_lines
from foreign_rows import growing_codex
from runs import active, distilled, holding, summarised
from stores import behind, rows, sound
from transcripts import import_into

TOKEN = "ZX-41"


@pytest.fixture
def home(path: Path) -> Path:
    return path.parent.parent


def test_a_session_goes_with_all_that_was_derived(store: MemoryStore, workspace: Path, home: Path) -> None:
    """Knowledge under a key that names it, a proposal, a Summary, a diagnostic, both indexes: grep finds nothing."""
    store.remember(workspace, "mine", "my own")
    run = distilled(store, workspace, (f"token.{TOKEN.lower()}", f"the token is {TOKEN}"), ("mine", f"{TOKEN} too"))
    summarised(store, run.session, 2, f"They spoke of {TOKEN}.")
    with store.claim_session(run.session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user(f"again {TOKEN}"), Event.user("filler " * 2_000)])
        lease.release(distill=True)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    job.fail(f"cannot read {TOKEN}", permanent=True)
    assert len(store.search_sessions(workspace, TOKEN).hits) >= 3
    assert len(store.search_knowledge(workspace, TOKEN)) == 1
    assert holding(home, TOKEN)
    receipt = store.erase_session(run.session.id)
    assert holding(home, TOKEN) == []
    assert receipt.deleted is not None
    assert (receipt.deleted.events, receipt.deleted.jobs, receipt.deleted.knowledge) == (5, 3, 0)
    derived = receipt.derived
    assert (derived.knowledge, derived.versions, derived.kept, derived.proposals) == (1, 1, 0, 1)
    assert receipt.clean
    assert active(store, workspace) == {"mine": "my own"}
    assert store.review(workspace) == []
    assert sound(store.database.path)
    assert check(store).findings == ()


def test_the_words_leave_the_indexes_themselves(store: MemoryStore, workspace: Path, path: Path) -> None:
    """An index holds no text, but it holds words: after an erasure it does not."""
    run = distilled(store, workspace, ("k", "quizzaciously said"))
    distilled(store, workspace, ("other", "plainly said"))
    store.search_sessions(workspace, "said")

    def terms(table: str) -> set[str]:
        with behind(path) as raw:
            raw.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, {table}, row)")
            return {term for (term,) in raw.execute("SELECT term FROM temp.words")}

    for table in ("knowledge_index", "transcript_index"):
        assert "quizzaciously" in terms(table)
    store.erase_session(run.session.id)
    for table in ("knowledge_index", "transcript_index"):
        assert "quizzaciously" not in terms(table)
        assert "plainly" in terms(table)


def test_the_long_way_round(
    store: MemoryStore, workspace: Path, home: Path, live_through: Callable[[int], None]
) -> None:
    """K12: delete says what remains; forget takes it out of search; after the grace grep finds nothing."""
    run = distilled(store, workspace, ("token", f"the token is {TOKEN}"), ("other", f"also {TOKEN}"))
    store.forget(workspace, "other")
    distilled(store, workspace, ("other", f"again {TOKEN}"), session=run.session)
    store.delete_session(run.session.id)
    left = store.derived_from(run.session.id)
    assert (left.knowledge, left.versions, left.proposals) == (2, 2, 1)
    assert len(store.search_knowledge(workspace, TOKEN)) == 1
    store.forget(workspace, "token")
    assert store.search_knowledge(workspace, TOKEN) == []
    live_through(29)
    store.maintain(vacuum=True)
    assert holding(home, TOKEN)
    live_through(2)
    store.maintain(vacuum=True)
    assert holding(home, TOKEN) == []
    assert store.derived_from(run.session.id).versions == 0
    # 140 outlives the purge: the key comes back as a proposal, not by itself.
    assert distilled(store, workspace, ("token", "new")).applied.outcomes[0].reason == "forgotten"
    store.accept(workspace, store.review(workspace)[0].id)
    assert active(store, workspace) == {"token": "new"}


def test_what_another_session_bears_out_stays(store: MemoryStore, workspace: Path, path: Path) -> None:
    """A version rests on that Session then; erasing that one too takes it away."""
    first = distilled(store, workspace, ("db", "PostgreSQL 15"), ("old", "one"))
    second = distilled(store, workspace, ("db", "PostgreSQL 15"))
    receipt = store.erase_session(first.session.id)
    assert (receipt.derived.kept, receipt.derived.versions, receipt.derived.knowledge) == (1, 1, 1)
    entry = store.get_knowledge(workspace, "db")
    assert (entry.session_id, entry.job_id, entry.source_alive) == (second.session.id, second.job_id, True)
    assert check(store).findings == ()
    assert rows(path, "SELECT count(*) FROM knowledge_evidence") == [(0,)]
    store.erase_session(second.session.id)
    assert active(store, workspace) == {}
    assert store.search_knowledge(workspace, "PostgreSQL") == []


def test_an_entry_falls_back_to_what_is_left(store: MemoryStore, workspace: Path) -> None:
    """As if the Session had never been; its record says that something was erased."""
    distilled(store, workspace, ("db", "PostgreSQL 15"))
    newer = distilled(store, workspace, ("db", "PostgreSQL 16"))
    store.pin(workspace, "db")
    store.erase_session(newer.session.id)
    entry = store.get_knowledge(workspace, "db")
    assert (entry.content, entry.version, entry.pinned) == ("PostgreSQL 15", 1, True)
    assert [hit.entry.content for hit in store.search_knowledge(workspace, "PostgreSQL")] == ["PostgreSQL 15"]
    assert [change.action for change in store.knowledge_changes(workspace, "db")] == ["erased", "pinned", "upserted"]


def test_what_a_person_typed_stays(store: MemoryStore, workspace: Path) -> None:
    """Also where they named the Session as its source; what they only accepted goes."""
    from emelex_core.knowledge.by_hand import SourceEvent

    store.remember(workspace, "mine", "a")
    run = distilled(store, workspace, ("mine", "b"))
    store.accept(workspace, store.review(workspace)[0].id)
    store.remember(workspace, "noted", "c", source=SourceEvent(session_id=run.session.id))
    store.erase_session(run.session.id)
    assert active(store, workspace) == {"mine": "a", "noted": "c"}


def test_what_a_deleted_session_left_can_be_erased_later(store: MemoryStore, workspace: Path) -> None:
    """By its full id; when nothing is left, it is not found."""
    run = distilled(store, workspace, ("db", "a"))
    store.delete_session(run.session.id)
    receipt = store.erase_session(run.session.id)
    assert (receipt.deleted, receipt.derived.knowledge) == (None, 1)
    assert active(store, workspace) == {}
    with pytest.raises(NotFound):
        store.erase_session(run.session.id)


def test_nobody_loses_a_session_in_use(store: MemoryStore, workspace: Path) -> None:
    """155: and nothing that was derived goes."""
    run = distilled(store, workspace, ("db", "a"))
    with store.claim_session(run.session.id, workspace), pytest.raises(SessionBusy):
        store.erase_session(run.session.id)
    assert active(store, workspace) == {"db": "a"}


def test_a_reader_in_the_way_is_told(store: MemoryStore, workspace: Path, home: Path, path: Path) -> None:
    """153: the receipt does not claim what is not so; a later maintenance finishes it."""
    run = distilled(store, workspace, ("db", TOKEN))
    with behind(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        assert not store.erase_session(run.session.id).clean
        reader.execute("COMMIT")
    assert active(store, workspace) == {}
    store.maintain(vacuum=True)
    assert holding(home, TOKEN) == []


def test_removed_sources_are_remembered(store: MemoryStore, workspace: Path, home: Path) -> None:
    """So that the next import asks; only a digest is kept."""
    source = ImportSource(source="elsewhere", source_id="secret-place-7", cwd=None)
    session = store.start_session(workspace, title="t", source=source)
    store.delete_session(session.id)
    with store.database.write() as transaction:
        found = removed.find(transaction, "elsewhere", "secret-place-7")
        assert found is not None
        assert (found.session_id, found.removed_at) == (session.id, store.clock())
        assert removed.find(transaction, "elsewhere", "secret-place-8") is None
        assert removed.clear(transaction, "elsewhere", "secret-place-7")
        assert removed.find(transaction, "elsewhere", "secret-place-7") is None
    store.maintain(vacuum=True)
    assert holding(home, "secret-place-7") == []


def test_retention_remembers_them_too(
    store: MemoryStore, workspace: Path, tmp_path: Path, live_through: Callable[[int], None]
) -> None:
    """150: a Session that aged out does not come back with the next import, unless it is asked for."""
    path = put_lines(tmp_path, "rollout-1.jsonl", growing_codex())
    (session,) = import_into(store, path, workspace=workspace, distill=False).sessions
    live_through(2)
    report = store.maintain(RetentionPolicy(session_ms=limits.DAY_MS)).sessions
    assert report is not None
    assert len(report.phase.removals) == 1
    with store.database.read() as transaction:
        assert removed.find(transaction, session.source, session.source_id) is not None
    totals = import_into(store, path, workspace=workspace).totals
    assert (totals.removed, totals.sessions) == (1, 0)
    assert store.list_sessions() == []
