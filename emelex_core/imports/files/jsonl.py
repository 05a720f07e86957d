"""Bounded reading of JSON Lines, plain or packed with zstd.

The module owns these invariants:

- Memory is bounded by one line, and a line by `IMPORT_LINE_BYTES_MAX`; the file's size does not matter.
- A line that cannot be used is counted by name and passed over; no content raises.
- An unfinished last line waits: it is not consumed, unless it already is a whole object that only lacks its line break.
- The SHA-256 of the unpacked bytes runs along, so that reading can go on later from an offset whose prefix is proven.
- Only regular files are opened, never through a symlink, never for writing.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import zstandard

from emelex_core import limits
from emelex_core.errors import Invalid, NotFound, Storage
from emelex_core.imports.files import frames
from emelex_core.imports.files.lenient import JsonObject, load_record
from emelex_core.imports.records import Position

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES: Final = limits.MIB
_WINDOW_BYTES_MAX: Final = 128 * limits.MIB
"""What a zstd frame may ask for to be unpacked; rollouts need 8 MiB."""


@dataclass(slots=True)
class Line:
    """One usable line: its place in the unpacked stream, its bytes without the line break, and its object."""

    offset: int
    end_offset: int
    data: bytes
    value: JsonObject


class LineReader:
    """Iterates the usable lines of a file, once. `defects` receives a count by name for every line passed over.

    Raises: NotFound or Invalid when the file cannot be opened, Storage when reading it fails.
    """

    def __init__(
        self, path: Path, *, defects: Counter[str], line_bytes_max: int = limits.IMPORT_LINE_BYTES_MAX
    ) -> None:
        self._path = path
        self._defects = defects
        self._line_bytes_max = line_bytes_max
        self._hash = hashlib.sha256()
        self._offset = 0
        self._raw = b""

    def offset(self) -> int:
        """The offset of the line in hand."""
        return self._offset

    def before(self) -> Position:
        """The place where the line in hand begins."""
        return Position(offset=self._offset, sha256=self._hash.copy().digest())

    def after(self) -> Position:
        """The place behind the line in hand; behind everything consumed, once the iteration ended."""
        digest = self._hash.copy()
        digest.update(self._raw)
        return Position(offset=self._offset + len(self._raw), sha256=digest.digest())

    def __iter__(self) -> Iterator[Line]:
        with open_unpacked(self._path) as stream:
            while True:
                raw = self._read(stream, self._line_bytes_max + 1)
                if not raw:
                    break
                if not raw.endswith(b"\n"):
                    if len(raw) > self._line_bytes_max:
                        self._pass_over(raw, stream)
                        continue
                    yield from self._last(raw)
                    break
                line = self._line(raw, self._defects)
                if line is not None:
                    yield line
                self._consume(raw)
        if not self._defects["torn_archive"] and is_cut_short(self._path):
            self._defects["torn_archive"] += 1

    def _line(self, raw: bytes, defects: Counter[str]) -> Line | None:
        """Put a line in hand and return it, or None for one that is blank or unusable."""
        if self._offset > limits.IMPORT_FILE_BYTES_MAX:
            raise Invalid(f"{self._path}: more than {limits.IMPORT_FILE_BYTES_MAX} bytes unpacked")
        data = raw.strip()
        value = load_record(data, defects) if data else None
        if value is None:
            return None
        self._raw = raw
        return Line(self._offset, self._offset + len(raw), data, value)

    def _last(self, raw: bytes) -> Iterator[Line]:
        found: Counter[str] = Counter()
        line = self._line(raw, found) if raw.rstrip().endswith(b"}") else None
        if line is None or found["fused_line"]:
            self._raw = b""
            self._defects["unfinished_line"] += 1
            return
        self._defects.update(found)
        yield line
        self._consume(raw)

    def _pass_over(self, raw: bytes, stream: BinaryIO) -> None:
        """Consume an oversized line in pieces. One that does not end is consumed as well: it is not waited for."""
        self._defects["oversized_line"] += 1
        while raw:
            self._consume(raw)
            if raw.endswith(b"\n"):
                return
            raw = self._read(stream, _BUFFER_BYTES)

    def _consume(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._offset += len(raw)
        self._raw = b""

    def _read(self, stream: BinaryIO, size: int) -> bytes:
        try:
            return stream.readline(size)
        except zstandard.ZstdError:
            self._defects["torn_archive"] += 1
            return b""
        except OSError as error:
            raise Storage(f"{self._path}: reading failed: {error.strerror or error}") from error


def prefix_sha256(path: Path, size: int) -> bytes | None:
    """Return the SHA-256 of the first `size` unpacked bytes, or None when the file holds fewer.

    Raises: NotFound or Invalid when the file cannot be opened, Storage when reading it fails.
    """
    digest = hashlib.sha256()
    with open_unpacked(path) as stream:
        while size:
            try:
                block = stream.read(min(size, _BUFFER_BYTES))
            except zstandard.ZstdError:
                return None
            except OSError as error:
                raise Storage(f"{path}: reading failed: {error.strerror or error}") from error
            if not block:
                return None
            digest.update(block)
            size -= len(block)
    return digest.digest()


def goes_on(path: Path, offset: int) -> bool:
    """Whether a file holds more than an unfinished line beyond an offset up to which it was read.

    Raises: NotFound or Invalid when the file cannot be opened, Storage when reading it fails.
    """
    last = b""
    with open_unpacked(path) as stream:
        try:
            _skip(stream, offset)
            while block := stream.read(_BUFFER_BYTES):
                if b"\n" in block.lstrip() or len(block) == _BUFFER_BYTES:
                    return True
                last = block
        except zstandard.ZstdError:
            return True
        except OSError as error:
            raise Storage(f"{path}: reading failed: {error.strerror or error}") from error
    return last.rstrip().endswith(b"}")


def _skip(stream: BinaryIO, size: int) -> None:
    if stream.seekable():
        stream.seek(size)
        return
    while size and (block := stream.read(min(size, _BUFFER_BYTES))):
        size -= len(block)


def is_packed(path: Path) -> bool:
    """Whether the file begins like a zstd frame. Raises: NotFound or Invalid when it cannot be opened."""
    with _open_regular(path) as stream:
        return stream.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC


def is_cut_short(path: Path) -> bool:
    """Whether a packed file ends within a frame. Raises: NotFound or Invalid when it cannot be opened, Storage."""
    with _open_regular(path) as stream:
        try:
            return stream.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC and frames.is_cut(stream)
        except OSError as error:
            raise Storage(f"{path}: reading failed: {error.strerror or error}") from error


def open_unpacked(path: Path) -> BinaryIO:
    """Open a regular file for reading, through zstd when it is packed. Raises: NotFound and Invalid."""
    stream = _open_regular(path)
    try:
        packed = stream.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC
        stream.seek(0)
    except OSError as error:
        stream.close()
        raise Invalid(f"{path}: it cannot be read: {error.strerror or error}") from error
    if not packed:
        return stream
    # A tear loses the buffer in which it is met, so this one is small.
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    unpacked: Any = unpacker.stream_reader(stream, read_across_frames=True, closefd=True)
    return cast(BinaryIO, io.BufferedReader(unpacked, limits.IO_BUFFER_BYTES))


def _open_regular(path: Path) -> BinaryIO:
    """O_NONBLOCK keeps a pipe from blocking before it is recognised as one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(f"{path}: it cannot be opened: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Invalid(f"{path}: not a regular file")
    return open(descriptor, "rb", buffering=_BUFFER_BYTES)
