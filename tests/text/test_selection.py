"""Which lines stand when not all have room, and what is left of the others (behaviours 175 and 188)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from emelex_core.events import Event
from emelex_workers.text.fold import Fold
from emelex_workers.text.outline import Line, Outline, Section
from emelex_workers.text.selection import select, short_form
from emelex_workers.text.windows import windows
from stored_events import stored

FIRST = 100
"""The sequence where the events of the test's leaf begin."""
LINES = st.builds(
    Line,
    section=st.sampled_from(list(Section)),
    sequence=st.integers(1, 200),
    text=st.lists(
        st.sampled_from(["src/a_b.py", "port 8080", "max_rows", "the cache", "was slow", "12 ms", "never"]),
        min_size=1,
        max_size=6,
        unique=True,
    ).map(" ".join),
    score=st.floats(0, 100),
)


def fold_of(*said: str, prior: Sequence[Line] = ()) -> Fold:
    outline = Outline(first_sequence=1, last_sequence=FIRST - 1, lines=tuple(prior), left_out=0) if prior else None
    fold = Fold(prior=outline)
    events = stored([Event.user(text) for text in said], first_sequence=FIRST)
    for window in windows(events, tokens_max=4_096, count=len):
        fold.add(window)
    return fold


def line(section: Section, sequence: int, text: str, score: float = 40.0) -> Line:
    return Line(section=section, sequence=sequence, text=text, score=score)


def cost(entry: Line) -> int:
    return len(entry.text)


@given(st.lists(LINES, max_size=30, unique=True), st.integers(0, 400))
def test_nothing_is_over_its_room_and_every_line_is_a_candidate_or_names(candidates: list[Line], room: int) -> None:
    found = select(fold_of("Go on."), candidates, room, cost)
    assert sum(map(cost, found.lines)) <= room
    assert set(found.lines) <= set(candidates) | found.offered
    assert len(set(found.lines)) == len(found.lines)
    assert found.left_out >= len(set(candidates) - set(found.lines))


def test_a_lost_line_leaves_its_names_and_numbers() -> None:
    text = "It turned out that src/loader.py still called `read_all`, which is why the import stopped after 3507 rows."
    lost = line(Section.STATEMENTS, 7, text)
    kept = line(Section.CONSTRAINTS, 3, "Never touch legacy/core.c.")
    found = select(fold_of("Go on."), [lost, kept], len(text), cost)
    assert [(entry.section, entry.sequence, entry.text) for entry in found.lines] == [
        (Section.CONSTRAINTS, 3, "Never touch legacy/core.c."),
        (Section.MENTIONED, 7, "src/loader.py · read_all · 3507 rows"),
    ]
    assert found.left_out == 1


def test_a_line_without_names_that_say_something_has_no_short_form() -> None:
    assert short_form(line(Section.STATEMENTS, 1, "It took 12 or 13 of them.")) is None
    assert short_form(line(Section.STATEMENTS, 1, "It is in src/loader.py.")) is None
    assert short_form(line(Section.STATEMENTS, 1, "src/a.py holds [secret removed] and max_rows.")) is None


def test_a_wish_that_was_folded_waits_and_what_was_merely_said_does_not() -> None:
    """A request of an earlier Summary is done, or was made again; a statement may be a fact that no rule knows."""
    wish = line(Section.REQUESTS, 5, "Please look into the importer and say what is wrong.")
    said = line(Section.REQUESTS, 6, "Between us, Zoe signs for the importer on Mondays.")
    new = line(Section.REQUESTS, FIRST, "Please look into the exporter, too.")
    fold = fold_of("Please look into the exporter, too.", prior=[wish, said])
    assert [fold.can_wait(entry) for entry in (wish, said, new)] == [True, False, False]
    room = cost(said) + cost(new)
    assert set(select(fold, [wish, said, new], room, cost).lines) == {said, new}
    assert set(select(fold, [wish, said, new], room + cost(wish), cost).lines) == {wish, said, new}


def test_facts_outlast_statements_and_constraints_outlast_both() -> None:
    many = [line(Section.STATEMENTS, index, f"It looked at part {index} again.", 90.0) for index in range(1, 20)]
    facts = [line(Section.FACTS, 30 + index, f"The port of part {index} is 80{index}.", 10.0) for index in range(4)]
    rules = [line(Section.CONSTRAINTS, 50 + index, f"Never drop table {index}.", 1.0) for index in range(4)]
    room = sum(map(cost, [*facts, *rules])) + 40
    stands = select(fold_of("Go on."), [*many, *facts, *rules], room, cost).lines
    assert set(facts) | set(rules) <= set(stands)
