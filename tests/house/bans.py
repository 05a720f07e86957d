"""The bans of the house: what may not be written, where it may all the same, and what to write instead (habit 19)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.house.tree import Source

Finder = Callable[[Source], Iterator[ast.AST]]

_DATA_STATEMENT = (
    r"SELECT\s.+?\sFROM\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|REPLACE\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s"
    r"|CREATE\s+(TEMP\w*\s+)?(UNIQUE\s+)?(TABLE|INDEX|TRIGGER|VIEW|VIRTUAL)\s|ALTER\s+TABLE\s|DROP\s+(TABLE|INDEX|TRIGGER|VIEW)\s"
)
_DATA = re.compile(rf"\b({_DATA_STATEMENT})|^\s*SELECT\s", re.DOTALL)
_DATA_LOWER = re.compile(rf"^\s*({_DATA_STATEMENT})", re.DOTALL | re.IGNORECASE)
_CONTROL = re.compile(
    r"^\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA|VACUUM|ATTACH|DETACH|ANALYZE|REINDEX)(\s|;|$)"
)
_BUILT = (ast.JoinedStr, ast.BinOp, ast.Call)
_WALL_CLOCK = {("time", "time"), ("time", "time_ns"), ("date", "today")} | {
    ("datetime", name) for name in ("now", "utcnow", "today")
}


@dataclass(frozen=True, kw_only=True)
class Ban:
    """A construct that is refused. `allowed` maps a file, or a folder ending in /, to the reason it may stand there.

    `sample` is a piece of code that the finder must find: a ban that cannot fail is none.
    """

    name: str
    instead: str
    find: Finder
    sample: str
    allowed: dict[str, str] = field(default_factory=dict[str, str])
    in_tests: bool = False

    def permits(self, place: str) -> bool:
        """Whether the construct may stand in that file."""
        return any(place == spot or (spot.endswith("/") and place.startswith(spot)) for spot in self.allowed)


def _calls(source: Source) -> Iterator[ast.Call]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))


def _prints(source: Source) -> Iterator[ast.AST]:
    return (call for call in _calls(source) if isinstance(call.func, ast.Name) and call.func.id == "print")


def _bare_excepts(source: Source) -> Iterator[ast.AST]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.ExceptHandler) and node.type is None)


def _loose_processes(source: Source) -> Iterator[ast.AST]:
    """Find processes that neither a `with` nor tests/support/processes.py ends."""
    ended: set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            ended.update(id(item.context_expr) for item in node.items)
        elif isinstance(node, ast.Call) and _name(node) == "keep":
            ended.update(map(id, node.args))
    return (call for call in _calls(source) if _name(call) == "Popen" and id(call) not in ended)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _wall_clock(source: Source) -> Iterator[ast.AST]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in _WALL_CLOCK:
                yield node
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and {alias.name for alias in node.names} & {"time", "time_ns"}
        ):
            yield node


def _imports_of(*names: str) -> Finder:
    def find(source: Source) -> Iterator[ast.AST]:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            if any(module.split(".")[0] in names for module in modules):
                yield node

    return find


def _strings(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Yield every string that is not documentation, with the text of its constant parts."""
    skipped = source.docstrings()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            skipped.update(id(part) for part in parts)
            yield node, " ? ".join(str(part.value) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node, node.value


def data_sql(source: Source) -> Iterator[ast.AST]:
    """Find strings that read, change or define data."""
    return (node for node, text in _strings(source) if _DATA.search(text) or _DATA_LOWER.match(text))


def control_sql(source: Source) -> Iterator[ast.AST]:
    """Find strings that control a transaction, set a pragma or maintain the file."""
    return (node for node, text in _strings(source) if _CONTROL.match(text))


def _built_sql(source: Source) -> Iterator[ast.AST]:
    for call in _calls(source):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method in {"execute", "executemany"} and call.args and isinstance(call.args[0], _BUILT):
            yield call.args[0]


BANS: Final = (
    Ban(
        name="print",
        instead="return a value; bin/emelex_cli/output.py presents it",
        find=_prints,
        sample="print('x')",
        allowed={"bin/emelex_cli/": "the one floor that presents"},
    ),
    Ban(
        name="bare except",
        instead="name the exceptions; cleanup that must see all of them is `finally`, or re-raises BaseException",
        find=_bare_excepts,
        sample="try:\n    f()\nexcept:\n    pass",
        in_tests=True,
    ),
    Ban(
        name="process that may outlive its test",
        instead="`keep(subprocess.Popen(...))` of tests/support/processes.py, or a `with`: what is left fails others",
        find=_loose_processes,
        sample="a = subprocess.Popen(command)\nb = [Popen(command) for command in commands]",
        allowed={
            "tests/support/nursery.py": "it serves all tests of its module, whose fixture ends it",
            "tests/bench/": "no tests: what is measured, with what is started for it",
            "emelex_core/": "no tests",
            "workers/": "no tests",
            "ops/": "no tests",
        },
        in_tests=True,
    ),
    Ban(
        name="wall clock",
        instead="take a `Clock` (emelex_core/clock.py); SQL receives :now; durations use time.monotonic",
        find=_wall_clock,
        sample="import datetime, time\na = time.time\nb = datetime.datetime.now(tz)\nfrom time import time_ns",
        allowed={
            "emelex_core/clock.py": "the one place that reads it",
            "emelex_core/ids.py": "a UUIDv7 carries its instant; nothing reads it back",
        },
    ),
    Ban(
        name="stdlib sqlite3",
        instead="use apsw: a second SQLite in the process drops the locks of the first (docs/adr/0001)",
        find=_imports_of("sqlite3"),
        sample="import sqlite3",
        in_tests=True,
    ),
    Ban(
        name="pickle",
        instead="store canonical JSON through emelex_core/codec.py; a pickle in the database runs code when it is read",
        find=_imports_of("pickle", "marshal", "shelve"),
        sample="from pickle import loads",
    ),
    Ban(
        name="SQL in Python",
        instead="write it as a named statement in a package's sql/*.sql and load it with emelex_core/db/statements.py",
        find=data_sql,
        sample="a = 'SELECT id FROM jobs'\nb = f'update {t} set x = 1'\n"
        "c = 'INSERT ' 'INTO jobs VALUES (1)'\nd = 'delete from jobs where id = 1'",
    ),
    Ban(
        name="transaction control and pragmas",
        instead="use the two openers `read()` and `write()`; pragmas stand in the connection recipe of emelex_core/db",
        find=control_sql,
        sample="a = 'BEGIN IMMEDIATE'\nb = f'PRAGMA {name}'\nc = 'COMMIT'",
        allowed={"emelex_core/db/": "the connection recipe and the two openers"},
    ),
    Ban(
        name="SQL built from strings",
        instead="bind parameters to a named statement; two variants are two statements",
        find=_built_sql,
        sample="c.execute(f'{a}')\nc.execute(a + b)\nc.executemany('x'.format(a), rows)",
    ),
)
