"""`memory knowledge list` and `show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Session
from program import TRICKY, Program

Talk = Callable[..., Session]
Learn = Callable[..., None]


def test_an_entry_is_shown_with_what_it_rests_on(emelex: Program, talk: Talk, learn: Learn) -> None:
    """Content, confidence, version, the quoted words with their event and Session."""
    session = talk(1)
    learn("rule.weigh-first")
    found = emelex("memory", "knowledge", "show", "rule.weigh-first", "--json").json
    assert found["content"] == "Parcels are weighed before they are sorted."
    assert (found["confidence"], found["version"], found["origin"]) == (0.95, 1, "distillation")
    assert (found["session"], found["session_stored"]) == (session.id, True)
    assert found["evidence"]["quote"] == "always weigh parcels"
    text = emelex("memory", "knowledge", "show", "rule.weigh-first").out
    for told in ("rule.weigh-first", "confidence 0.95", '"always weigh parcels"', "event 1", session.id):
        assert told in text


def test_list_pages(emelex: Program, talk: Talk, learn: Learn) -> None:
    """Three rows, limit two: the cursor yields the third (149)."""
    for number in range(3):
        talk(1)
        learn(f"rule.number-{number}", f"Content {number}.")
    first = emelex("memory", "knowledge", "list", "--limit", "2", "--json").lines
    rest = emelex("memory", "knowledge", "list", "--cursor", first[-1]["cursor"], "--json").lines
    assert [entry["key"] for entry in (*first, *rest)] == [f"rule.number-{number}" for number in (2, 1, 0)]
    assert emelex("memory", "knowledge", "list").out.splitlines()[0].split() == [
        "key",
        "sure",
        "state",
        "since",
        "source",
        "content",
    ]


def test_knowledge_belongs_to_its_workspace(emelex: Program, talk: Talk, learn: Learn, elsewhere: Path) -> None:
    """Another workspace sees it with `--all` only, and cannot show it."""
    talk(1)
    learn("rule.weigh-first")
    assert emelex("-C", elsewhere, "memory", "knowledge", "list", "--json").lines == []
    assert len(emelex("-C", elsewhere, "memory", "knowledge", "list", "--all", "--json").lines) == 1
    assert emelex("-C", elsewhere, "memory", "knowledge", "show", "rule.weigh-first").code == 3


@pytest.mark.parametrize("key", ["rule.weigh-firs", "", "%", "' OR 1=1 --", "🎈", "k" * 100_000])
def test_an_unknown_key_is_not_found(emelex: Program, talk: Talk, learn: Learn, key: str) -> None:
    """Keys are plain text: no wildcard, no SQL."""
    talk(1)
    learn("rule.weigh-first")
    assert emelex("memory", "knowledge", "show", key, "--json").code == 3


def test_keys_and_contents_are_harmless(emelex: Program, talk: Talk, learn: Learn) -> None:
    """What a model wrote cannot steer a terminal (159)."""
    talk(1)
    learn("rule.\u202etricky", TRICKY)
    for result in (
        emelex("memory", "knowledge", "list"),
        emelex("memory", "knowledge", "show", "rule.\u202etricky"),
        emelex("memory", "knowledge", "show", "rule.\u202etricky", "--json"),
    ):
        assert result.code == 0
        assert not {"\x1b", "\x07", "\u202e", "\u2066", "\x9b"} & set(result.out)
