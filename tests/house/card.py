"""The figures of the score card: shape, functions, SQL home, types (house.md, "Score card")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.house import bans, tree
from tests.house.tree import Source

STATEMENT: Final = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
_REASONED: Final = re.compile(r"(ignore\[[\w\-, ]+\]|noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*)(?P<reason>.*)")
_REASON_CHARACTERS_MIN: Final = 10
IGNORE: Final = re.compile(r"#\s*(type:\s*ignore|pyright:\s*ignore|noqa)\b")


def lines() -> tuple[str, ...]:
    """Return the card, one line a figure."""
    files = [len(source.lines) for source in tree.package_sources()]
    functions = [tree.length(node) for source in tree.package_sources() for node in source.functions()]
    statements = sum(len(STATEMENT.findall(path.read_text("utf-8"))) for path in tree.sql_files())
    strays = sum(1 for source in tree.package_sources() for _ in bans.data_sql(source))
    ignored = [is_reasoned(source, *ignore) for source in tree.package_sources() for ignore in ignores(source)]
    loose = sum(anys(source) for source in tree.package_sources())
    return (
        f"shape      {len(files)} files, {sum(files)} lines: {_spread(files, 0.9)}",
        f"functions  {len(functions)}: {_spread(functions, 0.95)}",
        f"SQL home   {statements} named statements in {len(tree.sql_files())} files; {strays} in Python",
        f"types      {len(ignored)} ignores, {sum(ignored)} with code and reason; {loose} uses of Any",
    )


def ignores(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each comment that silences a checker."""
    return ((number, text) for number, text in source.comments() if IGNORE.search(text))


def is_reasoned(source: Source, number: int, comment: str) -> bool:
    """Whether a silencing comment names a code, and says why behind it or in the comment above."""
    match = _REASONED.search(comment)
    if match is None:
        return False
    above = source.lines[number - 2].strip() if number > 1 else ""
    return len(match["reason"].strip(" #-—:")) >= _REASON_CHARACTERS_MIN or (
        above.startswith("#") and len(above) > _REASON_CHARACTERS_MIN
    )


def anys(source: Source) -> int:
    """Return how often the file says Any, its imports not counted."""
    return sum(
        1
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Attribute) and node.attr == "Any")
    )


def _spread(values: list[int], share: float) -> str:
    middle, high = tree.quantile(values, 0.5), tree.quantile(values, share)
    return f"median {middle}, p{share * 100:.0f} {high}, max {max(values, default=0)} lines"
