"""`restore`: a verified backup becomes the store of a Home that has none.

The module owns these invariants:

- The database is proven by its digest before anything is written, each asset by its own as it is copied, and the whole
  by a check at the end.
- A Home that has a database is refused; nothing of it is touched.
- The assets come first and the database gets its name last, so that a restore that was cut off leaves a Home without a
  database. Running it again finishes it.
- Identities stay what they were. A directory that is another one on this machine is named: rebinding is a person's act.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, cast

from emelex_core import faults, home, identity
from emelex_core.archive.backup import Manifest, copy_asset, file_sha256, read_manifest
from emelex_core.archive.check import check
from emelex_core.archive.new_file import new_file
from emelex_core.archive.records import BoundWorkspace, RestoreReport
from emelex_core.assets import files
from emelex_core.db import schema
from emelex_core.db.inspection import Progress
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, NewerSchema, Refused, Storage
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
    _copy_assets(backup / "memory" / STANDARD_ASSETS, target, manifest, progress)
    faults.reach("restore.assets_copied")
    _copy_database(Home(backup).database, place.database)
    faults.reach("restore.database_copied")
    with MemoryStore.open(place) as store:
        totals = store.totals()
        if (totals.sessions, totals.events) != (manifest.sessions, manifest.events):
            raise Corrupt(f"{place.database} does not hold what the description of the backup says")
        return RestoreReport(
            database=place.database,
            sessions=totals.sessions,
            events=totals.events,
            assets=totals.assets,
            asset_bytes=totals.asset_bytes,
            check=check(store),
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
    """Hold a backup's database against what the backup says of itself. Raises: Corrupt, NewerSchema."""
    if manifest.schema_version > schema.CURRENT:
        raise NewerSchema(
            f"the backup has schema {manifest.schema_version}; this release knows {schema.CURRENT} and wrote nothing",
            hint="use the newer release of Emelex memory",
        )
    if not home.exists(backup.database) or file_sha256(backup.database) != manifest.database_sha256:
        raise Corrupt(f"the database of the backup {backup.root} is not the one that was written")


def _copy_assets(source: Path, target: Path, manifest: Manifest, progress: Progress | None) -> None:
    try:
        found = sorted(path for path in source.iterdir() if files.is_digest(path.name))
    except OSError as error:
        raise home.storage_error(error, f"cannot list {source}") from error
    if len(found) < manifest.assets:
        raise Corrupt(f"the backup has {len(found)} assets of {manifest.assets}")
    for number, path in enumerate(found, start=1):
        _copy_asset(path, target, accept_damage=manifest.damage > 0)
        if progress is not None:
            progress(number, len(found))
    home.sync_directory(target)


def _copy_asset(path: Path, target: Path, *, accept_damage: bool) -> None:
    size = path.lstat().st_size
    try:
        if home.exists(target / path.name):
            # An earlier restore that was cut off got this far.
            files.verify(target / path.name, sha256=path.name, size=size)
        else:
            copy_asset(path.parent, target, path.name, size)
    except Corrupt:
        if not accept_damage:
            raise
        shutil.copyfile(path, target / path.name, follow_symlinks=False)
        (target / path.name).chmod(home.PRIVATE_FILE)


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
