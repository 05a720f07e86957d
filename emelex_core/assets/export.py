"""Copying an asset out of the store into a file of the user's: whole or not at all, and never over an existing one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from emelex_core import home
from emelex_core.assets import files
from emelex_core.assets.records import AssetRecord
from emelex_core.errors import NotFound, Refused

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


def export(directory: Path, asset: AssetRecord, destination: Path) -> None:
    """Write a cataloged asset's bytes to a new private file and sync it.

    Raises: Refused when the destination exists (it stays as it is), NotFound for its directory; Corrupt when the stored
    bytes are not the asset's; Storage. Nothing is left behind by a failure.
    """
    folder = destination.parent
    if not folder.is_dir():
        raise NotFound(f"there is no directory {folder}")
    if home.exists(destination):
        raise taken(destination)
    with files.temporary(folder, prefix=f".{destination.name[:100]}.part-") as temporary:
        files.copy(directory / asset.sha256, Target(temporary), sha256=asset.sha256, size=asset.size)
        files.sync(temporary)
        give_name(temporary.path, destination)
    home.sync_directory(folder)


class Target:
    """A temporary file as something to write to."""

    def __init__(self, temporary: files.Temporary) -> None:
        self._temporary = temporary

    def write(self, data: memoryview, /) -> object:
        """Take all the bytes. Raises: Storage."""
        files.write(self._temporary, data)
        return len(data)


def give_name(temporary: Path, destination: Path) -> None:
    """Let a finished file have its name, unless something has it. Raises: Refused, Storage."""
    try:
        os.link(temporary, destination, follow_symlinks=False)
    except FileExistsError:
        raise taken(destination) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise files.storage(error, destination) from error
        _claim_name(temporary, destination)


def _claim_name(temporary: Path, destination: Path) -> None:
    """Where a file system knows no hard links, an empty file claims the name, and is replaced at once."""
    try:
        os.close(os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, home.PRIVATE_FILE))
        temporary.replace(destination)
    except FileExistsError:
        raise taken(destination) from None
    except OSError as error:
        raise files.storage(error, destination) from error


def taken(destination: Path) -> Refused:
    """The error of a name that is not free."""
    return Refused(f"{destination} exists already; nothing was written", hint="choose another name, or move it away")
