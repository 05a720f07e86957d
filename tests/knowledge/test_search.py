"""Finding Knowledge by literal words, and what a prompt is given (behaviours 146, 147; reports, K11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.errors import Invalid
from runs import distilled
from stores import behind, edit

TEXTS = {
    "db.engine": "PostgreSQL 15; don't use the pre-edit hook at 100%",
    "a_b": 'foo AND bar, a "quoted" * star',
    "café": "naïve Straße, 測試のデータ",
    "db.port": "the port of the database is 5433",
}


@pytest.fixture
def filled(store: MemoryStore, workspace: Path) -> MemoryStore:
    for key, content in TEXTS.items():
        store.remember(workspace, key, content)
    return store


def _found(store: MemoryStore, workspace: Path | None, words: str) -> list[str]:
    return [hit.entry.key for hit in store.search_knowledge(workspace, words)]


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("don't", ["db.engine"]),
        ("pre-edit", ["db.engine"]),
        ("pre edit", ["db.engine"]),
        ("edit-pre", []),
        ('"', ["a_b"]),
        ('"quoted"', ["a_b"]),
        ("'quoted'", []),
        ("foo AND", ["a_b"]),
        ("foo OR", []),
        ("NOT foo", []),
        ("*", ["a_b"]),
        ("po*", []),
        ("100%", ["db.engine"]),
        ("100_", []),
        ("%", ["db.engine"]),
        ("_", ["a_b"]),
        ("a_b", ["a_b"]),
        ("a-b", []),
        ("key:foo", []),
        ("NEAR(foo bar)", []),
        ("^port", []),
        ("PORT", ["db.port"]),
        ("post", []),
        ("Cafe", ["café"]),
        ("naive", ["café"]),
        ("測試", ["café"]),
        ("データ 測試", ["café"]),
        ("nothing", []),
        ("\0", []),
        ("port \0", []),
        ("5433 database", ["db.port"]),
        ("(", []),
        ("-", ["db.engine"]),
    ],
)
def test_words_are_literal(filled: MemoryStore, workspace: Path, words: str, keys: list[str]) -> None:
    """147 and K11: quotes, operators and wildcards are plain text; case and diacritics make no difference."""
    assert _found(filled, workspace, words) == keys


@pytest.mark.parametrize("words", ["", " \t", "x" * 257, "é" * 129, "x" * 10_000, "\ud800"])
def test_what_is_no_search(filled: MemoryStore, workspace: Path, words: str) -> None:
    """K11 and limits: blank, over 256 bytes, no text; also where nothing is stored."""
    for place in (workspace, workspace.parent):
        with pytest.raises(Invalid):
            filled.search_knowledge(place, words)
    assert filled.search_knowledge(workspace, "x" * 256) == []


def test_the_exact_key_comes_first_then_pins_then_rank(store: MemoryStore, workspace: Path) -> None:
    """147: and each page goes on where the one before ended."""
    store.remember(workspace, "long", "port " + "filler " * 50)
    store.remember(workspace, "short", "port")
    store.remember(workspace, "pinned", "port " + "filler " * 80)
    store.remember(workspace, "port", "something else")
    store.pin(workspace, "pinned")
    expected = ["port", "pinned", "short", "long"]
    assert _found(store, workspace, "port") == expected
    for size in (1, 2, 3):
        keys: list[str] = []
        after = None
        while page := store.search_knowledge(workspace, "port", limit=size, after=after):
            assert len(page) <= size
            keys += [hit.entry.key for hit in page]
            after = page[-1].place
        assert keys == expected


def test_pages_of_what_the_index_does_not_know(store: MemoryStore, workspace: Path) -> None:
    """147 and 149: the same order without ranks."""
    for number in range(5):
        store.remember(workspace, f"k{number}", f"{number} %")
    store.pin(workspace, "k1")
    first = store.search_knowledge(workspace, "%", limit=2)
    rest = store.search_knowledge(workspace, "%", after=first[-1].place)
    assert [hit.entry.key for hit in first + rest] == ["k1", "k4", "k3", "k2", "k0"]


def test_only_what_is_active_here_is_found(filled: MemoryStore, workspace: Path, elsewhere: Path) -> None:
    """145 and 157: forgetting removes it from search at once; older versions are not found."""
    filled.remember(workspace, "db.port", "the port is 5434")
    assert _found(filled, workspace, "5433") == []
    assert _found(filled, workspace, "5434") == ["db.port"]
    filled.forget(workspace, "db.port")
    assert _found(filled, workspace, "5434") == _found(filled, workspace, "db.port") == []
    filled.activate(workspace, "db.port", version=1)
    assert _found(filled, workspace, "5433") == ["db.port"]
    assert _found(filled, elsewhere, "5433") == []
    filled.remember(elsewhere, "other", "5433")
    assert sorted(_found(filled, None, "5433")) == ["db.port", "other"]


def test_a_snippet_shows_the_word(store: MemoryStore, workspace: Path) -> None:
    """On one line, with what stands around."""
    store.remember(workspace, "k", "before " * 40 + "\nNeedle\n" + "after " * 40)
    (hit,) = store.search_knowledge(workspace, "needle")
    assert "Needle" in hit.snippet
    assert "\n" not in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 200


def test_the_index_follows_whatever_changes_the_tables(filled: MemoryStore, workspace: Path, path: Path) -> None:
    """Issue 8, item 10: also what retention and erasure do in SQL."""
    edit(path, "UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = 'retention' WHERE key = 'a_b'")
    assert _found(filled, workspace, "foo") == []
    with behind(path) as raw:
        raw.pragma("foreign_keys", "ON")
        raw.execute("DELETE FROM knowledge WHERE key = 'db.port'")
    assert _found(filled, workspace, "5433") == []
    edit(path, "UPDATE knowledge_versions SET content = 'MySQL' WHERE content LIKE 'Postgre%'")
    assert (_found(filled, workspace, "mysql"), _found(filled, workspace, "postgresql")) == (["db.engine"], [])


def test_recall_asks_for_confidence_before_it_counts(store: MemoryStore, workspace: Path) -> None:
    """146: entries that are not sure enough take no place; pins come first and are not exempt."""
    for number in range(4):
        distilled(store, workspace, (f"sure{number}", f"sure {number}"), confidence=0.7)
        distilled(store, workspace, (f"unsure{number}", f"unsure {number}"), confidence=0.69)
    store.pin(workspace, "sure1")
    store.pin(workspace, "unsure1")
    found = store.recall(workspace, entries_max=3)
    assert [entry.key for entry in found.entries] == ["sure1", "sure3", "sure2"]
    assert found.left_out == 1
    assert len(store.recall(workspace, confidence=0.0).entries) == 8


def test_recall_by_relevance(filled: MemoryStore, workspace: Path) -> None:
    """Issue 8, item 10: what shares words with the prompt comes before what is merely new; pins before both."""
    prompt = 'Which PORT does the "database" use? AND * %'
    assert next(entry.key for entry in filled.recall(workspace, prompt).entries) == "db.port"
    filled.pin(workspace, "café")
    assert [entry.key for entry in filled.recall(workspace, prompt).entries][:2] == ["café", "db.port"]
    assert len(filled.recall(workspace, "?!").entries) == 4
    assert filled.recall(workspace.parent, prompt).entries == ()


def test_a_big_entry_starves_nobody(store: MemoryStore, workspace: Path) -> None:
    """Issue 8, item 10: it waits until the others had their turn, and is never cut."""
    for number in range(3):
        store.remember(workspace, f"small{number}", "port " + "x" * 100)
    store.remember(workspace, "big", "port " * 700)
    store.pin(workspace, "big")
    keys = [entry.key for entry in store.recall(workspace, "port", budget=6 * 1024).entries]
    assert (keys[0], len(keys)) == ("big", 4)
    assert len(store.recall(workspace, "port", budget=3 * 1024).entries) == 3
    found = store.recall(workspace, "port", budget=10, measure=lambda text: len(text.split()))
    assert found.size <= 10
    assert "big" not in [entry.key for entry in found.entries]


@pytest.mark.parametrize(
    "asked",
    [{"entries_max": 0}, {"entries_max": 101}, {"budget": 0}, {"budget": 2**20 + 1}, {"confidence": 1.1}],
)
def test_what_is_no_recall(filled: MemoryStore, workspace: Path, asked: dict[str, float]) -> None:
    """Limits."""
    with pytest.raises(Invalid):
        filled.recall(workspace, **asked)  # type: ignore[arg-type]  # the values are what is tested
