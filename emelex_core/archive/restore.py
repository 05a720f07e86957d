"""`restore`: a verified backup becomes the store of a Home that has none.

The module owns these invariants:

- The backup is proven before anything is written: its manifest, the database's digest, every asset's.
- A Home that has a database is refused; nothing of it is touched.
- The assets come first and the database gets its name last, so that a restore that was cut off leaves a Home without a
  database. Running it again finishes it.
- Identities stay what they were. A directory that is another one on this machine is named: rebinding is a person's act.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, cast

from emelex_core import faults, home, identity
from emelex_core.archive.backup import Manifest, copy_asset, file_sha256, read_manifest
from emelex_core.archive.check import check
from emelex_core.archive.new_file import new_file
from emelex_core.archive.records import BoundWorkspace, RestoreReport
from emelex_core.assets import files
from emelex_core.db.inspection import Progress
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Refused, Storage
from emelex_core.home import Home
from emelex_core.identity import Identity
from emelex_core.store import STANDARD_ASSETS, MemoryStore

SQL: Final = load("emelex_core", "archive")
_CHUNK: Final = 1024 * 1024


def restore(backup: Path, place: Home, *, progress: Progress | None = None) -> RestoreReport:
    """Make a backup the store of a Home, creating the Home where it is missing; `progress` is told assets done.

    Raises: NotFound when there is no backup; Corrupt when it is damaged; Refused when the Home has a database;
    NewerSchema; StorageFull, Storage.
    """
    backup = Path(os.path.realpath(backup))
    if home.exists(place.database):
        raise Refused(
            f"{place.database} exists; a restore never replaces a database",
            hint="restore into another Home with --home, or move this one away",
        )
    manifest = read_manifest(backup)
    _prove(Home(backup), manifest)
    home.create(place)
    target = place.memory / STANDARD_ASSETS
    home.make_private_directory(target)
    home.check_asset_directory(target)
    _copy_assets(backup / "memory" / STANDARD_ASSETS, target, progress)
    faults.reach("restore.assets_copied")
    _copy_database(Home(backup).database, place.database)
    faults.reach("restore.database_copied")
    with MemoryStore.open(place) as store:
        totals = store.totals()
        return RestoreReport(
            database=place.database,
            sessions=totals.sessions,
            events=totals.events,
            assets=totals.assets,
            asset_bytes=totals.asset_bytes,
            workspaces=bound_workspaces(store),
        )


def bound_workspaces(store: MemoryStore) -> tuple[BoundWorkspace, ...]:
    """Every directory that something is bound to, and what stands at its path now."""
    with store.database.read() as transaction:
        rows = transaction.all(SQL["workspaces"])
    return tuple(
        BoundWorkspace(
            id=cast(int, row[0]),
            path=cast(str, row[1]),
            stored=Identity(device=cast(int, row[2]), inode=cast(int, row[3]), birth_ns=cast("int | None", row[4])),
            found=_found(cast(str, row[1])),
            sessions=cast(int, row[5]),
            knowledge=cast(int, row[6]),
        )
        for row in rows
    )


def _prove(backup: Home, manifest: Manifest) -> None:
    """Hold a backup against what it says of itself, and check all of it. Raises: Corrupt."""
    if not home.exists(backup.database) or file_sha256(backup.database) != manifest.database_sha256:
        raise Corrupt(f"the database of the backup {backup.root} is not the one that was written")
    with MemoryStore.open(backup, read_only=True) as store:
        totals, report = store.totals(), check(store)
    if (totals.sessions, totals.events) != (manifest.sessions, manifest.events) or report.assets != manifest.assets:
        raise Corrupt(f"the backup {backup.root} does not hold what its description says")
    damaged = [finding for finding in report.findings if finding.area == "media" and finding.weight == "damage"]
    if damaged:
        raise Corrupt(f"the backup {backup.root} is damaged: {damaged[0].detail}")


def _copy_assets(source: Path, target: Path, progress: Progress | None) -> None:
    try:
        names = sorted(name for name in os.listdir(source) if files.is_digest(name))
    except OSError as error:
        raise home.storage_error(error, f"cannot list {source}") from error
    for number, name in enumerate(names, start=1):
        size = (source / name).stat().st_size
        if home.exists(target / name):
            # An earlier restore that was cut off got this far.
            files.verify(target / name, sha256=name, size=size)
        else:
            copy_asset(source, target, name, size)
        if progress is not None:
            progress(number, len(names))
    home.sync_directory(target)


def _copy_database(source: Path, target: Path) -> None:
    with new_file(target) as write:
        try:
            with open(source, "rb") as file:
                while chunk := file.read(_CHUNK):
                    write(chunk)
        except OSError as error:
            raise Storage(f"cannot read {source}: {error.strerror}") from error


def _found(path: str) -> Identity | None:
    try:
        return identity.read_identity(path)
    except (OSError, ValueError):
        return None
