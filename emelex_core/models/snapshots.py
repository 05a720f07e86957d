"""Installed snapshots on disk: where they are, what they must look like, and whether they still do.

    models/snapshots/<digest>/   manifest.json, stamp.json and, for an owned model, weights.gguf
    models/quarantine/           what is on its way in or out; `models gc` sweeps what a crash left there

The module owns these invariants:

- A snapshot's directory is named by the digest of its inventory, holds exactly its own files, and is closed to others.
- Directories are 0700, files 0600 with one name, all of them ours.
- A stamp holds only while the manifest's bytes and every file's identity, size and times are those that it records.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import orjson

from emelex_core import codec, home, limits
from emelex_core.errors import Invalid, ModelSnapshotInvalid, ModelUnusable, Refused, Storage
from emelex_core.models import files
from emelex_core.models.files import Progress, Verified
from emelex_core.models.records import (
    VERSION,
    InstalledModel,
    Manifest,
    ModelKind,
    Seen,
    Stamp,
    inventory_digest,
    local_reference,
    local_snapshot_id,
)

SNAPSHOTS: Final = "snapshots"
QUARANTINE: Final = "quarantine"
MANIFEST: Final = "manifest.json"
STAMP: Final = "stamp.json"
WEIGHTS: Final = "weights.gguf"

HINT: Final = "emelex models verify tells more; import the model again to replace it"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_RECORD_BYTES_MAX: Final = 64 * limits.KIB

Wire = TypeVar("Wire", Manifest, Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot whose directory and manifest are as they must be. Its files have only been looked at by name."""

    directory: Path
    digest: str
    manifest: Manifest
    manifest_sha256: str

    @property
    def weights(self) -> Path:
        """The file that is loaded: the snapshot's own, or the target of its link."""
        target = self.manifest.target
        return self.directory / WEIGHTS if target is None else Path(target)

    @property
    def model(self) -> InstalledModel:
        """The snapshot as callers see it."""
        manifest = self.manifest
        return InstalledModel(
            kind=ModelKind.OWNED if manifest.target is None else ModelKind.LINKED,
            reference=local_reference(manifest.name),
            snapshot_id=local_snapshot_id(manifest.name, self.digest),
            digest=self.digest,
            path=self.weights,
            sha256=manifest.inventory[0].sha256,
            size=manifest.inventory[0].size,
            architecture=manifest.architecture,
            license=manifest.license,
            parameters=manifest.parameters,
            installed_at=manifest.installed_at,
            capabilities=manifest.capabilities,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An entry among the snapshots that is none, and why."""

    path: Path
    reason: str


def read(models: Path, digest: str) -> Snapshot:
    """Read one snapshot's record and check everything about it that costs no hashing of weights.

    Raises: ModelSnapshotInvalid naming what is gone, altered or not private.
    """
    directory = models / SNAPSHOTS / digest
    if not _DIGEST.match(digest) or not home.exists(directory):
        raise ModelSnapshotInvalid(f"no model is installed as {digest}", hint="emelex models list shows what is")
    _check_directory(directory)
    data = _bytes(directory / MANIFEST)
    manifest = _decode(data, Manifest, directory / MANIFEST)
    if manifest.version != VERSION or len(manifest.inventory) != 1 or inventory_digest(manifest.inventory) != digest:
        raise _invalid(directory / MANIFEST, "its inventory is not the one that the snapshot is named by")
    expected = {MANIFEST, STAMP, WEIGHTS} if manifest.target is None else {MANIFEST, STAMP}
    found = set(_names(directory))
    if found != expected:
        odd = ", ".join(sorted(found ^ expected))
        raise _invalid(directory, f"it does not hold exactly its own files: {odd}")
    return Snapshot(directory=directory, digest=digest, manifest=manifest, manifest_sha256=sha256(data))


def scan(models: Path) -> tuple[list[Snapshot], list[Damaged]]:
    """Read every snapshot, by name, and say which entries are none. Nothing is made. Raises: Storage, Refused."""
    place = models / SNAPSHOTS
    if not home.exists(place):
        return [], []
    files.require_private_directory(place)
    found: list[Snapshot] = []
    damaged: list[Damaged] = []
    for name in _names(place):
        try:
            found.append(read(models, name))
        except ModelSnapshotInvalid as error:
            damaged.append(Damaged(path=place / name, reason=error.message))
    return sorted(found, key=lambda snapshot: snapshot.manifest.name), damaged


def check_stamp(snapshot: Snapshot) -> None:
    """Prove cheaply that manifest and file are those that were hashed last (behaviour 58).

    For a linked model this says only that the target is the same file: whoever relies on it hashes it too.
    Raises: ModelSnapshotInvalid.
    """
    stamp = read_stamp(snapshot)
    if stamp.manifest_sha256 != snapshot.manifest_sha256:
        raise _invalid(snapshot.directory / MANIFEST, "it was altered since the model was installed")
    if stamp.seen != (see(snapshot),):
        raise _invalid(snapshot.weights, "its identity, size or times are not those of the file that was hashed last")


def check_content(snapshot: Snapshot, *, progress: Progress | None = None) -> Verified:
    """Hash a snapshot's file, or its link's target, and compare it with the inventory. Raises: ModelSnapshotInvalid."""
    item = snapshot.manifest.inventory[0]
    see(snapshot)
    try:
        return files.verify(snapshot.weights, item.sha256, hint=HINT, progress=progress)
    except ModelUnusable as error:
        raise ModelSnapshotInvalid(error.message, hint=error.hint) from error


def read_stamp(snapshot: Snapshot) -> Stamp:
    """Return the stamp as it stands. Raises: ModelSnapshotInvalid when it is none."""
    path = snapshot.directory / STAMP
    stamp = _decode(_bytes(path), Stamp, path)
    if stamp.version != VERSION:
        raise _invalid(path, f"it has version {stamp.version}")
    return stamp


def see(snapshot: Snapshot) -> Seen:
    """Look at a snapshot's file, or at its link's target, as a stamp records it. Raises: ModelSnapshotInvalid."""
    path = snapshot.weights
    owned = snapshot.manifest.target is None
    try:
        status = home.check_private_file(path, what="model file") if owned else os.lstat(path)
    except (Refused, Storage) as error:
        raise ModelSnapshotInvalid(error.message, hint=HINT) from error
    except OSError as error:
        raise _invalid(path, f"the linked file cannot be looked at: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise _invalid(path, "it is not a regular file")
    return seen(path.name, status, owned=owned)


def seen(name: str, status: os.stat_result, *, owned: bool) -> Seen:
    """A file's status as a stamp records it. A linked file's inode may change, by a new name or mode, without harm."""
    return Seen(
        name=name,
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns if owned else 0,
    )


def stamp_bytes(manifest_sha256: str, look: Seen) -> bytes:
    """A stamp's file."""
    return encode(Stamp(version=VERSION, manifest_sha256=manifest_sha256, seen=(look,)))


def encode(record: Manifest | Stamp) -> bytes:
    """A record's file: JSON that people can read."""
    return orjson.dumps(msgspec.to_builtins(record), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def sha256(data: bytes) -> str:
    """The SHA-256 of a record's bytes, as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def _check_directory(directory: Path) -> None:
    try:
        files.require_private_directory(directory)
    except (Refused, Storage) as error:
        raise ModelSnapshotInvalid(error.message, hint=HINT) from error


def _names(directory: Path) -> list[str]:
    with files.translated(directory):
        return sorted(os.listdir(directory))  # noqa: PTH208 - names, not paths


def _bytes(path: Path) -> bytes:
    try:
        home.check_private_file(path, what="model record")
        with files.translated(path), open(path, "rb") as file:
            return file.read(_RECORD_BYTES_MAX + 1)
    except (Refused, Storage) as error:
        raise ModelSnapshotInvalid(error.message, hint=HINT) from error


def _decode(data: bytes, kind: type[Wire], path: Path) -> Wire:
    try:
        return msgspec.convert(codec.parse_strict(data, what=str(path), bytes_max=_RECORD_BYTES_MAX), kind)
    except Invalid as error:
        raise ModelSnapshotInvalid(error.message, hint=HINT) from error
    except msgspec.ValidationError as error:
        raise _invalid(path, f"it is no record of a model: {error}") from error


def _invalid(path: Path, what: str) -> ModelSnapshotInvalid:
    return ModelSnapshotInvalid(f"{path}: {what}", hint=HINT)
