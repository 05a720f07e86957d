"""Network file systems are refused before the first write: their locks lie, and a write-ahead log needs true ones (K7).

Only what is known to be a network file system is refused; where the type cannot be asked for, SQLite's own answer to
`journal_mode = WAL` decides.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from emelex_core.errors import Refused

_NETWORK: Final = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB2",
    0xFF534D42: "CIFS",
    0x5346414F: "AFS",
    0x73757245: "Coda",
    0x564C: "NCP",
}
"""`f_type` of statfs(2), from linux/magic.h."""
_STATFS_BYTES: Final = 256
_TYPE_MASK: Final = 0xFFFF_FFFF


def require_local(directory: Path) -> None:
    """Raise Refused, naming path and cause, when a directory lies on a network file system."""
    kind = _file_system_type(directory)
    name = None if kind is None else _NETWORK.get(kind)
    if name is not None:
        raise Refused(
            f"{directory} lies on a network file system ({name}), which cannot keep a write-ahead log safely",
            hint="keep the Home on local storage: --home PATH, or EMELEX_HOME",
        )


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
