"""Storing media bytes once, under their digest (behaviours 102, 104, 110).

The order of durable steps: a private, locked temporary file is written and synced; under the write lock it is linked to
its final name without clobbering, the directory is synced, and the digest is cataloged. A crash between leaves a
temporary or a file without a row, never a row without a file. What has the final name already was verified before,
outside the lock, and is still that very file inside it.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Final, cast

from emelex_core import faults, home, limits
from emelex_core.assets import files
from emelex_core.assets.files import Temporary
from emelex_core.assets.media import HEAD_BYTES, Readable, sniff
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid, Storage, StorageReadOnly
from emelex_core.events import ASSET_KINDS, AssetRef

SQL: Final = load("emelex_core", "assets")


def publish(
    database: Database, directory: Path, source: bytes | Readable, *, clock: Clock, kind: str | None = None
) -> AssetRef:
    """Store media and catalog it; the same bytes again are the same file and refresh its grace.

    `kind` says as what the reference is used, where that is not what the bytes are: a scanned page as a document.
    Raises: Invalid for an unknown media type or kind and for more than 128 MiB (nothing is left behind), Corrupt when
    the stored file of this digest has other content, Refused for the directory, Storage.
    """
    if kind is not None and kind not in ASSET_KINDS:
        raise Invalid(f"media of the kind {kind[:40]!r} are not accepted")
    if database.read_only:
        raise StorageReadOnly(f"{database.path} was opened for reading only")
    home.make_private_directory(directory)
    home.check_asset_directory(directory)
    with files.temporary(directory) as temporary:
        stream = io.BytesIO(source) if isinstance(source, bytes) else source
        sniffed_kind, media_type, sha256, size = _write(stream, temporary)
        faults.reach("asset.written")
        final = directory / sha256
        proven = _prove(final, sha256=sha256, size=size)
        with database.write() as transaction:
            _give_name(temporary, final, proven, sha256=sha256, size=size)
            home.sync_directory(directory)
            faults.reach("asset.published")
            _catalog(transaction, sha256, size, now=clock())
        faults.reach("asset.cataloged")
    return AssetRef(sha256=sha256, kind=kind or sniffed_kind, media_type=media_type, size=size)


def _write(stream: Readable, temporary: Temporary) -> tuple[str, str, str, int]:
    """Copy through one buffer and sync; return kind, media type, digest and size. Nothing unknown is written."""
    chunk = _read_head(stream)
    known = sniff(chunk)
    if known is None:
        raise Invalid("the media type of the bytes is not known (image, audio or PDF)")
    digest = hashlib.sha256()
    size = 0
    while chunk:
        size += len(chunk)
        if size > limits.ASSET_BYTES_MAX:
            raise Invalid(f"media is larger than {limits.ASSET_BYTES_MAX} bytes")
        digest.update(chunk)
        files.write(temporary, chunk)
        chunk = _read(stream)
    files.sync(temporary)
    return *known, digest.hexdigest(), size


def _read_head(stream: Readable) -> bytes:
    """The first chunk, made long enough to sniff; a pipe may give single bytes."""
    head = _read(stream)
    while 0 < len(head) < HEAD_BYTES and (more := _read(stream)):
        head += more
    return head


def _read(stream: Readable) -> bytes:
    try:
        # A text file reads like a source too; the annotation cannot keep it out.
        chunk = cast(object, stream.read(limits.IO_BUFFER_BYTES))
    except OSError as error:
        raise Storage(f"cannot read the media: {error.strerror}") from error
    if not isinstance(chunk, bytes):
        raise Invalid(f"the source of the media yields {type(chunk).__name__}, not bytes")
    return chunk


def _prove(final: Path, *, sha256: str, size: int) -> os.stat_result | None:
    """Verify what has the final name already; None when nothing has, or when it was collected under our eyes."""
    try:
        return files.verify(final, sha256=sha256, size=size)
    except files.Missing:
        return None


def _give_name(temporary: Temporary, final: Path, proven: os.stat_result | None, *, sha256: str, size: int) -> None:
    """Link the temporary to its final name. What stands there is verified, unless it is the file that was proven."""
    try:
        os.link(temporary.path, final, follow_symlinks=False)
    except FileExistsError:
        if proven is None or not _is(final, proven):
            files.verify(final, sha256=sha256, size=size)
    except OSError as error:
        raise files.storage(error, final) from error


def _is(path: Path, known: os.stat_result) -> bool:
    """Whether a name still stands for a file. Inode numbers are used again at once; instants tell the two apart."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return os.path.samestat(found, known) and (found.st_mtime_ns, found.st_size) == (known.st_mtime_ns, known.st_size)


def _catalog(transaction: Transaction, sha256: str, size: int, *, now: int) -> None:
    row = transaction.one(SQL["catalog"], {"sha256": sha256, "size": size, "now": now})
    if row != (size,):
        raise Corrupt(f"asset {sha256} is cataloged with another size than its {size} bytes: {row}")
