"""Storing media bytes once, under their digest (behaviours 102, 104, 110; the rest of the room is issue 6).

The order of durable steps: a private temporary file is written and synced, linked to its final name without clobbering,
the directory is synced, and only then is the digest cataloged. A crash between leaves a file that nothing refers to.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
from pathlib import Path
from typing import BinaryIO, Final

from emelex_core import faults, home, limits
from emelex_core.assets.media import sniff
from emelex_core.db.database import Database
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid, Storage, StorageFull
from emelex_core.events import AssetRef

SQL: Final = load("emelex_core", "assets")
_HEAD_BYTES: Final = 16


def publish(database: Database, directory: Path, source: bytes | BinaryIO, *, now: int) -> AssetRef:
    """Store media and catalog it; the same bytes again are the same file.

    Raises: Invalid for an unknown media type or more than 128 MiB (nothing is left behind), Corrupt when the stored file
    of this digest has other content, Storage.
    """
    home.make_private_directory(directory)
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    temporary, descriptor = _open_temporary(directory)
    try:
        try:
            sha256, size, head = _copy(stream, descriptor)
            os.fsync(descriptor)
        except OSError as error:
            raise _storage(error, temporary) from error
        finally:
            os.close(descriptor)
        known = sniff(head)
        if known is None:
            raise Invalid("the media type of the bytes is not known (image, audio or PDF)")
        _publish_file(temporary, directory / sha256, sha256, size)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    home.sync_directory(directory)
    faults.reach("asset.published")
    with database.write() as transaction:
        transaction.run(SQL["catalog"], {"sha256": sha256, "size": size, "now": now})
    return AssetRef(sha256=sha256, kind=known[0], media_type=known[1], size=size)


def _open_temporary(directory: Path) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(limits.TEMPORARY_NAME_ATTEMPTS_MAX):
        path = directory / f".tmp-{secrets.token_hex(8)}"
        try:
            return path, os.open(path, flags, home.PRIVATE_FILE)
        except FileExistsError:
            continue
        except OSError as error:
            raise _storage(error, path) from error
    raise Storage(f"cannot find a free temporary name in {directory}")


def _copy(stream: BinaryIO, descriptor: int) -> tuple[str, int, bytes]:
    """Copy through one buffer; return digest, size and the first bytes."""
    digest = hashlib.sha256()
    size = 0
    head = b""
    while chunk := stream.read(limits.IO_BUFFER_BYTES):
        size += len(chunk)
        if size > limits.ASSET_BYTES_MAX:
            raise Invalid(f"media is larger than {limits.ASSET_BYTES_MAX} bytes")
        if len(head) < _HEAD_BYTES:
            head = (head + chunk)[:_HEAD_BYTES]
        digest.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]
    return digest.hexdigest(), size, head


def _publish_file(temporary: Path, final: Path, sha256: str, size: int) -> None:
    try:
        os.link(temporary, final, follow_symlinks=False)
    except FileExistsError:
        verify_file(final, sha256=sha256, size=size, names_max=2)
    except OSError as error:
        raise _storage(error, final) from error


def verify_file(path: Path, *, sha256: str, size: int, names_max: int = 1) -> None:
    """Raise Corrupt unless a stored file has exactly these bytes, Refused unless it is private and ours."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_nlink > names_max or status.st_uid != os.geteuid() or status.st_mode & 0o177:
            raise Corrupt(f"asset {path} is not a private file of ours")
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if status.st_size != size or found != sha256:
        raise Corrupt(f"asset {path} does not hold the bytes of its name")


def _storage(error: OSError, path: Path) -> Storage:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}")
    return Storage(f"cannot write {path}: {error.strerror}")
