"""Where importers put media: the asset store, or a dry run that only looks."""

from __future__ import annotations

import hashlib
import io

from emelex_core import limits
from emelex_core.assets.media import HEAD_BYTES, Readable, sniff
from emelex_core.errors import Invalid
from emelex_core.events import AssetRef
from emelex_core.store import MemoryStore


class StoringSink:
    """Stores media bytes; what their label says is not believed."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        """Store bytes, or what a source of them yields, and return their reference. Raises: Invalid, Storage."""
        del declared_media_type
        return self._store.store_asset(data)


class LookingSink:
    """Makes the reference that storing would make, and stores nothing."""

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        """Return the reference of bytes. Raises: Invalid."""
        del declared_media_type
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        head, size, digest = b"", 0, hashlib.sha256()
        while chunk := source.read(limits.IO_BUFFER_BYTES):
            head = (head + chunk)[:HEAD_BYTES] if size < HEAD_BYTES else head
            size += len(chunk)
            if size > limits.ASSET_BYTES_MAX:
                raise Invalid(f"media is larger than {limits.ASSET_BYTES_MAX} bytes")
            digest.update(chunk)
        known = sniff(head)
        if known is None:
            raise Invalid("the media type of the bytes is not known (image, audio or PDF)")
        return AssetRef(sha256=digest.hexdigest(), kind=known[0], media_type=known[1], size=size)
