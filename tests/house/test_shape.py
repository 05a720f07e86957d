"""Shape and functions of the score card (house.md): lengths within their bounds, and nothing that nobody reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house import tree
from tests.house.tree import Source

PUBLIC_MODULES = {"emelex_core.testing": "doubles that other projects' tests import"}
"""Modules that no entry point reaches, each with its reason."""


def test_every_file_parses() -> None:
    """The tests of the house see only what parses."""
    assert not {source.place: source.fault for source in tree.every_source() if source.fault is not None}


def test_no_file_is_longer_than_the_bound() -> None:
    """A file above 600 lines holds more than one thing."""
    long = [
        f"{source.place}: {len(source.lines)}" for source in tree.sources() if len(source.lines) > tree.FILE_LINES_MAX
    ]
    assert not long, f"split along the verbs, one room each: {long}"


def test_files_are_short_on_the_whole() -> None:
    """Half of the packages' files have at most 250 lines, nine in ten at most 450."""
    lengths = [len(source.lines) for source in tree.package_sources()]
    assert tree.quantile(lengths, 0.5) <= tree.FILE_LINES_MEDIAN_MAX
    assert tree.quantile(lengths, 0.9) <= tree.FILE_LINES_P90_MAX


def test_no_function_is_longer_than_the_bound() -> None:
    """A function above 70 lines does not fit a screen."""
    long = [
        f"{source.place}:{node.lineno} {node.name}: {tree.length(node)}"
        for source in tree.sources()
        for node in source.functions()
        if tree.length(node) > tree.FUNCTION_LINES_MAX
    ]
    assert not long, f"keep the control flow in the verb and move pure helpers below it: {long}"


def test_functions_are_short_on_the_whole() -> None:
    """Nineteen in twenty functions of the packages have at most 45 lines."""
    lengths = [tree.length(node) for source in tree.package_sources() for node in source.functions()]
    assert tree.quantile(lengths, 0.95) <= tree.FUNCTION_LINES_P95_MAX


def test_quantiles_are_those_of_the_sorted_values() -> None:
    """The figures above rest on this helper."""
    assert tree.quantile([], 0.5) == 0
    assert tree.quantile([3, 1, 2], 0.5) == 2
    assert tree.quantile(list(range(1, 101)), 0.95) == 95
    assert tree.quantile([7], 0.95) == 7


def test_every_module_is_reached_from_an_entry_point() -> None:
    """A module that neither a command nor the public package reaches is dead, whatever its tests say."""
    known = {source.module: source for source in tree.package_sources()}
    waiting = [module for module in known if _is_entry(module)] + list(PUBLIC_MODULES)
    reached: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in reached or module not in known:
            continue
        reached.add(module)
        waiting += _mentioned(known[module], known)
    dead = [known[module].place for module in sorted(set(known) - reached)]
    assert not dead, f"import it where its work is called for, or delete it: {dead}"


def _is_entry(module: str) -> bool:
    scripts = tree.project()["project"]["scripts"].values()
    return "." not in module or module.endswith(".__main__") or module in {script.split(":")[0] for script in scripts}


def _mentioned(source: Source, known: dict[str, Source]) -> Iterator[str]:
    """Yield the modules that a module imports, now or late, and those that it names in a string to be run or loaded."""
    package = source.module if source.path.name == "__init__.py" else source.module.rpartition(".")[0]
    for node in ast.walk(source.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [package + node.value if node.value.startswith(".") else node.value]
        for name in names:
            pieces = name.split(":")[0].split(".")
            prefixes = (".".join(pieces[:end]) for end in range(len(pieces), 0, -1))
            yield from (prefix for prefix in prefixes if prefix in known)
