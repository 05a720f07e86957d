"""Collecting what nothing refers to, in bounded passes (behaviours 108 to 113).

    catalog      rows without a link, expired ── removed ──▶ their files ── removed; what cannot go is put back
    directory    files without a row, expired; temporaries that nobody locks, older than an hour

The module owns these invariants:

- What an event links or a turn under way has put down is never collected. The grace of the rest counts from the newest
  storing, or from when the last link went; both stand in the catalog. Only a file without a row is as old as its time.
- Choosing and removing happen in one statement under the write lock. An append that stored its bytes within the grace
  finds them.
- One bad file is a problem in the report; the pass goes on with the rest and with the next phase.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from emelex_core import faults, home, limits
from emelex_core.assets import cursor, files, removal
from emelex_core.assets.cursor import Cursor
from emelex_core.assets.records import CollectReport, RemovedRow
from emelex_core.assets.removal import Removed
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, Storage

SQL: Final = load("emelex_core", "assets")


@dataclass(slots=True, kw_only=True)
class _Pass:
    """One pass: its bounds and its counts."""

    database: Database
    directory: Path
    now: int
    grace_ms: int
    removed: Removed = field(default_factory=Removed)
    temporaries: int = 0
    young: int = 0
    locked: int = 0
    journalled: int = 0


def collect(
    database: Database,
    directory: Path,
    *,
    clock: Clock,
    grace_ms: int = limits.ASSET_GRACE_MS,
    rows_max: int = limits.COLLECT_ROWS_MAX,
    entries_max: int = limits.COLLECT_ENTRIES_MAX,
) -> CollectReport:
    """Remove at most so many expired assets and look at so many directory entries, from where the last pass stopped.

    Raises: Invalid for a grace or a bound that is not above zero, or a bound above the default; Refused for the
    directory; Storage for the database.
    """
    _check(grace_ms=grace_ms, rows_max=rows_max, entries_max=entries_max)
    home.check_asset_directory(directory)
    place = cursor.load(directory)
    run = _Pass(database=database, directory=directory, now=clock(), grace_ms=grace_ms)
    _clamp(run)
    reached = Cursor(
        catalog=_collect_rows(run, place.catalog, rows_max), directory=_sweep(run, place.directory, entries_max)
    )
    cursor.save(directory, reached)
    return CollectReport(
        rows=run.removed.rows,
        bytes=run.removed.bytes,
        missing=run.removed.missing,
        orphans=run.removed.orphans,
        temporaries=run.temporaries,
        young=run.young,
        locked=run.locked,
        journalled=run.journalled,
        problems=tuple(run.removed.problems.listed),
        problem_count=run.removed.problems.count,
        complete=reached == Cursor(),
    )


def _check(*, grace_ms: int, rows_max: int, entries_max: int) -> None:
    if grace_ms <= 0:
        raise Invalid(f"a grace of {grace_ms} ms would collect what is about to be linked; it must be above zero")
    for bound, most, what in (
        (rows_max, limits.COLLECT_ROWS_MAX, "catalog rows"),
        (entries_max, limits.COLLECT_ENTRIES_MAX, "directory entries"),
    ):
        if not 1 <= bound <= most:
            raise Invalid(f"{bound} {what} a pass; 1 to {most} are accepted")


def _clamp(run: _Pass) -> None:
    with run.database.read() as transaction:
        ahead = transaction.one(SQL["count_ahead"], {"now": run.now})
    if ahead != (0,):
        with run.database.write() as transaction:
            transaction.run(SQL["clamp"], {"now": run.now})


def _collect_rows(run: _Pass, after: str, rows_max: int) -> str:
    """Remove expired rows and then their files; return the digest to go on after, empty at the catalog's end."""
    cutoff = run.now - run.grace_ms
    with run.database.read() as transaction:
        rows = transaction.all(SQL["orphans"], {"after": after, "cutoff": cutoff, "limit": rows_max})
    names = [cast(str, row[0]) for row in rows]
    if not names:
        return ""
    with run.database.write() as transaction:
        gone = list(_remove_rows(run, transaction, names, cutoff))
    faults.reach("collect.rows_removed")
    removal.remove_files(run.database, run.directory, gone, run.removed)
    return names[-1] if len(names) == rows_max else ""


def _remove_rows(run: _Pass, transaction: Transaction, names: list[str], cutoff: int) -> Iterator[RemovedRow]:
    journals = removal.journalled(transaction)
    for sha256 in names:
        if sha256 in journals:
            # Its grace begins when the journal goes; until then each pass sets it anew.
            transaction.run(SQL["touch"], {"sha256": sha256, "now": run.now})
            run.journalled += 1
            continue
        row = transaction.one(SQL["remove_orphan"], {"sha256": sha256, "cutoff": cutoff})
        if row is not None:
            yield removal.removed_row(sha256, row)


def _sweep(run: _Pass, after: str, entries_max: int) -> str:
    """Look at the next names of the directory; return the name to go on after, empty at the directory's end."""
    names = _names(run.directory, after, entries_max)
    orphans: list[str] = []
    for name in names:
        if name.startswith(files.TEMPORARY_PREFIX):
            _sweep_temporary(run, name)
        elif files.is_digest(name):
            if not _is_cataloged(run.database, name) and _is_expired(run, name, run.grace_ms):
                orphans.append(name)
        elif name != cursor.NAME:
            run.removed.problems.add(name, "it is no asset and was left alone")
    removal.remove_orphans(run.database, run.directory, orphans, run.removed)
    return names[-1] if len(names) == entries_max else ""


def _names(directory: Path, after: str, entries_max: int) -> list[str]:
    """The next names in order. All are listed, since a directory has no order; so many are kept."""
    try:
        with os.scandir(directory) as entries:
            return heapq.nsmallest(entries_max, (entry.name for entry in entries if entry.name > after))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Storage(f"cannot list {directory}: {error.strerror}") from error


def _is_cataloged(database: Database, sha256: str) -> bool:
    with database.read() as transaction:
        return transaction.one(SQL["size"], {"sha256": sha256}) is not None


def _is_expired(run: _Pass, name: str, age_ms: int) -> bool:
    try:
        changed = os.lstat(run.directory / name).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return False
    except OSError as error:
        run.removed.problems.add(name, f"it cannot be looked at: {error.strerror}")
        return False
    if run.now - changed >= age_ms:
        return True
    run.young += 1
    return False


def _sweep_temporary(run: _Pass, name: str) -> None:
    """Remove what a killed writer left: old, and locked by nobody; the lock is held while the name goes."""
    if not _is_expired(run, name, limits.TEMPORARY_AGE_MS_MIN):
        return
    path = run.directory / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        run.removed.problems.add(name, f"it cannot be opened: {error.strerror}")
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not os.path.samestat(os.lstat(path), found):
            run.removed.problems.add(name, "it is not a regular file, or was replaced while it was looked at")
            return
        path.unlink()
        run.temporaries += 1
    except BlockingIOError:
        run.locked += 1
    except OSError as error:
        run.removed.problems.add(name, f"it cannot be removed: {error.strerror}")
    finally:
        os.close(descriptor)
