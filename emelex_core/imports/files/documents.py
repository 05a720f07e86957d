"""JSON documents of a file: one that fills it, or one a line.

The module owns these invariants:

- Which of the two a file is, is told from its content: the first line is a whole document, and more follow it.
- A document has at most `IMPORT_LINE_BYTES_MAX` bytes. A larger file that is one document is refused by name; a larger
  line is counted and passed over.
- A file that is one document is read whole or refused, naming the place where it stops being JSON. Of lines, the usable
  ones are read, and an unfinished last one waits.
- A bare list is read as the list of an object, under the key that the caller names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import orjson
import zstandard

from emelex_core import limits
from emelex_core.errors import Invalid, Storage
from emelex_core.imports.files.jsonl import is_cut_short, open_unpacked
from emelex_core.imports.files.lenient import JsonObject, load_record

_BOM: Final = b"\xef\xbb\xbf"
_BLOCK_BYTES: Final = limits.MIB


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON object, and where it begins and ends in the unpacked file."""

    offset: int
    end_offset: int
    value: JsonObject


def read_documents(path: Path, defects: Counter[str], *, list_key: str) -> Iterator[Document]:
    """Yield the documents of a file in order, counting what was passed over.

    Raises: NotFound, Invalid when the file cannot be opened, is too large or is no JSON; Storage when reading fails.
    """
    if is_lines(path):
        yield from _lines(path, defects, list_key)
    else:
        yield _whole(path, defects, list_key)
    if is_cut_short(path):
        defects["torn_archive"] += 1


def is_lines(path: Path) -> bool:
    """Whether the file holds one document a line. Raises: as `read_documents`."""
    with open_unpacked(path) as stream:
        first = _read_line(stream, path)
        if len(first) > limits.IMPORT_LINE_BYTES_MAX:
            return False
        if not _is_document(first):
            # A torn first line does not make its file one document: the next two tell.
            second, third = _read_line(stream, path), _read_line(stream, path)
            return _is_document(second) and (not third.strip() or _is_document(third))
        while block := _read(stream, _BLOCK_BYTES, path):
            if not block.isspace():
                return True
    return False


def read_at(stream: BinaryIO, offset: int, path: Path, defects: Counter[str], *, list_key: str) -> JsonObject | None:
    """Read the one line that begins at an offset of a plain file. Raises: Storage."""
    try:
        stream.seek(offset)
    except OSError as error:
        raise Storage(f"{path}: reading failed: {error.strerror or error}") from error
    return load_record(_as_object(_read_line(stream, path).strip(), list_key), defects)


def _whole(path: Path, defects: Counter[str], list_key: str) -> Document:
    with open_unpacked(path) as stream:
        pieces: list[bytes] = []
        while sum(map(len, pieces)) <= limits.IMPORT_LINE_BYTES_MAX and (block := _read(stream, _BLOCK_BYTES, path)):
            pieces.append(block)
    data = b"".join(pieces)
    if len(data) > limits.IMPORT_LINE_BYTES_MAX:
        raise Invalid(f"{path}: one JSON document of more than {limits.IMPORT_LINE_BYTES_MAX} bytes")
    found: Counter[str] = Counter()
    value = load_record(_as_object(data.removeprefix(_BOM).strip(), list_key), found)
    if value is None or found["fused_line"]:
        raise Invalid(f"{path}: {_why(data, found)}")
    defects.update(found)
    return Document(0, len(data), value)


def _lines(path: Path, defects: Counter[str], list_key: str) -> Iterator[Document]:
    offset = 0
    with open_unpacked(path) as stream:
        while raw := _read_line(stream, path):
            begin, offset = offset, offset + len(raw)
            if offset > limits.IMPORT_FILE_BYTES_MAX:
                raise Invalid(f"{path}: more than {limits.IMPORT_FILE_BYTES_MAX} bytes unpacked")
            if len(raw) > limits.IMPORT_LINE_BYTES_MAX:
                defects["oversized_line"] += 1
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(_BLOCK_BYTES)
                    offset += len(raw)
                continue
            data = raw.removeprefix(_BOM).strip()
            if not raw.endswith(b"\n") and not _is_document(data):
                if data:
                    defects["unfinished_line"] += 1
                break
            value = load_record(_as_object(data, list_key), defects) if data else None
            if value is not None:
                yield Document(begin, offset, value)


def _is_document(data: bytes) -> bool:
    """Whether the bytes are one JSON object or array, as far as a strict parser goes."""
    data = data.removeprefix(_BOM).strip()
    if data[:1] not in (b"{", b"["):
        return False
    return load_record(_as_object(data, "list"), found := Counter[str]()) is not None and not found["fused_line"]


def _as_object(data: bytes, list_key: str) -> bytes:
    return b'{"%s":%s}' % (list_key.encode(), data) if data.startswith(b"[") else data


def _why(data: bytes, found: Counter[str]) -> str:
    """Say in which way, and where, a document is no JSON."""
    if found["not_utf8"]:
        return "its text is not UTF-8"
    if found["not_object"]:
        return "its JSON is neither an object nor a list"
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return f"it stops being JSON at line {error.lineno}, column {error.colno} ({error.msg}); was it cut?"
    return "it is no JSON that can be read"


def _read_line(stream: BinaryIO, path: Path) -> bytes:
    try:
        return stream.readline(limits.IMPORT_LINE_BYTES_MAX + 1)
    except (OSError, zstandard.ZstdError) as error:
        raise _failed(path, error) from error


def _read(stream: BinaryIO, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (OSError, zstandard.ZstdError) as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: Exception) -> Storage | Invalid:
    if isinstance(error, OSError):
        return Storage(f"{path}: reading failed: {error.strerror or error}")
    return Invalid(f"{path}: its zstd frame is torn: {error}")
