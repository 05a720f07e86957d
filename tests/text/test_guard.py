"""What a model's wording must hold (behaviours 171, 184, 188; reports.md K5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core.engine.ports import FinishReason
from emelex_workers.text import grammar, guard
from emelex_workers.text.guard import Refusal
from emelex_workers.text.restate import INSTRUCTION
from emelex_workers.text.tokens import names

from .conftest import generation

LINE = (
    "So I then went ahead and very carefully updated the parser in `src/parse.py` so that it does not skip blank "
    'lines, because 42 tests had failed with "bad row" in PARSE_ROW.'
)


SHORT = (
    "Updated the parser in `src/parse.py` so that it does not skip blank lines, because 42 tests failed "
    'with "bad row" in PARSE_ROW.'
)


def verdict(text: str, line: str = LINE, finish: FinishReason = FinishReason.STOP) -> Refusal | None:
    return guard.check(generation(text, finish), line, instruction=INSTRUCTION).refusal


def test_a_faithful_shortening_passes() -> None:
    assert guard.check(generation(SHORT), LINE, instruction=INSTRUCTION).text == SHORT


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", Refusal.EMPTY),
        (" \n", Refusal.EMPTY),
        ("<think>drop it</think>", Refusal.EMPTY),
        ("<think>never closed", Refusal.EMPTY),
        ("ok<|im_end|>", Refusal.CONTROL_TEXT),
        (LINE, Refusal.UNCHANGED),
        ("Write the same facts in fewer words, and copy every name, path and number unchanged.", Refusal.ECHO),
        ("I'm sorry, but I can't help with that.", Refusal.REFUSED),
        ("The parser the parser the parser skips the parser.", Refusal.LOOP),
        ("blank lines and rows blank lines and rows blank lines and rows.", Refusal.LOOP),
        (LINE + " And more words follow here.", Refusal.TOO_LONG),
        (
            "Updated the parser in `src/parse.py` so that it does not skip blank lines, because 42 tests",
            Refusal.UNFINISHED,
        ),
        ("Updated the parser in `src/parser.py`.", Refusal.INVENTED),
        ("Updated 43 tests.", Refusal.INVENTED),
        ("Asked Bob to update the parser.", Refusal.INVENTED),
        ("Updated the parser so that it does not skip blank lines.", Refusal.LOST),
        (SHORT.replace("does not skip", "does skip"), Refusal.POLARITY),
        (SHORT.replace("because ", ""), Refusal.POLARITY),
    ],
)
def test_refusals(text: str, refusal: Refusal) -> None:
    assert verdict(text) is refusal


def test_roles_that_are_swapped_are_refused() -> None:
    """The built-in model does this; every word of its answer is in the line."""
    line = "Once the worker is created it is added to the cluster and the balancer routes new requests to it."
    assert (
        verdict("Once the balancer is created the worker routes new requests to the cluster.", line)
        is Refusal.OFF_TOPIC
    )


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.TOOL_CALLS])
def test_only_a_generation_that_ended_by_itself_counts(finish: FinishReason) -> None:
    """Behaviour 184."""
    assert verdict("Updated the parser.", finish=finish) in guard.PROTOCOL


def test_reasoning_before_the_wording_is_dropped() -> None:
    line = "I have now very thoroughly checked that all of the uploads work again in the browser."
    checked = guard.check(
        generation("<think>a</think>I checked that all uploads work again in the browser."),
        line,
        instruction=INSTRUCTION,
    )
    assert checked.text == "I checked that all uploads work again in the browser."


WORDS = st.lists(st.sampled_from([*LINE.split(), "never", "not", "Bob", "7", "src/x.py", "`y`", "the"]), max_size=40)


@given(WORDS)
def test_whatever_passes_names_what_the_line_names(words: list[str]) -> None:
    """Property: nothing invented, nothing lost, in any shuffle of words that are mostly the line's own."""
    checked = guard.check(generation(" ".join(words)), LINE, instruction=INSTRUCTION)
    if checked.refusal is None:
        assert set(names(checked.text)) == set(names(LINE))
        assert "Bob" not in checked.text
        assert checked.text.split().count("not") == 1


@given(st.text(max_size=200), st.text(min_size=1, max_size=200))
def test_any_text_is_judged_without_an_exception(text: str, line: str) -> None:
    checked = guard.check(generation(text), line, instruction=INSTRUCTION)
    assert (checked.refusal is None) == bool(checked.text)


def test_the_stricter_grammar_keeps_what_may_not_be_left_out() -> None:
    text = grammar.leaving_out("So I did not touch `a.py` at 3 ms, really quickly.", force=guard.FORCE_WORDS)
    assert text.startswith('root ::= ("So")?')
    for needed in (' " not" ', ' " `a.py`" ', ' " 3" ', ' " ms," '):
        assert needed in f"{text} "
    assert '(" really")?' in text
