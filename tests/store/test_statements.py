"""SQL home (house habit 1), held file by file: statements are prepared, and looked up by their own readers."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import emelex_queue
from emelex_core import MemoryStore
from emelex_core.db import statements
from stores import ROOT

FILES = sorted([*ROOT.glob("emelex_core/sql/*.sql"), *ROOT.glob("*/emelex_*/sql/*.sql")])


def _texts(path: Path) -> dict[str, str]:
    return statements.parse(path.read_text("utf-8"), file=path.name)


@cache
def _sources() -> tuple[tuple[str, ast.Module], ...]:
    texts = [
        path.read_text("utf-8")
        for room in ("emelex_core", "queue", "workers", "bin")
        for path in sorted((ROOT / room).rglob("*.py"))
    ]
    return tuple((text, ast.parse(text)) for text in texts)


def _looked_up(package: str, table: str) -> set[str]:
    """The names that any module asks of `load(package, table)`, by whatever name it keeps the statements."""
    found: set[str] = set()
    for text, tree in _sources():
        kept = set(re.findall(rf'^(\w+)[^=\n]*= load\("{package}", "{table}"\)', text, re.MULTILINE))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Subscript):
                continue
            owner = node.value
            own = isinstance(owner, ast.Name) and (owner.id in kept or owner.id == "SQL")
            # `registry.SQL["…"]`: another module's statements, which may be this file's.
            borrowed = isinstance(owner, ast.Attribute) and owner.attr.isupper()
            if own or borrowed:
                found |= {leaf.value for leaf in ast.walk(node.slice) if isinstance(leaf, ast.Constant)}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_statement_is_prepared_and_used(store: MemoryStore, path: Path) -> None:
    """A name nobody asks its own file for is dead, even where another file has one of the same name."""
    used = _looked_up(path.parents[1].name, path.stem)
    for name, text in _texts(path).items():
        bindings = dict.fromkeys(re.findall(r":(\w+)", text))
        with store.database.read() as transaction:
            transaction.all(f"EXPLAIN QUERY PLAN {text}", bindings)
        assert name in used, f"{path.name}: {name}"


def test_a_name_that_is_not_there_fails_by_name() -> None:
    """A misspelt lookup names file and statement."""
    with pytest.raises(LookupError, match=r"jobs\.sql.*nothing"):
        statements.load("emelex_core", "jobs")["nothing"]


def test_a_name_that_stands_twice_is_refused() -> None:
    """The second would silently replace the first."""
    with pytest.raises(ValueError, match="twice"):
        statements.parse("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n", file="x.sql")


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("claim", "jobs_to_claim"),
        ("has_claimable", "jobs_to_claim"),
        ("expired", "jobs_running"),
        ("clamp_leases", "jobs_running"),
        ("clamp_sessions", "sessions_held"),
    ],
)
def test_claiming_reads_an_index(store: MemoryStore, name: str, index: str) -> None:
    """ADR 0002: the cost of a claim does not grow with what waits, or is done; no statement sorts."""
    text = statements.load(emelex_queue.__name__, "jobs")[name]
    bindings = dict.fromkeys(re.findall(r":(\w+)", text))
    with store.database.read() as transaction:
        plan = [str(row[3]) for row in transaction.all(f"EXPLAIN QUERY PLAN {text}", bindings)]
    assert any(index in step for step in plan), plan
    # A Session has few jobs: those of one may be sorted.
    assert not any("TEMP B-TREE" in step for step in plan), plan
    assert not any(step.startswith("SCAN jobs") and "INDEX" not in step for step in plan), plan


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("depth", {"jobs_settled", "jobs_running", "jobs_to_claim"}),
        ("remaining", {"jobs_running", "jobs_to_claim"}),
    ],
)
def test_counting_jobs_reads_indexes_of_what_it_counts(store: MemoryStore, name: str, indexes: set[str]) -> None:
    """Asked for by every status, every scrape of metrics and every idle drain: no row of a settled job is read."""
    text = statements.load("emelex_core", "jobs")[name]
    with store.database.read() as transaction:
        bindings = dict.fromkeys(re.findall(r":(\w+)", text))
        plan = [str(row[3]) for row in transaction.all(f"EXPLAIN QUERY PLAN {text}", bindings)]
    used = [step for step in plan if step.startswith(("SCAN j", "SEARCH j"))]
    assert {index for step in used for index in indexes if index in step} == indexes, plan
    assert all(any(index in step for index in indexes) for step in used), plan
