"""Checking every cataloged asset against its file, in pages and without any lock while hashing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

from emelex_core import home, limits
from emelex_core.assets import files
from emelex_core.assets.records import Problems, VerifyReport
from emelex_core.db.database import Database
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, EmelexError, Storage

SQL: Final = load("emelex_core", "assets")

Progress = Callable[[int, int], None]
"""Told how many assets and bytes are done; what it raises ends the check."""


def verify(database: Database, directory: Path, *, progress: Progress | None = None) -> VerifyReport:
    """Read and hash every cataloged asset; count the files that no row names.

    A damaged asset is a problem in the report, not an error. Raises: Refused for the directory; Storage.
    """
    home.check_asset_directory(directory)
    problems = Problems()
    assets = size_sum = 0
    for sha256, size in _catalog(database):
        try:
            files.verify(directory / sha256, sha256=sha256, size=size)
        except (Corrupt, Storage) as error:
            if not _is_cataloged(database, sha256):
                continue
            problems.add(sha256, _reason(error))
        assets += 1
        size_sum += size
        if progress is not None:
            progress(assets, size_sum)
    uncataloged, temporaries = _uncataloged(database, directory)
    return VerifyReport(
        assets=assets,
        bytes=size_sum,
        problems=tuple(problems.listed),
        problem_count=problems.count,
        uncataloged=uncataloged,
        temporaries=temporaries,
    )


def _catalog(database: Database) -> Iterator[tuple[str, int]]:
    after = ""
    while True:
        with database.read() as transaction:
            rows = transaction.all(SQL["after"], {"after": after, "limit": limits.PAGE_ASSETS_MAX})
        for sha256, size in rows:
            after = cast(str, sha256)
            yield after, cast(int, size)
        if len(rows) < limits.PAGE_ASSETS_MAX:
            return


def _is_cataloged(database: Database, sha256: str) -> bool:
    """Whether the row is still there: what was collected while it was read is no damage."""
    with database.read() as transaction:
        return transaction.one(SQL["size"], {"sha256": sha256}) is not None


def _uncataloged(database: Database, directory: Path) -> tuple[int, int]:
    uncataloged = temporaries = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(files.TEMPORARY_PREFIX):
                    temporaries += 1
                elif files.is_digest(entry.name) and not _is_cataloged(database, entry.name):
                    uncataloged += 1
    except FileNotFoundError:
        return 0, 0
    except OSError as error:
        raise Storage(f"cannot list {directory}: {error.strerror}") from error
    return uncataloged, temporaries


def _reason(error: EmelexError) -> str:
    return "it has no file" if isinstance(error, files.Missing) else error.message
