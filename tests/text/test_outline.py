"""The readable form of a Summary, its parsing and its selection (behaviours 175, 188)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emelex_workers.text import outline
from emelex_workers.text.lines import plain
from emelex_workers.text.outline import Line, Outline, Section

LINES = st.builds(
    Line,
    section=st.sampled_from(list(Section)),
    sequence=st.integers(1, 10**9),
    text=st.text(min_size=1, max_size=80).map(plain).filter(bool),
    score=st.floats(0, 100),
    position=st.integers(0, 100),
)


def line(section: Section, sequence: int, text: str, score: float = 10.0) -> Line:
    return Line(section=section, sequence=sequence, text=text, score=score)


@given(st.lists(LINES, max_size=20), st.integers(0, 10**6))
def test_parse_gives_back_what_render_wrote(lines: list[Line], left_out: int) -> None:
    """Whatever a line says (a heading, another line's form), it stays one line of its section."""
    text = outline.render(Outline(first_sequence=1, last_sequence=10**9, lines=tuple(lines), left_out=left_out))
    parsed = outline.parse(text, last_sequence=5)
    assert outline.render(parsed) == text
    expected = sorted((entry.section.value, entry.sequence, entry.text) for entry in lines)
    assert sorted((entry.section.value, entry.sequence, entry.text) for entry in parsed.lines) == expected
    assert parsed.left_out == left_out


def test_foreign_text_becomes_statements() -> None:
    parsed = outline.parse("We did a.\n\nThen b.", last_sequence=9)
    assert [(entry.section, entry.sequence, entry.text) for entry in parsed.lines] == [
        (Section.STATEMENTS, 9, "We did a."),
        (Section.STATEMENTS, 9, "Then b."),
    ]


def test_merge_keeps_the_newest_value() -> None:
    merged = outline.merge(
        [
            line(Section.CONSTRAINTS, 1, "Always use tabs in Makefiles.", 90.0),
            line(Section.CONSTRAINTS, 9, "Never use tabs in Makefiles.", 80.0),
            line(Section.REQUESTS, 2, "The deploy branch is main."),
            line(Section.REQUESTS, 8, "The deploy branch is trunk."),
            line(Section.REQUESTS, 3, "Build a timer."),
            line(Section.REQUESTS, 4, "Build a clock."),
        ]
    )
    assert [entry.text for entry in merged] == [
        "Build a timer.",
        "Build a clock.",
        "The deploy branch is trunk.",
        "Never use tabs in Makefiles.",
    ]
    assert merged[-1].score == 90.0


@given(st.lists(LINES, max_size=30), st.integers(0, 300))
def test_choosing_never_takes_more_than_its_room(lines: list[Line], room: int) -> None:
    chosen, left_out = outline.choose(lines, room, lambda entry: len(entry.text))
    assert sum(len(entry.text) for entry in chosen) <= room
    assert len(chosen) + left_out == len(lines)


def test_constraints_go_out_last() -> None:
    many = [line(Section.STATEMENTS, index, f"statement {index} " + "x" * 20, 99.0) for index in range(50)]
    kept = [line(Section.CONSTRAINTS, 60 + index, f"never do thing {index}", 1.0) for index in range(3)]
    chosen, _ = outline.choose(many + kept, 150, lambda entry: len(entry.text))
    assert set(kept) <= set(chosen)


def test_repeats_within_a_section_go() -> None:
    lines = [
        line(Section.STATEMENTS, 1, "The cache of the uploader was never cleared after deploy.", 10.0),
        line(Section.STATEMENTS, 5, "The cache of the uploader was never cleared after the deploy.", 20.0),
        line(Section.DECISIONS, 5, "The cache of the uploader was never cleared after deploy.", 5.0),
    ]
    assert [entry.sequence for entry in outline.without_repeats(lines)] == [5, 5]
