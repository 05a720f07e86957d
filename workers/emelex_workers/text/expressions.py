"""Expressions over one line that are asked often and seldom match: a look at the line's words comes first.

Python's engine tries every alternative of `\\b(?:not|never|…)` at every word, which took nine tenths of the time of a
long Session. Which words a match must hold is read off the expression itself, once.

The module owns these invariants:

- The answer is that of `re` with IGNORECASE: a line is passed over only when every match would hold a word, by its
  beginning, that the line lacks. What cannot be read off an expression leads to no conclusion.
- Memory is bounded: so many words and lines are remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

HEAD_CHARACTERS: Final = 5
"""A longer word is told by so many of its first characters."""
WORDS_REMEMBERED_MAX: Final = 32_768
LINES_REMEMBERED_MAX: Final = 4_096

Head: TypeAlias = tuple[str, bool]
"""The first characters of a word in lower case, and whether they are the whole word."""
_Group: TypeAlias = frozenset[Head]
"""A match holds a word of one of these heads."""

_WIDE: Final[Head] = ("", True)
"""Stands for any character of a script without spaces: where no word begins, no head can be told."""
_WIDE_FROM: Final = 0x2E80
_WORD: Final = re.compile(r"\w+")
_COMMON_WORDS: Final = """
a an the our my your his her their its it this that these those we i you he she they is are was were be to of in on at
for from and or but so as if with by die der das den dem des le la les un une el de het een il o os das mein meine
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_COMMON_COST: Final = 60
_SHORT_COST: Final = 8


