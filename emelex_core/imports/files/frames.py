"""Whether a packed file ends where one of its zstd frames ends, told from headers alone (RFC 8878, section 3.1).

zstd's reader takes a file that was cut short for one that ended: only corrupt bytes are an error to it. The module owns
this invariant: nothing is unpacked, and memory does not grow with the file.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final

import zstandard

_MAGICS: Final = (zstandard.FRAME_HEADER, *(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60)))
"""How frames begin: those that hold something first, then those that readers skip."""
_SKIPPED_HEADER_BYTES: Final = 8
_HEADER_BYTES_MAX: Final = 18
_CHECKSUM_BYTES: Final = 4
_BLOCK_HEADER_BYTES: Final = 3
_LAST_BLOCK: Final = 0b1
_RUN: Final = 1
"""The type of a block that is one byte, repeated."""


def is_cut(stream: BinaryIO) -> bool:
    """Whether a seekable file of frames ends within one. What is no frame is not cut; it is something else."""
    size = stream.seek(0, os.SEEK_END)
    place = 0
    while place < size:
        end = _frame_end(stream, place, size)
        if end is None:
            return False
        if end > size:
            return True
        place = end
    return False


def _frame_end(stream: BinaryIO, start: int, size: int) -> int | None:
    """Where the frame that begins at `start` ends, or would; None where none begins."""
    stream.seek(start)
    head = stream.read(_HEADER_BYTES_MAX)
    magic = next((magic for magic in _MAGICS if magic.startswith(head[:4])), None)
    if magic is None:
        return None
    if magic != zstandard.FRAME_HEADER:
        whole = len(head) >= _SKIPPED_HEADER_BYTES
        return start + _SKIPPED_HEADER_BYTES + int.from_bytes(head[4:8], "little") if whole else size + 1
    try:
        place = start + zstandard.frame_header_size(head)
        checksum = zstandard.get_frame_parameters(head).has_checksum
    except zstandard.ZstdError:
        # A header that was cut is shorter than the longest one; anything else is no header.
        return size + 1 if len(head) < _HEADER_BYTES_MAX else None
    last = False
    while not last:
        stream.seek(place)
        block = int.from_bytes(stream.read(_BLOCK_HEADER_BYTES).ljust(_BLOCK_HEADER_BYTES, b"\0"), "little")
        if place + _BLOCK_HEADER_BYTES > size:
            return size + 1
        last = bool(block & _LAST_BLOCK)
        place += _BLOCK_HEADER_BYTES + (1 if block >> 1 & 0b11 == _RUN else block >> 3)
    return place + (_CHECKSUM_BYTES if checksum else 0)
