"""Which lines stand in a Summary when not all of them have room, and what is left of those that do not.

    candidates ─ constraints ─ by weight ─▶ lines │ lost lines ─▶ their names │ other names │ past requests

The module owns these invariants (behaviours 175, 188):

- What is chosen costs no more than its room, and what was left out is counted.
- A line that has no room leaves its names and numbers behind, in one short line of its event, where those have room.
- A request of the Summary that is folded in waits until the end: it is done by now, or was made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from emelex_workers.text import lines, outline, secrets, tokens
from emelex_workers.text.fold import LINE_CHARACTERS_MAX, NAMES_BETWEEN, Fold, mentioned
from emelex_workers.text.outline import Line, Section

Cost: TypeAlias = Callable[[Line], int]

NAMES_SHARE: Final = 0.25
"""At most this share of the room is held back for the names of lines that had none."""
NAMES_MIN: Final = 2
"""A line with fewer names leaves them to the general list of names."""
ROUNDS: Final = 3
"""Holding room back loses further lines, whose names want room in turn; after so many rounds little changes."""

_SHORTENED: Final = frozenset({Section.FACTS, Section.DECISIONS, Section.STATEMENTS, Section.ERRORS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The lines that stand, every line of names that was offered, and how many candidates had no room."""

    lines: list[Line]
    offered: frozenset[Line]
    left_out: int


def select(fold: Fold, candidates: list[Line], room: int, cost: Cost) -> Selection:
    """Choose lines of at most `room` tokens; then names of what was lost, then what else has room."""
    present = [line for line in candidates if not fold.can_wait(line)]
    chosen, shortened = _with_names(present, room, cost)
    room -= sum(map(cost, chosen))
    shown, _ = outline.choose(shortened, room, cost)
    room -= sum(map(cost, shown))
    names = list(mentioned(fold, "\n".join(line.text for line in (*chosen, *shown))))
    taken = set(chosen)
    rest = [line for line in candidates if line not in taken]
    for further in (names, rest):
        more, _ = outline.choose(further, room, cost)
        room -= sum(map(cost, more))
        shown += more
    stands = [*chosen, *shown]
    return Selection(
        lines=stands,
        offered=frozenset((*shortened, *names)),
        left_out=len(candidates) - len(set(candidates).intersection(stands)),
    )


def short_form(line: Line) -> Line | None:
    """Return a line's names and numbers alone, in order; None where it has too few, or none that says something."""
    found = tokens.tokens(line.text)
    named = dict.fromkeys(token.text for token in found if token.kind is not tokens.TokenKind.CONSTANT)
    if len(named) < NAMES_MIN or not any(map(tokens.is_telling, found)) or secrets.REMOVED in line.text:
        return None
    text = lines.cut(NAMES_BETWEEN.join(named), LINE_CHARACTERS_MAX)
    return Line(section=Section.MENTIONED, sequence=line.sequence, text=text, score=line.score, position=line.position)


def _with_names(candidates: list[Line], room: int, cost: Cost) -> tuple[list[Line], list[Line]]:
    """Choose with so much room held back that the names of what is lost fit; return both."""
    held_back = 0
    chosen, shortened = _chosen(candidates, room, cost)
    for _ in range(ROUNDS):
        wanted = min(sum(map(cost, shortened)), int(room * NAMES_SHARE))
        if wanted <= held_back:
            break
        held_back = wanted
        chosen, shortened = _chosen(candidates, room - held_back, cost)
    return chosen, shortened


def _chosen(candidates: list[Line], room: int, cost: Cost) -> tuple[list[Line], list[Line]]:
    chosen, _ = outline.choose(candidates, room, cost)
    taken = set(chosen)
    return chosen, list(_short_forms(line for line in candidates if line not in taken))


def _short_forms(lost: Iterator[Line]) -> Iterator[Line]:
    for line in lost:
        if line.section in _SHORTENED and (short := short_form(line)) is not None:
            yield short
