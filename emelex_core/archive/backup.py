"""`backup`: an online copy of a store, consistent with its assets, verified before it has its name.

A backup is a Home of its own: `memory/emelex.sqlite3`, `memory/assets/<sha256>` and `backup.json`, which says what it
is. `--home` reads it in place. The module owns these invariants:

- Nothing is written over: the directory is made, filled beside its name, verified, synced, then renamed.
- The database is one committed state; the assets are those that this state names. When some went meanwhile, since a
  Session was deleted, a newer state is taken.
- A backup carries nobody's authority: leases and claims are dropped in it, and running jobs are pending, uncounted.
- Models, the configuration and owner locks are no part of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from emelex_core import faults, home, limits
from emelex_core.archive.check import check
from emelex_core.archive.new_file import new_file
from emelex_core.archive.records import BackupReport, CheckReport
from emelex_core.assets import files
from emelex_core.assets.export import Target, give_name
from emelex_core.clock import iso
from emelex_core.db import inspection
from emelex_core.db.database import Database
from emelex_core.db.inspection import Progress
from emelex_core.db.opening import open_database
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid, NotFound, Storage, StorageBusy
from emelex_core.home import Home
from emelex_core.store import STANDARD_ASSETS, MemoryStore

SQL: Final = load("emelex_core", "archive")
ASSETS: Final = load("emelex_core", "assets")
MANIFEST: Final = "backup.json"
FORMAT: Final = 1
_STATES_MAX: Final = 3
"""How often a newer state is taken when assets of the one before went."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a backup says of itself. `database_sha256` is the digest of the database file, in hex, and
    `damage` counts what was damaged in the store already when somebody accepted that.
    """

    type: str
    format: int
    schema_version: int
    created_at: str
    database_bytes: int
    database_sha256: str
    sessions: int
    events: int
    assets: int
    asset_bytes: int
    damage: int


class _Overtaken(StorageBusy):
    """An asset that the copied state names went before it was copied."""


def backup(
    store: MemoryStore, destination: Path, *, accept_damage: bool = False, progress: Progress | None = None
) -> BackupReport:
    """Copy a store into a new directory and verify the copy; `progress` is told pages copied, and of how many.

    Raises: Invalid when the destination exists, NotFound for its parent; Corrupt when the copy is not sound, unless
    `accept_damage` wants it as it is; StorageBusy, StorageFull, Storage. A failure leaves nothing behind.
    """
    destination = Path(os.path.abspath(destination))  # noqa: PTH100 - the final component must not be resolved
    if home.exists(destination):
        raise Invalid(f"{destination} exists already; nothing was written", hint="choose another name")
    if not destination.parent.is_dir():
        raise NotFound(f"there is no directory {destination.parent}")
    partial = destination.with_name(f".{destination.name[:100]}.part-{secrets.token_hex(8)}")
    try:
        report = _fill(store, Home(partial), accept_damage=accept_damage, progress=progress)
        _give_name(partial, destination)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial)
    return replace(report, path=destination)


def read_manifest(directory: Path) -> Manifest:
    """What a backup says of itself. Raises: NotFound when there is none, Corrupt when it cannot be read."""
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{directory} is no backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise Storage(f"cannot read {path}: {error.strerror}") from error
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{path} does not describe a backup: {error}") from None
    if found.type != "emelex_backup" or found.format != FORMAT:
        raise Corrupt(f"{path} describes a backup of format {found.format}; this release knows {FORMAT}")
    return found


def file_sha256(path: Path) -> str:
    """The digest of a file, in hex. Raises: Storage."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Storage(f"cannot read {path}: {error.strerror}") from error


def copy_asset(source: Path, target: Path, sha256: str, size: int) -> None:
    """Copy one asset into another directory of assets, proving it on the way. Raises: Missing, Corrupt, Storage."""
    with files.temporary(target) as temporary:
        files.copy(source / sha256, Target(temporary), sha256=sha256, size=size)
        files.sync(temporary)
        give_name(temporary.path, target / sha256)


