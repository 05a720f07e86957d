"""The readable form of a Summary: sections of lines, each with its event; how lines are chosen when room is short.

    Summary of events 1 to 154.

    Requests
    - [1] Build a timer …

    Left out: 12 lower-ranked lines.

The module owns these invariants:

- `parse(render(x))` gives the same lines back, so that the next compaction folds this Summary like any other source.
- A line is one line: its text can never look like a heading or like another line.
- Choosing is weighted and fair: each section gets room by its weight, best lines first, and what has no room is
  counted.
- A newer line supersedes an older one with the same frame in its section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from emelex_workers.text import keys, lines

FRAME_WORDS_MIN: Final = 3
"""Shorter frames collide: two lines of one or two common words are not the same statement."""
NEAR: Final = 0.85
"""From this share of common words on, two lines of a section say the same."""


class Section(StrEnum):
    """The sections of a Summary in reading order; the value is the heading."""

    REQUESTS = "Requests"
    CONSTRAINTS = "Constraints"
    FACTS = "Facts"
    DECISIONS = "Decisions"
    WORK = "Work done"
    ERRORS = "Errors"
    STATEMENTS = "Statements"
    OPEN = "Open"
    MENTIONED = "Also mentioned"


WEIGHTS: Final[dict[Section, float]] = {
    Section.CONSTRAINTS: 12.0,
    Section.FACTS: 12.0,
    Section.STATEMENTS: 3.0,
    Section.DECISIONS: 8.0,
    Section.OPEN: 3.0,
    Section.REQUESTS: 2.0,
    Section.WORK: 2.0,
    Section.ERRORS: 2.0,
    Section.MENTIONED: 4.0,
}
"""Shares of the room. What lasts outweighs what was asked for once and is done by now."""
CONSTRAINTS_SHARE: Final = 0.75
"""Constraints are taken before all other lines, up to this share of the room: one that is lost is acted against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a Summary: its event's sequence, its place there, and a score that ranks it within its section."""

    section: Section
    sequence: int
    text: str
    score: float
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A Summary as lines. `left_out` counts lines that had no room, in this one and in those it folded."""

    first_sequence: int
    last_sequence: int
    lines: tuple[Line, ...]
    left_out: int


_HEAD: Final = re.compile(r"Summary of events (\d{1,18}) to (\d{1,18})\.")
_LEFT_OUT: Final = re.compile(r"Left out: (\d{1,18}) lower-ranked lines?\.")
_LINE: Final = re.compile(r"- \[(\d{1,18})\] (.+)")
_HEADINGS: Final = {section.value: section for section in Section}
_FOLDED_SCORE: Final = 40.0
"""What a prior Summary kept was chosen already: it ranks with the better lines, and falls with each fold (`_AGE`)."""

_LASTING_SCORE: Final = 60.0
"""What a person stated for good does not fall behind what is asked for now."""


def render(outline: Outline) -> str:
    """Return the Summary's text."""
    blocks = [f"Summary of events {outline.first_sequence} to {outline.last_sequence}."]
    for section in Section:
        inside = sorted(
            (line for line in outline.lines if line.section is section), key=lambda line: (line.sequence, line.position)
        )
        if inside:
            blocks.append("\n".join((section.value, *(rendered(line) for line in inside))))
    if outline.left_out:
        plural = "" if outline.left_out == 1 else "s"
        blocks.append(f"Left out: {outline.left_out} lower-ranked line{plural}.")
    return "\n\n".join(blocks)


def rendered(line: Line) -> str:
    """Return one line as it stands in the text."""
    return f"- [{line.sequence}] {line.text}"


def parse(text: str, *, last_sequence: int) -> Outline:
    """Read a Summary's text back; text that is not of this form becomes statements of the event `last_sequence`."""
    head = _HEAD.match(text)
    if head is None:
        kept = (lines.cut(lines.plain(line), 400) for line in text.splitlines())
        loose = tuple(
            Line(section=Section.STATEMENTS, sequence=last_sequence, text=line, score=_FOLDED_SCORE)
            for line in kept
            if line
        )
        return Outline(first_sequence=1, last_sequence=last_sequence, lines=loose, left_out=0)
    section, left_out = Section.STATEMENTS, 0
    found: list[Line] = []
    for row in text[head.end() :].split("\n"):
        if row in _HEADINGS:
            section = _HEADINGS[row]
        elif match := _LINE.fullmatch(row):
            score = _LASTING_SCORE if section is Section.FACTS else _FOLDED_SCORE
            found.append(Line(section=section, sequence=int(match[1]), text=match[2], score=score, position=len(found)))
        elif match := _LEFT_OUT.fullmatch(row):
            left_out = int(match[1])
    return Outline(first_sequence=int(head[1]), last_sequence=int(head[2]), lines=tuple(found), left_out=left_out)


def merge(found: Iterable[Line]) -> list[Line]:
    """Return the lines without those that a newer or equal one of the same section supersedes, oldest first."""
    kept: dict[tuple[Section, object], Line] = {}
    for line in sorted(found, key=lambda line: (line.sequence, line.position, line.section.value, line.text)):
        identity = (_group(line.section), _identity(line))
        if (older := kept.pop(identity, None)) and older.score > line.score:
            line = replace(line, score=older.score)
        kept[identity] = line
    return list(kept.values())


def choose(candidates: list[Line], room: int, cost: Callable[[Line], int]) -> tuple[list[Line], int]:
    """Return the lines that fit into `room` tokens, and how many had to be left out.

    Constraints come first. After them the next line always comes from the section that has had least of its share.
    """
    queues = {section: _ranked(candidates, section) for section in Section}
    used = dict.fromkeys(Section, 0)
    chosen: list[Line] = []
    for line in queues[Section.CONSTRAINTS].copy():
        price = cost(line)
        if used[Section.CONSTRAINTS] + price <= room * CONSTRAINTS_SHARE:
            used[Section.CONSTRAINTS] += price
            queues[Section.CONSTRAINTS].remove(line)
            chosen.append(line)
    room -= used[Section.CONSTRAINTS]
    while waiting := [section for section in Section if queues[section]]:
        section = min(waiting, key=lambda section: used[section] / WEIGHTS[section])
        line = queues[section].pop(0)
        price = cost(line)
        if price <= room:
            room -= price
            used[section] += price
            chosen.append(line)
        else:
            used[section] += 1
    return chosen, len(candidates) - len(chosen)


def without_repeats(found: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines of one window that do not repeat a better one of the same section."""
    known = {section: keys.FrameIndex(NEAR) for section in Section}
    for line in sorted(found, key=lambda line: (-line.score, -line.sequence, line.text)):
        shape = keys.frame(line.text)
        if len(shape) < FRAME_WORDS_MIN or known[line.section].add(shape):
            yield line


def _ranked(candidates: list[Line], section: Section) -> list[Line]:
    inside = (line for line in candidates if line.section is section)
    return sorted(inside, key=lambda line: (-line.score, -line.sequence, line.text))


def _group(section: Section) -> Section:
    """A request may state a fact anew: within these two sections the newer line supersedes."""
    return Section.FACTS if section is Section.REQUESTS else section


def _identity(line: Line) -> object:
    """What makes two lines of a section the same: the frame where a sentence has one, else the whole text."""
    if subject := keys.subject(line.text):
        return subject
    if line.section in {Section.REQUESTS, Section.FACTS, Section.WORK, Section.ERRORS, Section.MENTIONED}:
        return keys.normal_form(line.text) or line.text
    shape = keys.frame(line.text)
    return shape if len(shape) >= FRAME_WORDS_MIN else keys.normal_form(line.text)
