"""Looking at a line's words first never changes an answer: `Expression` against `re`, on every expression there is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emelex_workers.text import active, cues, expressions, phrases
from emelex_workers.text.expressions import Expression, is_anchored, required_heads

ALL = {
    **{cue.name: Expression(cue.value) for cue in cues.Cue},
    **{name: value for name, value in vars(phrases).items() if isinstance(value, Expression)},
    **{name: value for name, value in vars(active).items() if isinstance(value, Expression)},
}
UNTOLD = {"QUESTION"}
"""Matches are told by a mark, not by a word."""

PIECES = sorted(
    {
        piece
        for expression in ALL.values()
        for piece in re.findall(r"[^\W\d_]+|['’]|[?!.,:]", expression.pattern)
        if len(piece) <= 14
    }
)
LINES = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=14).flatmap(
    lambda words: (
        st.sampled_from(["", " ", "\u3000"]).map(lambda gap: gap.join(words))
        | st.just(" ".join(words))
        | st.just(" ".join(words).upper())
    )
)


@pytest.mark.parametrize("name", ALL)
def test_what_a_match_must_hold_is_told(name: str) -> None:
    """An expression of which nothing can be told costs its full price on every line."""
    assert (ALL[name].heads is None) is (name in UNTOLD)


@settings(max_examples=1_500, deadline=None)
@given(LINES)
def test_the_answer_is_that_of_re(line: str) -> None:
    for name, expression in ALL.items():
        plain = re.compile(expression.pattern, re.IGNORECASE)
        assert (expression.search(line) is None) is (plain.search(line) is None), name
        assert (expression.match(line) is None) is (plain.match(line) is None), name
        assert expression.count(line) == len(plain.findall(line)), name


@pytest.mark.parametrize(
    ("pattern", "heads"),
    [
        (r"\b(?:not|never)\b", {("not", True), ("never", True)}),
        (r"\bdecid\w+", {("decid", False)}),
        (r"n['’]t\b", {("t", True)}),
        (r"(?:the|our) (?:server|port)\b", {("server", True), ("port", True)}),
        (r"^(?:please )?(?:use|run) \S", {("use", True), ("run", True)}),
        (r"禁止|never", None),
        (r"禁止|\bnever", {("", True), ("never", False)}),
        (r"\w+e (?:nicht|kein)", {("nicht", False), ("kein", False)}),
        (r"[?!]$", None),
        (r"colou?r", None),
    ],
)
def test_heads_are_read_off_an_expression(pattern: str, heads: set[tuple[str, bool]] | None) -> None:
    found = required_heads(pattern)
    assert (None if found is None else set(found)) == heads


@pytest.mark.parametrize(
    ("pattern", "anchored"),
    [(r"^a|^b", True), (r"^(?:a|b)c", True), (r"^a|b", False), (r"a", False), (r"", False), (r"(?:^a|b)", False)],
)
def test_only_what_begins_with_the_line_is_taken_for_anchored(pattern: str, anchored: bool) -> None:
    assert is_anchored(pattern) is anchored


def test_memory_is_bounded() -> None:
    """Words and lines are forgotten again."""
    expression = ALL["NEGATION"]
    for number in range(expressions.WORDS_REMEMBERED_MAX + 100):
        expression.search(f"word{number}")
    sieve = expressions._SIEVE
    assert len(sieve._known) <= expressions.WORDS_REMEMBERED_MAX
