"""What files say and do not say: docstrings, reasons for silenced checks, no loose ends, nothing of one machine."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import card, tree
from tests.house.tree import Source

TEXT_SUFFIXES = {
    ".py",
    ".sql",
    ".sh",
    ".md",
    ".toml",
    ".cfg",
    ".ini",
    ".yml",
    ".yaml",
    ".json",
    ".service",
    ".timer",
    "",
}
LOOSE_END = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
REGISTRIES = ("py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com", "/simp" + "le/")


def test_every_public_name_has_a_docstring() -> None:
    """Modules, classes, functions and methods state their contract; what fulfils a base's contract may stay silent."""
    bare = [f"{source.place}: {name}" for source in tree.package_sources() for name in _undocumented(source)]
    assert not bare, f"say what each promises, in one line first: {bare}"


def test_silenced_checks_carry_code_and_reason() -> None:
    """`type: ignore`, `pyright: ignore` and `noqa` name a code, and say why behind it or in the comment above."""
    loose = [
        f"{source.place}:{number}"
        for source in tree.sources()
        for number, comment in card.ignores(source)
        if not card.is_reasoned(source, number, comment)
    ]
    assert not loose, f"write `# type: ignore[code]  # why`, or the reason in the line above: {loose}"


def test_no_loose_ends() -> None:
    """Comments hold no reminders, and no docstring waits to be written: finish it, or file an issue."""
    found: list[str] = []
    for source in tree.sources():
        documented = [
            node for node in ast.walk(source.tree) if isinstance(node, ast.Module | ast.ClassDef | tree.Function)
        ]
        found += [source.place for node in documented if LOOSE_END.match(ast.get_docstring(node) or "")]
        found += [f"{source.place}:{number}" for number, comment in source.comments() if LOOSE_END.search(comment)]
    for path in _texts():
        marker = {".sql": "--", ".sh": "#", ".toml": "#", "": "#"}.get(path.suffix)
        if marker and path.name != "LICENSE":
            comments = [line.partition(marker)[2] for line in path.read_text("utf-8").splitlines()]
            found += [str(path) for comment in comments if LOOSE_END.search(comment)]
    assert not found, f"finish it now, or file an issue and delete the comment: {found}"


def test_no_file_names_a_registry_or_this_machine() -> None:
    """The tree is the same for everybody: no package index, no path of the machine it was written on."""
    root, home = str(tree.ROOT), str(Path.home())
    paths = [root, str(tree.ROOT.parent / "shared"), sys.base_prefix, f"{home}/.cache", f"{home}/.config"]
    here = re.compile("|".join(rf"{re.escape(path)}(?![\w-])" for path in paths if path.count("/") > 1))
    found = [
        f"{path.relative_to(tree.ROOT)}:{number}"
        for path in _texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if here.search(line) or any(registry in line for registry in REGISTRIES)
    ]
    assert not found, f"derive paths from the file's own place, and let pip's configuration name the index: {found}"


@pytest.mark.parametrize(
    ("line", "reasoned"),
    [
        ("x = 1  # type: ignore[misc]  # the stubs lack it", True),
        ("x = 1  # noqa: S608 - nothing of a user is in it", True),
        ("x = 1  # type: ignore[misc]", False),
        ("x = 1  # type: ignore", False),
        ("x = 1  # noqa", False),
        ("# The stubs of apsw lack it.\nx = 1  # pyright: ignore[reportAny]", True),
    ],
)
def test_reasons_are_told_from_their_lack(tmp_path: Path, line: str, reasoned: bool) -> None:
    """The rule above, on samples."""
    path = tmp_path / "sample.py"
    path.write_text(f"y = 0\n{line}\n", "utf-8")
    source = Source(path=path, place="sample.py", module="sample", in_package=True)
    assert [card.is_reasoned(source, number, comment) for number, comment in card.ignores(source)] == [reasoned]


def _texts() -> Iterator[Path]:
    return (path for path in tree.files() if path.suffix in TEXT_SUFFIXES and b"\0" not in path.read_bytes()[:4096])


def _undocumented(source: Source) -> Iterator[str]:
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield "the module"
    yield from _undocumented_in(source.tree, prefix="", inherits=False)


def _undocumented_in(scope: ast.Module | ast.ClassDef, *, prefix: str, inherits: bool) -> Iterator[str]:
    for node in scope.body:
        if not isinstance(node, ast.ClassDef | tree.Function) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
        excused = inherits and isinstance(node, tree.Function)
        if ast.get_docstring(node) is None and not excused and not decorators & {"overload", "setter", "override"}:
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_in(node, prefix=f"{node.name}.", inherits=_has_own_contract(node))


def _has_own_contract(node: ast.ClassDef) -> bool:
    """Whether a base, other than the plain ones, already states the contract of the methods."""
    plain = {
        "Protocol",
        "Generic",
        "ABC",
        "Exception",
        "Enum",
        "StrEnum",
        "IntEnum",
        "NamedTuple",
        "TypedDict",
        "Struct",
    }
    return any(ast.unparse(base).split("[")[0].split(".")[-1] not in plain for base in node.bases)
