"""Media types are sniffed from bytes, never believed from a label."""

from __future__ import annotations

from typing import Final

_SIGNATURES: Final[tuple[tuple[int, bytes, str, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image", "image/png"),
    (0, b"\xff\xd8\xff", "image", "image/jpeg"),
    (0, b"GIF87a", "image", "image/gif"),
    (0, b"GIF89a", "image", "image/gif"),
    (8, b"WEBP", "image", "image/webp"),
    (0, b"BM", "image", "image/bmp"),
    (0, b"II*\x00", "image", "image/tiff"),
    (0, b"MM\x00*", "image", "image/tiff"),
    (8, b"WAVE", "audio", "audio/wav"),
    (0, b"ID3", "audio", "audio/mpeg"),
    (0, b"OggS", "audio", "audio/ogg"),
    (0, b"fLaC", "audio", "audio/flac"),
    (0, b"%PDF-", "document", "application/pdf"),
)
"""Offset, magic bytes, kind, MIME type; from the formats' own specifications."""


def sniff(head: bytes) -> tuple[str, str] | None:
    """Return (kind, MIME type) of media by its first bytes, or None for what is not known."""
    for offset, magic, kind, media_type in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return kind, media_type
    return None
