"""Records of installed models: what stands in a snapshot's two files, and what callers get.

`manifest.json` says what the snapshot is and never changes; `stamp.json` says what its files looked like when their
bytes were last hashed, so that looking again is cheap.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from emelex_core.models.capabilities import Capabilities

VERSION: Final = 1
_DOMAIN: Final = b"emelex.model.inventory.v1\0"


class ModelKind(StrEnum):
    """Where a model's bytes are: in the Home, behind a link, in an installed package, or on a server."""

    OWNED = "owned"
    LINKED = "linked"
    BUILTIN = "builtin"
    ENDPOINT = "endpoint"


class InventoryItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a snapshot: its name there, its size in bytes and its SHA-256 in 64 lower-case hex digits."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot is. `target` is the absolute path of a linked model's file, None for an owned one.

    `installed_at` is in milliseconds since the epoch, UTC. `source` is the path that was imported, for people.
    """

    version: int
    name: str
    target: str | None
    source: str
    installed_at: int
    inventory: tuple[InventoryItem, ...]
    architecture: str | None
    license: str | None
    parameters: int
    capabilities: Capabilities


class Seen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file's identity, size and times when its bytes were hashed. `changed_ns` is 0 where it does not count."""

    name: str
    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class Stamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What revalidation compares: the manifest's bytes and each file's status."""

    version: int
    manifest_sha256: str
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A model that exists and can be bound. `path` and `sha256` are None for an endpoint.

    `reference` is how people name it, `snapshot_id` pins the exact bytes. `digest` is that of the inventory, the name
    of the snapshot's directory; None for what is not installed in the Home.
    """

    kind: ModelKind
    reference: str
    snapshot_id: str
    digest: str | None
    path: Path | None
    sha256: str | None
    size: int
    architecture: str | None
    license: str | None
    parameters: int
    installed_at: int | None
    capabilities: Capabilities


def inventory_digest(inventory: tuple[InventoryItem, ...]) -> str:
    """The SHA-256 of an exact inventory, as 64 lower-case hex digits: same names, sizes and bytes, same digest."""
    hashed = hashlib.sha256(_DOMAIN)
    for item in sorted(inventory, key=lambda item: item.name):
        name = item.name.encode()
        hashed.update(len(name).to_bytes(8, "big") + name + item.size.to_bytes(8, "big") + bytes.fromhex(item.sha256))
    return hashed.hexdigest()


def local_reference(name: str) -> str:
    """How an installed model is named."""
    return f"local:{name}"


def local_snapshot_id(name: str, digest: str) -> str:
    """What pins an installed model: its name and the digest of its inventory."""
    return f"{local_reference(name)}@sha256:{digest}"
