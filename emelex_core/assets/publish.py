"""Storing media bytes once, under their digest (behaviours 102, 104, 110; the rest of the room is issue 6).

The order of durable steps: a private temporary file is written and synced, linked to its final name without clobbering,
the directory is synced, and only then is the digest cataloged. A crash between leaves a file that nothing refers to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Generator
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

    Raises: Invalid for an unknown media type or more than 128 MiB (nothing is left behind), Corrupt when the stored
    file of this digest has other content, Storage.
    """
    home.make_private_directory(directory)
    home.check_asset_directory(directory)
    with _temporary(directory) as (temporary, descriptor):
        sha256, size, head = _copy(io.BytesIO(source) if isinstance(source, bytes) else source, descriptor, temporary)
        known = sniff(head)
        if known is None:
            raise Invalid("the media type of the bytes is not known (image, audio or PDF)")
        final = directory / sha256
        if home.exists(final):
            verify_file(final, sha256=sha256, size=size)
        # Under the write lock, like collection: a file that is found here cannot be collected before it is cataloged.
        with database.write() as transaction:
            _publish_file(temporary, final)
            home.sync_directory(directory)
            faults.reach("asset.published")
            transaction.run(SQL["catalog"], {"sha256": sha256, "size": size, "now": now})
    return AssetRef(sha256=sha256, kind=known[0], media_type=known[1], size=size)


def verify_file(path: Path, *, sha256: str, size: int) -> None:
    """Raise Corrupt unless a stored file is private, ours, and has exactly these bytes; Storage when it cannot be read.

    A second name is no fault: a crash between the two steps of publishing leaves the temporary one behind.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            private = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == home.PRIVATE_FILE
            if not private or status.st_uid != os.geteuid():
                raise Corrupt(f"asset {path} is not a private file of ours")
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Corrupt(f"asset {path} is a symbolic link") from None
        raise Storage(f"cannot read asset {path}: {error.strerror}") from error
    if status.st_size != size or found != sha256:
        raise Corrupt(f"asset {path} does not hold the bytes of its name")


@contextlib.contextmanager
def _temporary(directory: Path) -> Generator[tuple[Path, int]]:
    """A new private file, locked while it is in use so that collection leaves it alone, and gone afterwards."""
    path, descriptor = _open_temporary(directory)
    try:
        _lock(descriptor, path)
        yield path, descriptor
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Storage(f"cannot lock {path}: {error.strerror}") from error


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


def _copy(stream: BinaryIO, descriptor: int, path: Path) -> tuple[str, int, bytes]:
    """Copy through one buffer and sync; return digest, size and the first bytes."""
    digest = hashlib.sha256()
    size = 0
    head = b""
    while chunk := _read(stream):
        size += len(chunk)
        if size > limits.ASSET_BYTES_MAX:
            raise Invalid(f"media is larger than {limits.ASSET_BYTES_MAX} bytes")
        if len(head) < _HEAD_BYTES:
            head = (head + chunk)[:_HEAD_BYTES]
        digest.update(chunk)
        _write(descriptor, chunk, path)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _storage(error, path) from error
    return digest.hexdigest(), size, head


def _read(stream: BinaryIO) -> bytes:
    try:
        return stream.read(limits.IO_BUFFER_BYTES)
    except OSError as error:
        raise Storage(f"cannot read the media: {error.strerror}") from error


def _write(descriptor: int, chunk: bytes, path: Path) -> None:
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise _storage(error, path) from error


def _publish_file(temporary: Path, final: Path) -> None:
    """Give the temporary file its final name; one that has the name was verified, or has just been published."""
    try:
        os.link(temporary, final, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError as error:
        raise _storage(error, final) from error


def _storage(error: OSError, path: Path) -> Storage:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}")
    return Storage(f"cannot write {path}: {error.strerror}")
