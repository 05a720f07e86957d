"""Sameness of sentences and keys made by code (behaviours 137, 177)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import limits
from emelex_workers.text import keys


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The staging port is 8080.", "The staging port is now 9090!"),
        ("Always use tabs in Makefiles.", "Never use tabs in Makefiles."),
        ("The delivery address is Harbour Road 7.", "The delivery address is Market Square 12."),
        ("Die Lieferadresse ist Hafenweg 7.", "Die Lieferadresse lautet Marktplatz 12."),
        ("La dirección de entrega es Calle Sol 3.", "La dirección de entrega es Plaza Mayor 9."),
        ("Python 3.11 is required.", "Python 3.12 is required."),
    ],
)
def test_a_newer_value_has_the_same_identity_and_key(older: str, newer: str) -> None:
    assert keys.identity(older) == keys.identity(newer)
    assert keys.key_of(older, "fact") == keys.key_of(newer, "fact")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("The API is slow.", "The API is written in Go."),
        ("`src/a.py` parses the input.", "`src/b.py` parses the input."),
        ("The billing address is Harbour Road 7.", "The delivery address is Harbour Road 7."),
    ],
)
def test_different_facts_stay_apart(left: str, right: str) -> None:
    assert keys.identity(left) != keys.identity(right)
    assert keys.key_of(left, "fact") != keys.key_of(right, "fact")


def test_keys_are_readable() -> None:
    assert keys.key_of("We always run the tests with pytest -q.", "rule") == "rule.run-tests-pytest"
    assert keys.key_of("The default branch is main.", "fact") == "fact.default-branch"


@given(st.text(min_size=1, max_size=400))
def test_any_text_has_a_stable_bounded_key(text: str) -> None:
    key = keys.key_of(text, "fact")
    assert key == keys.key_of(text, "fact")
    assert key.startswith("fact.")
    assert len(key.encode()) <= limits.KNOWLEDGE_KEY_BYTES_MAX
    assert len(key.split()) == 1


@given(st.text(min_size=1, max_size=300))
def test_numbered_keys_stay_bounded_and_differ(key: str) -> None:
    following = keys.numbered(key)
    assert following != key
    assert len(following.encode()) <= limits.KNOWLEDGE_KEY_BYTES_MAX
    assert keys.numbered("fact.port") == "fact.port-2"
    assert keys.numbered("fact.port-2") == "fact.port-3"


WORDS = st.frozensets(st.sampled_from("abcdefghijklmnop"), min_size=3, max_size=8)


@given(st.lists(WORDS, max_size=30))
def test_the_index_finds_what_comparing_with_each_finds(frames: list[keys.Frame]) -> None:
    """Prefix filtering is a shortcut, never another answer."""
    index, kept = keys.FrameIndex(0.7), list[keys.Frame]()
    for shape in frames:
        is_new = not any(keys.similarity(shape, known) >= 0.7 for known in kept)
        assert index.add(shape) is is_new
        if is_new:
            kept.append(shape)
