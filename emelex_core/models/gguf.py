"""A bounds-checked reader of GGUF headers. It reads metadata only and trusts no length that a file states.

Layout (ggml's docs/gguf.md): magic, version, tensor count, metadata count; then key, type, value; little-endian.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from emelex_core.errors import ModelUnusable

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_ENTRIES_MAX: Final = 65_536
_KEY_BYTES_MAX: Final = 65_535
_TEXT_BYTES_MAX: Final = 1 << 20
_ARRAY_DEPTH_MAX: Final = 4

_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a model says of itself. Fields that its file does not state are None."""

    version: int
    architecture: str | None
    name: str | None
    context_tokens: int | None
    tokenizer: str | None
    chat_template: str | None


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF file's metadata.

    Raises: ModelUnusable naming file and offset when it is no GGUF file, is cut, or states lengths beyond its end.
    """
    try:
        with open(path, "rb") as file:
            return _Reader(file, path).header()
    except OSError as error:
        raise ModelUnusable(f"{path}: it cannot be read: {error.strerror}") from error


class _Reader:
    """Walks one header; every length is compared with what is left of the file before it is followed."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = os.fstat(file.fileno()).st_size

    def header(self) -> GgufHeader:
        if self._take(4) != _MAGIC:
            raise self._bad("it is not a GGUF file")
        version = self._unsigned(4)
        if version not in _VERSIONS:
            raise self._bad(f"GGUF version {version} is not supported")
        self._unsigned(8)
        entries = self._unsigned(8)
        if entries > _ENTRIES_MAX:
            raise self._bad(f"{entries} metadata entries")
        found: dict[str, str | int | float | None] = {}
        for _ in range(entries):
            key = self._text(_KEY_BYTES_MAX)
            found[key] = self._value(self._unsigned(4))
        return _header(version, found)

    def _value(self, kind: int) -> str | int | float | None:
        """Read a scalar or text, and step over an array."""
        if kind == _TEXT:
            return self._text(_TEXT_BYTES_MAX)
        if kind == _ARRAY:
            self._skip_array(1)
            return None
        layout = self._layout(kind)
        value: int | float = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        return value

    def _skip_array(self, depth: int) -> None:
        kind, count = self._unsigned(4), self._unsigned(8)
        if kind == _ARRAY and depth < _ARRAY_DEPTH_MAX and count <= _ENTRIES_MAX:
            for _ in range(count):
                self._skip_array(depth + 1)
        elif kind == _TEXT:
            # Each text needs its eight bytes of length, so a count beyond the file cannot keep the loop busy.
            self._check(count * 8)
            for _ in range(count):
                self._skip(self._unsigned(8))
        else:
            self._skip(count * struct.calcsize(self._layout(kind)))

    def _layout(self, kind: int) -> str:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self._bad(f"a value of unknown type {kind}")
        return layout

    def _text(self, bytes_max: int) -> str:
        size = self._unsigned(8)
        if size > bytes_max:
            raise self._bad(f"a text of {size} bytes")
        return self._take(size).decode("utf-8", "replace")

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise self._bad("it ends there")
        return data

    def _skip(self, size: int) -> None:
        self._check(size)
        self._file.seek(size, os.SEEK_CUR)

    def _check(self, size: int) -> None:
        if size > self._size - self._file.tell():
            raise self._bad(f"{size} bytes are announced and the file ends before")

    def _bad(self, what: str) -> ModelUnusable:
        return ModelUnusable(f"{self._path}: damaged header at byte {self._file.tell()}: {what}")


def _header(version: int, found: dict[str, str | int | float | None]) -> GgufHeader:
    def text(key: str) -> str | None:
        value = found.get(key)
        return value if isinstance(value, str) else None

    architecture = text("general.architecture")
    context = found.get(f"{architecture}.context_length")
    return GgufHeader(
        version=version,
        architecture=architecture,
        name=text("general.name"),
        context_tokens=context if isinstance(context, int) else None,
        tokenizer=text("tokenizer.ggml.model"),
        chat_template=text("tokenizer.chat_template"),
    )
