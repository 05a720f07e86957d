"""SQL home (house habit 1): every statement has a name, fits the schema and is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core.db.database import Database
from emelex_core.db.opening import open_database
from tests.house import card, tree


def _statements(path: Path) -> Iterator[tuple[str, str]]:
    pieces = card.STATEMENT.split(path.read_text("utf-8"))
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _place(path: Path) -> str:
    return path.relative_to(tree.ROOT).as_posix()


STATEMENTS = [
    pytest.param(body, id=f"{_place(path)}:{name}") for path in tree.sql_files() for name, body in _statements(path)
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """An empty database with the whole schema and our SQL functions, as the product makes it."""
    database = open_database(tmp_path_factory.mktemp("sql") / "empty.sqlite3", create=True)
    yield database
    database.close()


def test_there_are_statements() -> None:
    """The parametrised test below would pass without any."""
    assert STATEMENTS, "no package has a sql/*.sql file with '-- name: …' headers"


@pytest.mark.parametrize("body", STATEMENTS)
def test_every_statement_fits_the_schema(database: Database, body: str) -> None:
    """SQLite prepares it: its tables, columns and functions exist, and nothing stands behind it."""
    with database.read() as transaction:
        # Its rows are not read: those of an integrity check name virtual tables by bytes that are no text.
        transaction.run(f"EXPLAIN {_without_comments(body)}", _bindings(body))
    assert _without_comments(body).rstrip().rstrip(";").count(";") == 0, "one statement under each name"


@pytest.mark.parametrize("path", tree.sql_files(), ids=_place)
def test_nothing_stands_outside_a_named_statement(path: Path) -> None:
    """Text before the first header would belong to nobody; names are `verb_noun` and stand once."""
    head = card.STATEMENT.split(path.read_text("utf-8"))[0]
    assert not _without_comments(head).strip(), "give it a '-- name: verb_noun' line"
    names = [name for name, _ in _statements(path)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


def test_every_statement_is_used() -> None:
    """A name that no module looks up (`SQL["name"]`) is dead; so is a file that no module loads."""
    looked_up: set[str] = set()
    loaded: set[tuple[str, str]] = set()
    for source in tree.package_sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Subscript):
                looked_up |= set(_constants(node.slice))
            elif isinstance(node, ast.Call) and _name(node.func) == "load":
                arguments = list(_constants(*node.args))
                loaded |= {(arguments[0], arguments[1])} if len(arguments) == 2 else set()
    for path in tree.sql_files():
        assert (path.parents[1].name, path.stem) in loaded, f"{_place(path)}: load it or delete it"
        unused = [name for name, _ in _statements(path) if name not in looked_up]
        assert not unused, f"{_place(path)}: use or delete {unused}"


def _constants(*nodes: ast.AST) -> Iterator[str]:
    """Yield the strings that an expression can be: a constant, or both arms of a conditional."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.IfExp):
            yield from _constants(node.body, node.orelse)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def _bindings(sql: str) -> dict[str, None]:
    return dict.fromkeys(re.findall(r"[:@$](\w+)", _without_comments(sql)))
