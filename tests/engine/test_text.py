"""The small pure parts: reasoning, control-token shapes, batches, stop texts and split characters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core.engine.llama_cpp import BATCH_TOKENS, _batches, _common_prefix, _first_stop, _text
from emelex_core.engine.neutral import neutral
from emelex_core.engine.reasoning import without_reasoning
from emelex_core.errors import Invalid


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Real", "Real"),
        (" Real ", " Real "),
        ("<think>a</think>Real", "Real"),
        ("\n<think>a\n</think>\n\nReal <think>b</think>", "Real <think>b</think>"),
        ("<think>a</think><think>b</think>Real", "Real"),
        ("<think>only</think>", ""),
        ("<think>never closed", ""),
        ("It prints </think> here", "It prints </think> here"),
    ],
)
def test_only_reasoning_that_opens_the_text_goes(text: str, answer: str) -> None:
    assert without_reasoning(text) == answer


@pytest.mark.parametrize(
    "token",
    [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<｜end▁of▁sentence｜>",
        "<s>",
        "</s>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<think>",
        "</tool_call>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<repo_name>",
        "<filename>",
        "<issue_start>",
        "<jupyter_code>",
    ],
)
def test_the_shape_of_a_control_token_is_broken(token: str) -> None:
    broken = neutral(f"a{token}b")
    assert token not in broken
    assert broken.replace(" ", "") == f"a{token}b"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_breaking_adds_spaces_only_and_settles(text: str) -> None:
    broken = neutral(text)
    assert broken.replace(" ", "") == text.replace(" ", "")
    assert neutral(broken) == broken


def test_ordinary_angles_and_brackets_are_left_alone() -> None:
    text = "if a < b | c > d: x[i] = <div> List<String> a<-b [x] <sub>2</sub>"
    assert neutral(text) == text


def test_a_lone_surrogate_is_refused() -> None:
    """Behaviour 183."""
    with pytest.raises(Invalid):
        neutral("\ud83d")


@given(st.integers(0, 3 * BATCH_TOKENS), st.integers(2, 5 * BATCH_TOKENS))
def test_batches_cover_all_and_none_is_single_or_too_large(start: int, length: int) -> None:
    batches = list(_batches(start, start + length))
    assert batches[0][0] == start
    assert batches[-1][1] == start + length
    assert all(end == begin for (_, end), (begin, _) in pairwise(batches))
    assert all(2 <= end - begin <= BATCH_TOKENS for begin, end in batches)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_a_common_prefix_is_common_and_longest(old: list[int], new: list[int]) -> None:
    shared = _common_prefix(old, new)
    assert old[:shared] == new[:shared]
    assert shared in {len(old), len(new)} or old[shared] != new[shared]


@given(st.lists(st.binary(min_size=1, max_size=4), max_size=12), st.binary(min_size=1, max_size=5))
def test_a_stop_text_is_found_however_it_is_split(pieces: list[bytes], stop: bytes) -> None:
    """The search looks at the newest bytes only, and must see what looking at everything sees."""
    written = bytearray()
    for piece in pieces:
        written += piece
        found = _first_stop(written, (stop,), len(piece))
        expected = written.find(stop)
        assert found == (None if expected < 0 else expected)
        if found is not None:
            return


def test_a_cut_character_is_dropped_at_the_bound_and_replaced_in_the_middle() -> None:
    """Fault K10: an emoji that is split over tokens joins to one character."""
    assert _text(b"a\xf0\x9f\x98\x80", whole=True) == "a😀"
    assert _text(b"a\xf0\x9f", whole=False) == "a"
    assert _text(b"a\xf0\x9fb", whole=True) == "a\ufffdb"
