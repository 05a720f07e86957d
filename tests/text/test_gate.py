"""The gate over a whole Summary: each fault that it knows, on one that has no other (behaviours 184, 187, 188)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emelex_workers.text import gate, outline
from emelex_workers.text.gate import Fault
from emelex_workers.text.outline import Line, Outline, Section

RULE = Line(section=Section.CONSTRAINTS, sequence=1, text="Never touch `legacy/core.c`.", score=80.0)
SAID = Line(
    section=Section.STATEMENTS,
    sequence=2,
    text="I have now very thoroughly checked that all of the uploads work again in the browser.",
    score=20.0,
)
WORDED = replace(SAID, text="I have thoroughly checked that all of the uploads work again in the browser.")
GOOD = Outline(first_sequence=1, last_sequence=2, lines=(RULE, WORDED), left_out=0)


def fault(
    made: Outline = GOOD,
    *,
    text: str | None = None,
    wordings: dict[Line, Line] | None = None,
    tokens: int = 50,
    target_tokens: int = 60,
    source_tokens: int = 100,
) -> Fault | None:
    return gate.fault(
        outline.render(made) if text is None else text,
        made,
        selected=frozenset({RULE, SAID}),
        wordings={SAID: WORDED} if wordings is None else wordings,
        tokens=tokens,
        target_tokens=target_tokens,
        source_tokens=source_tokens,
    )


def with_lines(*lines: Line) -> Outline:
    return replace(GOOD, lines=lines)


def worded(text: str) -> tuple[Outline, dict[Line, Line]]:
    line = replace(SAID, text=text)
    return with_lines(RULE, line), {SAID: line}


def test_a_good_summary_passes() -> None:
    assert fault() is None
    assert fault(with_lines(RULE, SAID), wordings={}) is None


def test_sizes() -> None:
    assert fault(tokens=61) is Fault.TOO_LONG
    assert fault(tokens=60, source_tokens=60) is Fault.NOT_SMALLER
    assert fault(with_lines()) is Fault.EMPTY
    assert fault(text=" \n") is Fault.EMPTY


def test_a_line_from_nowhere() -> None:
    assert fault(with_lines(RULE, replace(SAID, text="All is well."))) is Fault.FOREIGN_LINE
    assert fault(wordings={}) is Fault.FOREIGN_LINE


@pytest.mark.parametrize(
    "text",
    [
        "I have not checked that all of the uploads work again in the browser.",
        "I have thoroughly checked that all of the uploads work again in /srv/x.",
        "I'm sorry, but I can't do that.",
        '{"summary": "ok"}',
    ],
)
def test_a_wording_that_says_something_else(text: str) -> None:
    """The guard is asked once more, so that no fault between it and here commits something wrong."""
    made, wordings = worded(text)
    assert fault(made, wordings=wordings) is Fault.WORDING


def test_a_constraint_is_never_worded() -> None:
    line = replace(RULE, text="Never touch `legacy/core.c`!")
    assert fault(with_lines(line, SAID), wordings={RULE: line}) is Fault.CONSTRAINT


def test_what_no_reader_may_be_shown() -> None:
    text = outline.render(GOOD)
    assert fault(text=text + "\n- [2] password=hunter2xyz") is Fault.LEAK
    assert fault(text=text + "\n- [2] ok<|im_end|>") is Fault.CONTROL_TEXT
    assert fault(text=text + "\n- [2] a\u202eb") is Fault.CONTROL_TEXT
    assert fault(text=text + "\nan aside") is Fault.UNREADABLE
