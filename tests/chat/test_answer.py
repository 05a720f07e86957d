"""Streaming Markdown: a finished block is printed once, whatever the pieces are that it came in."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from emelex_cli.chat.answer import Answer, split_blocks

LINES = st.lists(st.sampled_from(["text", "", "```", "~~~", "- item", "    code", "``` python"]), max_size=12)


@given(LINES)
def test_nothing_is_lost_and_no_fence_is_cut(lines: list[str]) -> None:
    text = "\n".join(lines)
    finished, left = split_blocks(text)
    assert finished + left == text
    assert split_blocks(finished)[1] == ""
    fences = [line.strip()[:3] for line in finished.splitlines() if line.strip().startswith(("```", "~~~"))]
    opened: str | None = None
    for fence in fences:
        opened = fence if opened is None else None if opened == fence else opened
    assert opened is None


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("one", ""),
        ("one\n", ""),
        ("one\n\n", "one\n\n"),
        ("one\n\ntwo", "one\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"),
    ],
)
def test_a_blank_line_ends_a_block_outside_of_code(text: str, finished: str) -> None:
    assert split_blocks(text) == (finished, text[len(finished) :])


WHOLE = """# Head

One [link](http://example.invalid/x) and \x1b[31mred\x1b[0m.

- a
- b

```
x = 1

y = 2
```
"""


@given(st.integers(1, 60))
def test_every_block_is_printed_once_whatever_the_pieces(size: int) -> None:
    """And neither a terminal's escape nor a hidden address gets past. A file shows what is printed for good."""
    printed = io.StringIO()
    answer = Answer(Console(file=printed, width=80))
    for start in range(0, len(WHOLE), size):
        answer.add(WHOLE[start : start + size])
    answer.end()
    for words in ("Head", "http://example.invalid/x", "\\x1b[31mred", "• a", "x = 1", "y = 2"):
        assert printed.getvalue().count(words) == 1
    assert "\x1b" not in printed.getvalue()