def _fill(store: MemoryStore, place: Home, *, accept_damage: bool, progress: Progress | None) -> BackupReport:
    """Make the whole backup under another name."""
    assets = place.memory / STANDARD_ASSETS
    for directory in (place.root, place.memory, assets):
        home.make_private_directory(directory)
    attempts = Retrying(
        stop=stop_after_attempt(_STATES_MAX),
        wait=wait_random(0, 0.2),
        retry=retry_if_exception_type(_Overtaken),
        reraise=True,
    )
    attempts(_copy, store, place.database, assets, progress)
    home.sync_directory(assets)
    faults.reach("backup.copied")
    report = _verify(place)
    if not (report.sound or accept_damage):
        raise Corrupt(
            f"the store has {report.damage} damages, first: {report.findings[0].detail}; no backup was made",
            hint="`emelex memory check` lists them; --accept-damage copies it as it is",
        )
    manifest = _describe(store, place, report)
    _write(place.root / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    for directory in (place.memory, place.root):
        home.sync_directory(directory)
    return BackupReport(
        path=place.root,
        database_bytes=manifest.database_bytes,
        database_sha256=manifest.database_sha256,
        schema_version=manifest.schema_version,
        sessions=manifest.sessions,
        events=manifest.events,
        assets=manifest.assets,
        asset_bytes=manifest.asset_bytes,
        check=report,
    )


def _copy(store: MemoryStore, target: Path, assets: Path, progress: Progress | None) -> None:
    """Copy one state and the assets that it names; drop authority in the copy, and rows of orphans that went."""
    for path in (target, *(target.with_name(target.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        path.unlink(missing_ok=True)
    inspection.copy_database(store.database, target, progress=progress)
    copied = open_database(target)
    try:
        gone = _copy_assets(copied, store.assets_directory, assets)
        with copied.write() as transaction:
            for statement in (SQL["drop_session_leases"], SQL["drop_job_leases"]):
                transaction.run(statement)
            for sha256 in gone:
                if not transaction.run(SQL["drop_orphan"], {"sha256": sha256}):
                    raise _Overtaken("the store changes faster than it can be copied", hint="try again later")
        # What the copy holds stands in its main file alone: no log is part of a backup.
        inspection.give_up_log(copied)
    finally:
        copied.close()
        copied.owners.close()
    for suffix in (".open.lock", ".owners.lock"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)


def _copy_assets(copied: Database, source: Path, target: Path) -> list[str]:
    """Copy every asset that the state names, proving each; return those whose file has gone."""
    gone: list[str] = []
    after = ""
    while True:
        with copied.read() as transaction:
            rows = transaction.all(ASSETS["after"], {"after": after, "limit": limits.PAGE_ASSETS_MAX})
        for sha256, size in rows:
            after = cast(str, sha256)
            if not home.exists(target / after) and not _copy_asset(source, target, after, cast(int, size)):
                gone.append(after)
        if len(rows) < limits.PAGE_ASSETS_MAX:
            return gone


def _copy_asset(source: Path, target: Path, sha256: str, size: int) -> bool:
    """Whether the file was there and is copied. What is damaged is copied as it is, for the verification to find."""
    try:
        copy_asset(source, target, sha256, size)
    except files.Missing:
        return False
    except Corrupt:
        shutil.copyfile(source / sha256, target / sha256, follow_symlinks=False)
    return True


def _verify(place: Home) -> CheckReport:
    """Open the copy as a reader would, and check all of it."""
    with MemoryStore.open(place, read_only=True) as copy:
        return check(copy)


def _describe(store: MemoryStore, place: Home, report: CheckReport) -> Manifest:
    with MemoryStore.open(place, read_only=True) as copy:
        totals = copy.totals()
    return Manifest(
        type="emelex_backup",
        format=FORMAT,
        schema_version=totals.schema_version,
        created_at=iso(store.clock()) or "",
        database_bytes=place.database.stat().st_size,
        database_sha256=file_sha256(place.database),
        sessions=totals.sessions,
        events=totals.events,
        assets=report.assets,
        asset_bytes=report.asset_bytes,
        damage=report.damage,
    )


def _write(path: Path, data: bytes) -> None:
    with new_file(path) as write:
        write(data)


def _give_name(partial: Path, destination: Path) -> None:
    """Rename without replacing: an empty directory claims the name first, and rename(2) replaces only an empty one."""
    try:
        destination.mkdir(mode=home.PRIVATE_DIRECTORY)
    except FileExistsError:
        raise Invalid(f"{destination} appeared meanwhile; nothing was written") from None
    except OSError as error:
        raise home.storage_error(error, f"cannot create {destination}") from error
    try:
        partial.rename(destination)
    except OSError as error:
        with contextlib.suppress(OSError):
            destination.rmdir()
        raise home.storage_error(error, f"cannot create {destination}") from error
    home.sync_directory(destination.parent)
