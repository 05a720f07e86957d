"""The gate before a Summary is committed: what of the whole text must hold, whoever wrote its lines (ADR 0021).

Each wording was checked against its one line by `guard`; this is the second check, of the finished text against the
lines that it was made from, so that no fault in between can commit something wrong.

The module owns these invariants (behaviours 171, 184, 187, 188):

- Every line is one that rules selected, in its own words, or a wording of one that the guard accepts still.
- A constraint stands in its own words, always.
- The text can be read back as the lines that it shows, holds no secret and no control token, and keeps to its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from emelex_workers.text import guard, lines, outline, secrets
from emelex_workers.text.outline import Line, Outline, Section


class Fault(StrEnum):
    """Why a Summary may not be committed."""

    EMPTY = "it is empty"
    TOO_LONG = "it is over its target"
    NOT_SMALLER = "it is not smaller than what it replaces"
    FOREIGN_LINE = "a line was not selected from the source"
    WORDING = "a wording says something else than its line"
    CONSTRAINT = "a constraint is not in its own words"
    UNREADABLE = "it cannot be read back as its lines"
    LEAK = "it holds a secret"
    CONTROL_TEXT = "it holds text that no reader may be shown"


def fault(
    text: str,
    made: Outline,
    *,
    selected: frozenset[Line],
    wordings: Mapping[Line, Line],
    tokens: int,
    target_tokens: int,
    source_tokens: int,
) -> Fault | None:
    """Return the first thing that is wrong with a Summary, or None.

    `selected` are the lines that rules made of the source; `wordings` maps some of them to the model's.
    """
    if not text.strip() or not made.lines:
        return Fault.EMPTY
    if tokens > target_tokens:
        return Fault.TOO_LONG
    if tokens >= source_tokens:
        return Fault.NOT_SMALLER
    if secrets.find(text):
        return Fault.LEAK
    if any(lines.plain(row) != row.strip() for row in text.split("\n")):
        return Fault.CONTROL_TEXT
    if outline.render(outline.parse(text, last_sequence=made.last_sequence)) != text:
        return Fault.UNREADABLE
    return _line_fault(made, selected, wordings)


def _line_fault(made: Outline, selected: frozenset[Line], wordings: Mapping[Line, Line]) -> Fault | None:
    originals = {wording: line for line, wording in wordings.items()}
    for line in made.lines:
        original = originals.get(line)
        if original is None:
            if line not in selected:
                return Fault.FOREIGN_LINE
        elif line.section is Section.CONSTRAINTS:
            return Fault.CONSTRAINT
        elif guard.refusal_of(line.text, original.text, instruction="") is not None or original not in selected:
            return Fault.WORDING
    return None
