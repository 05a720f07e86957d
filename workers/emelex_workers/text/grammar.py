"""Grammars (GBNF) for the wording of one line.

The module owns these invariants:

- Every grammar ends optionally: the model may always stop after the last word that is asked of it.
- `leaving_out` allows only the line's own words in the line's own order. Names, numbers, quotes, negations and words of
  force are not optional in it: whatever a model does, it cannot invent, swap or deny.
"""

from __future__ import annotations

from typing import Final

from emelex_workers.text import cues
from emelex_workers.text.cues import Cue
from emelex_workers.text.tokens import names, quotations

ONE_LINE: Final = r'root ::= [^\x00-\x20] [^\x00-\x1F]{4,400} "\n"?'
"""One line of text that begins with no space: for free rewording, which the guard then judges."""

_EDGES: Final = ".,;:!?()[]\"'`"


def leaving_out(line: str, *, force: frozenset[str]) -> str:
    """Return the grammar of all shortenings of a line; `force` are lower-case words that may not be left out."""
    kept_names = " ".join((*names(line), *quotations(line)))
    words = line.split()
    parts: list[str] = []
    for index, word in enumerate(words):
        literal = _literal(word if index == 0 else f" {word}")
        needed = index == len(words) - 1 or _is_needed(word, index, kept_names, force)
        parts.append(literal if needed else f"({literal})?")
    return "root ::= " + " ".join(parts)


def _is_needed(word: str, index: int, kept_names: str, force: frozenset[str]) -> bool:
    core = word.strip(_EDGES)
    return (
        not core
        or core in kept_names
        or core.lower() in force
        or any(character.isdigit() or character in '`"“”«»' for character in word)
        or cues.has(word, Cue.NEGATION)
        or (index > 0 and core[0].isupper())
        or word[-1] in ",;:)"
        or word[0] == "("
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
