"""Finding events by words, in raw history too; the index is derived, lazy and follows deletions (issue 8, item 10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import Invalid
from emelex_core.events import EventKind, ReasoningPart, TextPart, ToolCallPart
from emelex_core.sessions import search
from stores import ManualClock, edit, rows, sound


def _talk(store: MemoryStore, workspace: Path, *texts: str, title: str = "t") -> Session:
    session = store.start_session(workspace, title=title)
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user(text) for text in texts])
    return store.get_session(session.id)


def _found(store: MemoryStore, workspace: Path | None, words: str) -> list[int]:
    return [hit.sequence for hit in store.search_sessions(workspace, words).hits]


def test_every_kind_of_text_is_found(store: MemoryStore, workspace: Path) -> None:
    """Words, reasoning, calls with their arguments, results, context."""
    session = store.start_session(workspace, title="kinds")
    call = ToolCallPart(call_id="c1", name="shell", arguments={"command": "ls depot-7"})
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn(
            [
                Event.user("always weigh parcels"),
                Event(kind=EventKind.ASSISTANT, parts=(ReasoningPart(text="scales first"), TextPart(text="ok"), call)),
                Event.tool("c1", "parcel-42 found"),
                Event(kind=EventKind.CONTEXT, parts=(TextPart(text="environment note"),)),
            ]
        )
    for words, sequence in {
        "weigh": 1,
        "scales": 2,
        "depot-7": 2,
        "shell": 2,
        "parcel-42": 3,
        "environment": 4,
    }.items():
        assert _found(store, workspace, words) == [sequence], words
    (hit,) = store.search_sessions(workspace, "parcel-42").hits
    assert (hit.session_id, hit.session_title, hit.kind, hit.covered) == (session.id, "kinds", "tool", False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("don't", [1]),
        ("dont", []),
        ("ZX-41", [1]),
        ("ZX_41", []),
        ('"', [2]),
        ("%", [2]),
        ("測試", [2]),
        ("\\", [2]),
        ("say AND", []),
        ("say %", [2]),
        ("*", []),
    ],
)
def test_words_are_literal(store: MemoryStore, workspace: Path, words: str, found: list[int]) -> None:
    """147 and K11, for transcripts."""
    _talk(store, workspace, "Token ZX-41, don't say it", 'say 100% "quoted" 測試 a\\b')
    assert _found(store, workspace, words) == found


def test_appending_writes_nothing_to_the_index(store: MemoryStore, workspace: Path, path: Path) -> None:
    """The write path stays as fast as it was: searching catches up, and a reader says what it has not seen."""
    _talk(store, workspace, "one", "two")
    assert rows(path, "SELECT count(*) FROM transcript_index_docsize") == [(0,)]
    with MemoryStore.open(path.parent.parent, read_only=True) as reader:
        found = reader.search_sessions(workspace, "one")
        assert (found.hits, found.unindexed) == ((), 2)
        assert len(store.search_sessions(workspace, "one").hits) == 1
        assert len(reader.search_sessions(workspace, "one").hits) == 1
        assert reader.search_sessions(workspace, "one").unindexed == 0


def test_it_catches_up_in_short_transactions(
    store: MemoryStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By events and by bytes; one that is larger than a batch is taken alone."""
    _talk(store, workspace, *[f"word{number} " + "x" * 1_000 for number in range(9)])
    for events, size in ((2, limits.MIB), (500, 10)):
        monkeypatch.setattr(limits, "INDEX_BATCH_EVENTS", events)
        monkeypatch.setattr(limits, "INDEX_BATCH_BYTES", size)
        assert search.rebuild(store.database) == 9
        assert search.catch_up(store.database) == 0
        assert _found(store, workspace, "word8") == [9]


def test_deleting_takes_the_words_along(store: MemoryStore, workspace: Path, path: Path) -> None:
    """And row numbers that are given again are indexed again."""
    _talk(store, workspace, "kept alpha")
    gone = _talk(store, workspace, "beta one", "beta two")
    assert _found(store, workspace, "beta") == [2, 1]
    store.delete_session(gone.id)
    assert _found(store, workspace, "beta") == []
    assert rows(path, "SELECT count(*) FROM transcript_index_docsize") == [(1,)]
    again = _talk(store, workspace, "gamma")
    assert [hit.session_id for hit in store.search_sessions(workspace, "gamma").hits] == [again.id]
    assert sound(path)


def test_deleting_what_was_never_indexed(store: MemoryStore, workspace: Path) -> None:
    """Nothing is indexed for it, and what comes after it is."""
    store.delete_session(_talk(store, workspace, "beta").id)
    _talk(store, workspace, "gamma")
    assert _found(store, workspace, "gamma") == [1]


def test_scopes_and_pages(store: MemoryStore, workspace: Path, elsewhere: Path, clock: ManualClock) -> None:
    """157 and 149: by workspace, by Session; the cursor goes on without repeats."""
    first = _talk(store, workspace, "port", "port", "port " * 3)
    second = _talk(store, elsewhere, "port")
    everything = store.search_sessions(None, "port").hits
    assert len(everything) == 4
    assert [hit.session_id for hit in store.search_sessions(elsewhere, "port").hits] == [second.id]
    assert len(store.search_sessions(None, "port", session_id=first.id).hits) == 3
    for words in ("port", "%"):
        _talk(store, workspace, f"{words} %")
        whole = [hit.place for hit in store.search_sessions(None, words).hits]
        pages: list[tuple[float, int]] = []
        after = None
        while page := store.search_sessions(None, words, limit=1, after=after).hits:
            after = page[-1].place
            pages.append(after)
        assert pages == whole
    for limit in (0, limits.PAGE_EVENTS_MAX + 1):
        with pytest.raises(Invalid):
            store.search_sessions(workspace, "port", limit=limit)


@pytest.mark.parametrize("words", ["", " ", "x" * 257])
def test_what_is_no_search(store: MemoryStore, workspace: Path, words: str) -> None:
    """K11: the same bounds as for Knowledge."""
    with pytest.raises(Invalid):
        store.search_sessions(workspace, words)


def test_a_damaged_event_stops_no_search(store: MemoryStore, workspace: Path, path: Path) -> None:
    """A check names it; the others are found."""
    _talk(store, workspace, "one port", "two port")
    edit(path, "UPDATE events SET payload = CAST('{]' AS BLOB) WHERE sequence = 1")
    assert _found(store, workspace, "port") == [2]
