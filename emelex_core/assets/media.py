"""Media types are sniffed from bytes, never believed from a label."""

from __future__ import annotations

from typing import Final, Protocol

HEAD_BYTES: Final = 16
"""How many first bytes `sniff` looks at."""

_Pieces = tuple[tuple[int, bytes], ...]

_SIGNATURES: Final[tuple[tuple[_Pieces, str, str], ...]] = (
    (((0, b"\x89PNG\r\n\x1a\n"),), "image", "image/png"),
    (((0, b"\xff\xd8\xff"),), "image", "image/jpeg"),
    (((0, b"GIF87a"),), "image", "image/gif"),
    (((0, b"GIF89a"),), "image", "image/gif"),
    (((0, b"RIFF"), (8, b"WEBP")), "image", "image/webp"),
    (((0, b"BM"), (6, b"\0\0\0\0")), "image", "image/bmp"),
    (((0, b"II*\x00"),), "image", "image/tiff"),
    (((0, b"MM\x00*"),), "image", "image/tiff"),
    (((4, b"ftypavif"),), "image", "image/avif"),
    (((4, b"ftypheic"),), "image", "image/heic"),
    (((0, b"RIFF"), (8, b"WAVE")), "audio", "audio/wav"),
    (((0, b"ID3"),), "audio", "audio/mpeg"),
    (((4, b"ftypM4A "),), "audio", "audio/mp4"),
    (((0, b"OggS"),), "audio", "audio/ogg"),
    (((0, b"fLaC"),), "audio", "audio/flac"),
    (((0, b"%PDF-"),), "document", "application/pdf"),
)
"""Pieces (offset, bytes) that must all stand there, kind, MIME type; from the formats' own specifications."""


class Readable(Protocol):
    """A source of bytes: a binary file, or anything that reads like one."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...


class Writable(Protocol):
    """A target of bytes: a binary file, or anything that is written like one."""

    def write(self, data: memoryview, /) -> object:
        """Take all the bytes."""
        ...


def sniff(head: bytes) -> tuple[str, str] | None:
    """Return (kind, MIME type) of media by its first bytes, or None for what is not known."""
    for pieces, kind, media_type in _SIGNATURES:
        if all(head[offset : offset + len(piece)] == piece for offset, piece in pieces):
            return kind, media_type
    return None
