"""Which schema a database has, and how it becomes ours.

The module owns these invariants:

- Our databases carry `APPLICATION_ID`; the schema's number is `user_version`, and `schema_migrations` agrees with it.
- A newer schema, a database of Emelex 1.x and a foreign one are refused before the first write (behaviours 9 and 15).
- A migration and its record commit together, so that a kill leaves either the old schema whole or the new one (14).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import apsw

from emelex_core import faults
from emelex_core.db.statements import load, package_directory
from emelex_core.errors import Corrupt, NewerSchema, Refused

SQL: Final = load("emelex_core", "schema")
APPLICATION_ID: Final = 0x454D_4C58
"""`EMLX`, at offset 68 of the file (SQLite's file format, "Application ID")."""

MIGRATIONS: Final[tuple[tuple[int, str], ...]] = (
    (7, "0007_baseline"),
    (8, "0008_queue_pauses"),
    (9, "0009_maintenance"),
    (10, "0010_made_by"),
    (11, "0011_turn_journals"),
    (12, "0012_knowledge_changes"),
    (13, "0013_settled_transcripts"),
    (14, "0014_job_ledgers"),
    (15, "0015_proposal_retention"),
    (16, "0016_settled_jobs"),
)
"""Number and file of each migration, contiguous. 1 to 6 were Emelex 1.x."""

CURRENT: Final = MIGRATIONS[-1][0]
_FIRST: Final = MIGRATIONS[0][0]


class Outdated(Refused):
    """The database is ours, but empty or of an older schema; opening it for writing migrates it."""


def require_current(raw: apsw.Connection) -> None:
    """Raise unless the database is ours and current, and its record of migrations agrees. Reads only.

    Raises: Outdated, NewerSchema naming both versions, Refused for a foreign database, Corrupt.
    """
    with _one_view(raw):
        version = inspect(raw)
        if version != CURRENT:
            raise Outdated(
                f"the database has schema {version}; this release needs {CURRENT}", hint="open it once for writing"
            )
        recorded = raw.execute(SQL["recorded"]).fetchall()
    if recorded != [(CURRENT - _FIRST + 1, _FIRST, CURRENT)]:
        raise Corrupt(f"the database says schema {version}, but its record of migrations does not")


def inspect(raw: apsw.Connection) -> int:
    """Return the schema's number, 0 for an empty file. Reads only. Raises: NewerSchema, Refused."""
    with _one_view(raw):
        application = int(raw.pragma("application_id"))
        version = int(raw.pragma("user_version"))
        is_empty = not raw.execute(SQL["has_any"]).fetchall()
    if application == APPLICATION_ID:
        if version > CURRENT:
            raise NewerSchema(
                f"the database has schema {version}; this release knows {CURRENT} and wrote nothing",
                hint="use the newer release of Emelex memory",
            )
        if version < _FIRST:
            raise Corrupt(f"the database carries our application id but schema {version}")
        return version
    if application == 0 and version == 0 and is_empty:
        return 0
    if application == 0 and 1 <= version < _FIRST:
        raise NewerSchema(
            f"this is a database of Emelex 1.x (schema {version}); this release cannot read it and left it untouched",
            hint="choose another Home with --home",
        )
    raise Refused(f"this is not a database of Emelex memory (application id {application:#x}, version {version})")


@contextmanager
def _one_view(raw: apsw.Connection) -> Generator[None]:
    """Read several things of one state: another process may be committing the migration between two looks."""
    if raw.in_transaction:
        yield
        return
    raw.execute("BEGIN")
    try:
        yield
    finally:
        _end_view(raw)


def _end_view(raw: apsw.Connection) -> None:
    """End a read; an input/output error may have ended it already."""
    if raw.in_transaction:
        raw.execute("ROLLBACK")


def migrate(raw: apsw.Connection, *, now: int) -> int:
    """Bring an empty or older database to the current schema; return how many steps it took.

    The caller holds the open lock. Raises: NewerSchema, Refused, Corrupt when a step leaves a foreign key dangling.
    """
    version = inspect(raw)
    steps = [(number, name) for number, name in MIGRATIONS if number > version]
    for number, name in steps:
        _step(raw, number, name, now)
    return len(steps)


def _step(raw: apsw.Connection, number: int, name: str, now: int) -> None:
    text = (package_directory("emelex_core") / "schema" / f"{name}.sql").read_text("utf-8")
    raw.execute("BEGIN IMMEDIATE")
    try:
        raw.execute(text)
        raw.execute(SQL["record"], {"number": number, "name": name, "now": now})
        dangling = raw.execute("PRAGMA foreign_key_check").fetchall()
        if dangling:
            raise Corrupt(f"migration {name} leaves {len(dangling)} dangling references, first in {dangling[0][0]}")
        raw.pragma("application_id", APPLICATION_ID)
        raw.pragma("user_version", number)
        faults.reach("migrate.before_commit")
        raw.execute("COMMIT")
    except BaseException:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise
