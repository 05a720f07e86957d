"""The repository as the house tests see it: its files, their syntax trees, and the figures of the score card.

The module owns these invariants:

- What is looked at is what stands in the tree now; folders that begin with a dot (but `.ci`) and build results do not.
- The packages are those that pyproject.toml puts into the wheel: there is no second list.
"""

from __future__ import annotations

import ast
import io
import os
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE_ROOTS: Final = ("queue", "workers", "bin", "tests")
"""Folders that must never become packages themselves: `queue` would shadow the standard library's."""

FILE_LINES_MAX: Final = 600
FILE_LINES_MEDIAN_MAX: Final = 250
FILE_LINES_P90_MAX: Final = 450
FUNCTION_LINES_MAX: Final = 70
FUNCTION_LINES_P95_MAX: Final = 45

_BUILD_RESULTS: Final = frozenset({"__pycache__", "build", "dist", "node_modules"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Source:
    """One Python file. `place` is its path below the root; `module` its dotted name as importers write it."""

    path: Path
    place: str
    module: str
    in_package: bool

    @cached_property
    def text(self) -> str:
        """The file's text."""
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return ast.parse(self.text, filename=self.place)

    @cached_property
    def fault(self) -> str | None:
        """Why the file does not parse, or None."""
        try:
            ast.parse(self.text)
        except (SyntaxError, UnicodeDecodeError, FileNotFoundError) as error:
            return str(error)
        return None

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The file's lines, without their ends."""
        return tuple(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def comments(self) -> Iterator[tuple[int, str]]:
        """Line number and text of every comment."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string

    def docstrings(self) -> set[int]:
        """The identities of the constants that are docstrings, or strings that document an attribute."""
        return {
            id(node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }


@cache
def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def packages() -> tuple[Path, ...]:
    """Return the folders that the wheel is made of, lowest floor first."""
    return tuple(ROOT / place for place in project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the tree, sorted."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if _is_looked_at(name)]
        found.extend(Path(folder) / name for name in names)
    return tuple(sorted(found))


@cache
def every_source() -> tuple[Source, ...]:
    """Return every Python file of the packages and the tests, also those that are no Python."""
    found = [_source(path, base=package.parent, in_package=True) for package in packages() for path in _python(package)]
    found += [_source(path, base=ROOT, in_package=False) for path in _python(ROOT / "tests")]
    return tuple(found)


@cache
def sources() -> tuple[Source, ...]:
    """Return the Python files that parse; one test names the others, so that they do not fail all tests."""
    return tuple(source for source in every_source() if source.fault is None)


def package_sources() -> tuple[Source, ...]:
    """Return every Python file of the packages."""
    return tuple(source for source in sources() if source.in_package)


def sql_files() -> tuple[Path, ...]:
    """Return the files of named statements of all packages."""
    return tuple(sorted(path for package in packages() for path in package.rglob("sql/*.sql")))


def length(node: Function) -> int:
    """Return a function's length in lines, its signature and docstring included, its decorators not."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def quantile(values: list[int], share: float) -> int:
    """Return the smallest value that at least `share` of the values do not exceed; 0 where there are none."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _source(path: Path, *, base: Path, in_package: bool) -> Source:
    parts = path.relative_to(base).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Source(path=path, place=path.relative_to(ROOT).as_posix(), module=module, in_package=in_package)


def _python(folder: Path) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(folder)]


def _is_looked_at(name: str) -> bool:
    return name not in _BUILD_RESULTS and (name == ".ci" or not name.startswith(".")) and not name.endswith(".egg-info")
