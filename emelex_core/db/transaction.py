"""An open transaction: the few ways in which a statement is run, and what its failures are called.

Every statement raises Invalid for a value that cannot be stored: a lone surrogate, or an integer beyond 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import apsw

from emelex_core.errors import Corrupt, Invalid

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")


class Conflict(Corrupt):
    """A statement would break a uniqueness rule. Who can tell whose fault it is says so; else it is corruption."""


class Transaction:
    """An open transaction; it lives as long as its `with` block."""

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw

    def all(self, statement: str, parameters: Mapping[str, Value] | None = None) -> list[Row]:
        """Run a statement and return all its rows."""
        return list(_storable(self._raw.execute, statement, parameters or {}))

    def one(self, statement: str, parameters: Mapping[str, Value] | None = None) -> Row | None:
        """Run a statement and return its first row, or None."""
        row: Row
        for row in _storable(self._raw.execute, statement, parameters or {}):
            return row
        return None

    def iterate(self, statement: str, parameters: Mapping[str, Value] | None = None) -> Iterator[Row]:
        """Run a statement and yield its rows as SQLite finds them."""
        return iter(_storable(self._raw.execute, statement, parameters or {}))

    def run(self, statement: str, parameters: Mapping[str, Value] | None = None) -> int:
        """Run a statement for its effect and return how many rows it changed."""
        _storable(self._raw.execute, statement, parameters or {})
        return self._raw.changes()

    def run_many(self, statement: str, rows: Iterable[Mapping[str, Value] | Sequence[Value]]) -> None:
        """Run a statement once a parameter set. Raises: Conflict when a row is not unique."""
        _storable(self._raw.executemany, statement, rows)

    def copy_into(
        self, target: apsw.Connection, *, pages_per_step: int, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy the state that this transaction sees, page by page; `progress` is told pages done, and of how many."""
        with target.backup("main", self._raw, "main") as backup:
            while not backup.done:
                backup.step(pages_per_step)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)


def _storable(call: Callable[[str, T], apsw.Cursor], statement: str, values: T) -> apsw.Cursor:
    """Call SQLite; what Python cannot hand over to it is the caller's mistake, told as such."""
    try:
        return call(statement, values)
    except UnicodeEncodeError as error:
        raise Invalid(f"text with a lone surrogate at character {error.start} cannot be stored") from None
    except OverflowError:
        raise Invalid("an integer beyond 64 bits cannot be stored") from None
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_UNIQUE:
            raise Conflict(f"a stored uniqueness rule would be broken: {error}") from error
        raise
