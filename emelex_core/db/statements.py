"""Named SQL statements. SQL stands in `.sql` files, one a table (house habit 1); this module only reads them.

A file is a list of statements, each under a line `-- name: verb_noun`. Names are unique in a file; a name that is not
there is a LookupError.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

_HEADER: Final = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$", re.MULTILINE)


class Statements:
    """The statements of one `.sql` file, by name: `SQL["claim"]`."""

    def __init__(self, file: str, texts: dict[str, str]) -> None:
        self._file = file
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            raise LookupError(f"{self._file} has no statement named {name!r}") from None

    def names(self) -> tuple[str, ...]:
        """The names in the file's order."""
        return tuple(self._texts)


def load(package: str, table: str) -> Statements:
    """Read `sql/<table>.sql` of a package. Raises ValueError when a name stands twice."""
    file = f"{package}/sql/{table}.sql"
    text = (package_directory(package) / "sql" / f"{table}.sql").read_text("utf-8")
    return Statements(file, parse(text, file=file))


def package_directory(package: str) -> Path:
    """Where an imported package's files lie; `importlib.resources` takes 5 ms for it at every start of a command."""
    return Path(sys.modules[package].__path__[0])


def parse(text: str, *, file: str) -> dict[str, str]:
    """Split a file's text into its statements. Raises ValueError when a name stands twice."""
    pieces = _HEADER.split(text)
    texts: dict[str, str] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if name in texts:
            raise ValueError(f"{file}: the statement {name!r} stands twice")
        texts[name] = body.strip()
    return texts
