"""Network file systems are refused before the first write: their locks lie, and a write-ahead log needs true ones (K7).

Only what is known to be a network file system is refused; where the type cannot be asked for, SQLite's own answer to
`journal_mode = WAL` decides.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from emelex_core.errors import Refused


@dataclass(frozen=True, slots=True)
class Network:
    """A network file system: what people call it, and its `f_type` of statfs(2), None for one that runs over FUSE."""

    name: str
    magic: int | None


NETWORK: Final[Mapping[str, Network]] = MappingProxyType(
    {
        "nfs": Network("NFS", 0x6969),
        "nfs4": Network("NFS", 0x6969),
        "smbfs": Network("SMB", 0x517B),
        "smb3": Network("SMB2", 0xFE534D42),
        "cifs": Network("CIFS", 0xFF534D42),
        "afs": Network("AFS", 0x5346414F),
        "coda": Network("Coda", 0x73757245),
        "ncpfs": Network("NCP", 0x564C),
        "ceph": Network("Ceph", 0x00C36400),
        "lustre": Network("Lustre", 0x0BD00BD0),
        "fuse.glusterfs": Network("GlusterFS", None),
        "fuse.sshfs": Network("SSHFS", None),
    }
)
"""By the type that the mount table gives; magic numbers are those of linux/magic.h and of the file systems' sources."""
_FUSE: Final = 0x65735546
_MOUNTS: Final = Path("/proc/self/mountinfo")
_STATFS_BYTES: Final = 256
_TYPE_MASK: Final = 0xFFFF_FFFF


def require_local(directory: Path) -> None:
    """Raise Refused, naming path and cause, when a directory lies on a network file system."""
    name = _network_name(directory)
    if name is not None:
        raise Refused(
            f"{directory} lies on a network file system ({name}), which cannot keep a write-ahead log safely",
            hint="keep the Home on local storage: --home PATH, or EMELEX_HOME",
        )


def _network_name(directory: Path) -> str | None:
    kind = _file_system_type(directory)
    if kind is None:
        return None
    if kind == _FUSE:
        # One number for all of them, local ones too: only the mount table tells them apart.
        found = NETWORK.get(_mount_type(directory) or "")
        return None if found is None else found.name
    return next((network.name for network in NETWORK.values() if network.magic == kind), None)


def _mount_type(directory: Path) -> str | None:
    """The type that the mount table gives for a directory's device; None when it does not stand there."""
    try:
        device = directory.stat().st_dev
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, source = line.partition(" - ")
        if source and mount.split(" ")[2] == wanted:
            return source.split(" ")[0]
    return None


def _file_system_type(directory: Path) -> int | None:
    if sys.platform != "linux":
        return None
    statfs = getattr(ctypes.CDLL(None, use_errno=True), "statfs", None)
    if statfs is None:
        return None
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if statfs(os.fsencode(directory), buffer) != 0:
        return None
    # `f_type` is the first member, a long; magic numbers have 32 bits and may come sign-extended.
    return ctypes.c_long.from_buffer(buffer).value & _TYPE_MASK
