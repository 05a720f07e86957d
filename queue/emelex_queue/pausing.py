"""Pausing the queue: durable, one kind of job at a time (issue 7, item 7).

A pause stands in the database and in the claim statements, so that it holds for every drain and pool, across restarts.
What runs already is not touched: it settles as ever. Publishing, expiry and the explicit retry go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self, cast

from emelex_core import codec
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row
from emelex_core.db.statements import load
from emelex_core.jobs.kinds import JobKind

SQL: Final = load("emelex_queue", "pauses")
REASON_BYTES_MAX: Final = 512
"""One line for whoever wonders later; the schema has the same bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why no job of a kind is claimed. `paused_at` is in milliseconds since the epoch."""

    kind: JobKind
    paused_at: int
    reason: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Read the columns of the statement `all`."""
        return cls(kind=JobKind(cast(str, row[0])), paused_at=cast(int, row[1]), reason=cast("str | None", row[2]))


def pause(
    database: Database, kinds: Iterable[JobKind] = JobKind, *, reason: str | None = None, clock: Clock
) -> list[Pause]:
    """Stop claims of these kinds, by default of all, and return every pause. A paused kind keeps its first reason.

    Raises: Invalid for a blank or long reason, Storage.
    """
    if reason is not None:
        codec.check_line(reason, what="reason", bytes_max=REASON_BYTES_MAX)
    with database.write() as transaction:
        for kind in kinds:
            transaction.run(SQL["pause"], {"kind": kind.value, "now": clock(), "reason": reason})
        return [Pause.from_row(row) for row in transaction.all(SQL["all"])]


def resume(database: Database, kinds: Iterable[JobKind] = JobKind) -> list[JobKind]:
    """Let claims of these kinds go on, and return which of them had been paused. Raises: Storage."""
    with database.write() as transaction:
        return [kind for kind in kinds if transaction.run(SQL["resume"], {"kind": kind.value})]


def pauses(database: Database) -> list[Pause]:
    """Every pause that stands, by kind. Writes nothing."""
    with database.read() as transaction:
        return [Pause.from_row(row) for row in transaction.all(SQL["all"])]