class Expression:
    """A regular expression for single lines, case ignored."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._bit = 1 << len(_SIEVE.expressions)
        _SIEVE.add(self)

    def search(self, line: str) -> re.Match[str] | None:
        """Find the first match, as `re.search` does."""
        return self._find(line) if _mask_of(line) & self._bit else None

    def match(self, line: str) -> re.Match[str] | None:
        """Match at the beginning, as `re.match` does."""
        return self._compiled.match(line) if _mask_of(line) & self._bit else None

    def count(self, line: str) -> int:
        """How many matches there are, without overlap."""
        return sum(1 for _ in self._compiled.finditer(line)) if _mask_of(line) & self._bit else 0

    @cached_property
    def heads(self) -> _Group | None:
        """Heads of which each match holds one; None where that cannot be told."""
        return required_heads(self.pattern)

    @cached_property
    def _find(self) -> Callable[[str], re.Match[str] | None]:
        # `re.search` tries an expression that begins with ^ at every character of the line all the same.
        return self._compiled.match if is_anchored(self.pattern) else self._compiled.search

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


@dataclass(slots=True)
class _Sieve:
    """Which of all expressions may match a line, as bits."""

    expressions: list[Expression] = field(default_factory=list[Expression])
    _whole: dict[str, int] = field(default_factory=dict[str, int])
    _begun: dict[str, int] = field(default_factory=dict[str, int])
    _known: dict[str, int] = field(default_factory=dict[str, int])
    _always: int = 0
    _wide: int = 0
    _read: int = 0

    def add(self, expression: Expression) -> None:
        """Take in an expression; its heads are read off when a line first asks."""
        self.expressions.append(expression)
        _mask_of.cache_clear()

    def mask(self, line: str) -> int:
        """Return the bits of the expressions that may match, by the words of a line."""
        if self._read != len(self.expressions):
            self._learn()
        found = self._always if line.isascii() else self._always | self._wide
        known = self._known
        for word in _WORD.findall(line.lower()):
            bits = known.get(word)
            found |= self._look_up(word) if bits is None else bits
        return found

    def _look_up(self, word: str) -> int:
        bits = self._whole.get(word, 0)
        for length in range(1, min(len(word), HEAD_CHARACTERS) + 1):
            bits |= self._begun.get(word[:length], 0)
        if len(self._known) >= WORDS_REMEMBERED_MAX:
            self._known.clear()
        self._known[word] = bits
        return bits

    def _learn(self) -> None:
        for index in range(self._read, len(self.expressions)):
            bit = 1 << index
            heads = self.expressions[index].heads
            if heads is None:
                self._always |= bit
                continue
            for head, whole in heads:
                if (head, whole) == _WIDE:
                    self._wide |= bit
                else:
                    table = self._whole if whole else self._begun
                    table[head] = table.get(head, 0) | bit
        self._read = len(self.expressions)
        self._known.clear()


_SIEVE: Final = _Sieve()


@lru_cache(maxsize=LINES_REMEMBERED_MAX)
def _mask_of(line: str) -> int:
    return _SIEVE.mask(line)


def required_heads(pattern: str) -> _Group | None:
    """Return word beginnings of which each match of a pattern holds one, or None where that cannot be told."""
    # The parser of `re` has no public name; where it should change, every line is simply asked.
    parser: Any = getattr(re, "_parser", None)
    if parser is None:
        return None
    groups, _ = _sequence(parser.parse(pattern, re.IGNORECASE), bounded=False, closed=False)
    return _rarest(groups)


def is_anchored(pattern: str) -> bool:
    """Whether each alternative of a pattern can match at the beginning only; False where it cannot be told."""
    parser: Any = getattr(re, "_parser", None)
    first = None if parser is None else next(iter(parser.parse(pattern, re.IGNORECASE)), None)
    return first is not None and (str(first[0]), str(first[1])) == ("AT", "AT_BEGINNING")


def _sequence(items: Sequence[Any], *, bounded: bool, closed: bool, run: str = "") -> tuple[list[_Group], bool]:
    """Return what each match of a sequence must hold, and whether what follows it is bounded.

    `bounded` says that what comes next stands behind a character that is part of no word, or at a word's boundary: only
    there can a literal be taken for the beginning of a word. `closed` says that behind the sequence no word can go on.
    `run` is the beginning of a word that was read before it.
    """
    groups: list[_Group] = []
    for index, (operation, argument) in enumerate(items):
        name = str(operation)
        if name == "LITERAL" and _is_letter(character := chr(argument)) and (run or bounded):
            run, bounded = run + character.lower(), False
            continue
        if name in {"ASSERT", "ASSERT_NOT"}:
            continue
        goes_on = run if name in {"BRANCH", "SUBPATTERN"} else ""
        if run and not goes_on:
            bounded = _ends_word(name, argument)
            groups.append(frozenset({_head(run, whole=bounded)}))
        run = ""
        ends = _ends_word(str(items[index + 1][0]), items[index + 1][1]) if index + 1 < len(items) else closed
        more, bounded = _item(name, argument, bounded=bounded, closed=ends, run=goes_on)
        groups += more
    if run:
        groups.append(frozenset({_head(run, whole=closed)}))
    return groups, bounded and not run


def _item(name: str, argument: Any, *, bounded: bool, closed: bool, run: str) -> tuple[list[_Group], bool]:
    if name == "AT":
        return [], str(argument) != "AT_NON_BOUNDARY"
    if name == "LITERAL":
        wide = ord(chr(argument)) >= _WIDE_FROM
        return ([frozenset({_WIDE})] if wide else []), not _is_word(chr(argument))
    if name == "IN":
        return _set(argument)
    if name == "BRANCH":
        return _branch(argument[1], bounded=bounded, closed=closed, run=run)
    if name == "SUBPATTERN":
        return _sequence(argument[-1], bounded=bounded, closed=closed, run=run)
    if name in {"MAX_REPEAT", "MIN_REPEAT"}:
        least, most, inner = argument
        groups, end = _sequence(inner, bounded=bounded, closed=closed and most == 1)
        return (groups, end) if least else ([], bounded and end)
    return [], False


def _set(members: Sequence[Any]) -> tuple[list[_Group], bool]:
    wide = all(str(kind) == "LITERAL" and member >= _WIDE_FROM for kind, member in members)
    return ([frozenset({_WIDE})] if wide else []), all(_is_gap(str(kind), member) for kind, member in members)


def _is_gap(kind: str, member: Any) -> bool:
    """Whether a member of a set of characters is part of no word."""
    return (kind == "LITERAL" and not _is_word(chr(member))) or (kind, str(member)) == ("CATEGORY", "CATEGORY_SPACE")


def _branch(alternatives: Sequence[Any], *, bounded: bool, closed: bool, run: str) -> tuple[list[_Group], bool]:
    read = [_sequence(alternative, bounded=bounded, closed=closed, run=run) for alternative in alternatives]
    told = [group for groups, _ in read if (group := _rarest(groups)) is not None]
    whole = [frozenset[Head]().union(*told)] if len(told) == len(read) else []
    return whole, all(end for _, end in read)


def _head(run: str, *, whole: bool) -> Head:
    return (run, True) if whole else (run[:HEAD_CHARACTERS], False)


def _ends_word(name: str, argument: Any) -> bool:
    """Whether a word surely ends before an item."""
    if name == "AT":
        return str(argument) != "AT_NON_BOUNDARY"
    if name == "LITERAL":
        return not _is_word(chr(argument))
    return name == "IN" and all(_is_gap(str(kind), member) for kind, member in argument)


def _rarest(groups: list[_Group]) -> _Group | None:
    """Return the group that the fewest lines will hold."""
    return min(groups, key=_commonness, default=None)


def _commonness(group: _Group) -> int:
    return sum(
        _COMMON_COST if head in _COMMON else 1 if whole or len(head) > 2 else _SHORT_COST for head, whole in group
    )


def _is_word(character: str) -> bool:
    """Whether a character is one of `\\w`."""
    return character.isalnum() or character == "_"


def _is_letter(character: str) -> bool:
    """Whether a character can begin a word that is told by its head; scripts without spaces have no such words."""
    return _is_word(character) and ord(character) < _WIDE_FROM
