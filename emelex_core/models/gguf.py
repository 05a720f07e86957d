"""A bounds-checked reader of GGUF files' headers. It reads metadata and tensor descriptions and trusts no length.

Layout (ggml's docs/gguf.md): magic, version, tensor count, metadata count; then key, type, value; then the tensors'
names, shapes, types and offsets; little-endian. The module owns these invariants:

- Every length is compared with what is left of the file before it is followed; every count has a bound.
- What llama.cpp only asserts, and would end the process over, is checked here first: types of the keys that it reads
  without asking, arrays that must be as long as each other, tensors that must lie within the file.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, TypeAlias

from emelex_core.errors import ModelUnusable
from emelex_core.models import files, tensors
from emelex_core.models.tensors import Tensor

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_ENTRIES_MAX: Final = 65_536
_KEY_BYTES_MAX: Final = 65_535
_TEXT_BYTES_MAX: Final = 1 << 20
_ARRAY_DEPTH_MAX: Final = 4
_LAYERS_MAX: Final = 4_096
_SHOWN_BYTES_MAX: Final = 256
"""Of a name, an architecture or a licence that a person is shown."""

_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_UINT32: Final = 4
_INT32: Final = 5
_FLOAT32: Final = 6
_TEXT: Final = 8
_ARRAY: Final = 9

_TOKENS: Final = "tokenizer.ggml.tokens"
_BESIDE_TOKENS: Final = {"tokenizer.ggml.token_type": _INT32, "tokenizer.ggml.scores": _FLOAT32}
"""Arrays that llama.cpp reads along the tokens, without asking how long they are."""
_CONTROL_TOKEN: Final = 3
_DELIMITERS: Final = (b"<|im_start|>", b"<|im_end|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """An array of metadata: the type of its items, how many, and where the first one lies in the file."""

    kind: int
    count: int
    start: int


Value: TypeAlias = str | int | float | Array


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a model says of itself. Fields that its file does not state are None.

    `chatml_tokens` says whether both delimiters of ChatML are control tokens of the vocabulary. `cache_bytes_per_token`
    is the size of the key-value cache in bytes a token, where the file states enough. `parts` is 1 for a whole model.
    """

    version: int
    architecture: str | None
    name: str | None
    license: str | None
    context_tokens: int | None
    tokenizer: str | None
    chat_template: str | None
    chatml_tokens: bool
    vocabulary: int | None
    cache_bytes_per_token: int | None
    tensors: int
    parameters: int
    parts: int


def read_header(path: Path) -> GgufHeader:
    """Read and check a GGUF file's header.

    Raises: ModelUnusable naming file and offset when it is no GGUF file, is cut, states lengths beyond its end, or says
    what would make llama.cpp end the process.
    """
    with files.reading(path) as file:
        return _Reader(file, path).header()


class _Reader:
    """Walks one header."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = os.fstat(file.fileno()).st_size
        self._delimiters: dict[bytes, int] = {}

    def header(self) -> GgufHeader:
        if self._take(4) != _MAGIC:
            raise self._bad("it is not a GGUF file")
        version = self._unsigned(4)
        if version not in _VERSIONS:
            raise self._bad(f"GGUF version {version} is not supported")
        tensor_count, entries = self._unsigned(8), self._unsigned(8)
        if entries > _ENTRIES_MAX or tensor_count > tensors.COUNT_MAX:
            raise self._bad(f"{entries} metadata entries and {tensor_count} tensors")
        found: dict[str, Value] = {}
        for _ in range(entries):
            key = self._text(_KEY_BYTES_MAX)
            if key in found:
                raise self._bad(f"the key {key[:80]!r} stands twice")
            found[key] = self._value(key, self._unsigned(4))
        self._check_vocabulary(found)
        described = [self._tensor() for _ in range(tensor_count)]
        self._check_tensors(described, self._alignment(found))
        return self._summary(version, found, described)

    def _value(self, key: str, kind: int) -> Value:
        """Read a scalar or text; step over an array and say where it is."""
        if kind == _TEXT:
            return self._text(_TEXT_BYTES_MAX)
        if kind == _ARRAY:
            return self._array(1, tokens=key == _TOKENS)
        layout = self._layout(kind)
        value: int | float = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        if key == "general.alignment" and kind != _UINT32:
            raise self._bad("the alignment is not a 32-bit number")
        return value

    def _array(self, depth: int, *, tokens: bool = False) -> Array:
        kind, count = self._unsigned(4), self._unsigned(8)
        array = Array(kind=kind, count=count, start=self._file.tell())
        if kind == _ARRAY and depth < _ARRAY_DEPTH_MAX and count <= _ENTRIES_MAX:
            for _ in range(count):
                self._array(depth + 1)
        elif kind == _TEXT:
            # Each text needs its eight bytes of length, so a count beyond the file cannot keep the loop busy.
            self._check(count * 8)
            if tokens:
                self._read_tokens(count)
            else:
                for _ in range(count):
                    self._skip(self._unsigned(8))
        else:
            self._skip(count * struct.calcsize(self._layout(kind)))
        return array

    def _read_tokens(self, count: int) -> None:
        """Each token once and whole: llama.cpp reads them as C texts, and ends the process over two that are alike."""
        seen: set[bytes] = set()
        for index in range(count):
            size = self._unsigned(8)
            self._check(size)
            token = self._take(size)
            if b"\0" in token or not _is_utf8(token):
                raise self._bad(f"token {index} is no text")
            if token and token in seen:
                raise self._bad(f"token {index} stands twice")
            seen.add(token)
            if token in _DELIMITERS:
                self._delimiters[token] = index

    def _check_vocabulary(self, found: dict[str, Value]) -> None:
        """The vocabulary's arrays must have the types and lengths that llama.cpp takes for granted."""
        tokens = found.get(_TOKENS)
        if tokens is not None and not (isinstance(tokens, Array) and tokens.kind == _TEXT):
            raise self._bad(f"{_TOKENS} is not a list of texts")
        merges = found.get("tokenizer.ggml.merges")
        if merges is not None and not (isinstance(merges, Array) and merges.kind == _TEXT):
            raise self._bad("tokenizer.ggml.merges is not a list of texts")
        count = tokens.count if isinstance(tokens, Array) else 0
        for key, kind in _BESIDE_TOKENS.items():
            beside = found.get(key)
            if beside is None:
                continue
            if not isinstance(beside, Array) or beside.kind != kind or beside.count != count:
                raise self._bad(f"{key} does not hold one number for each of {count} tokens")

    def _tensor(self) -> Tensor:
        name = self._text(tensors.NAME_BYTES_MAX)
        dimensions = self._unsigned(4)
        if not 1 <= dimensions <= tensors.DIMENSIONS_MAX:
            raise self._bad(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._unsigned(8) for _ in range(dimensions))
        return Tensor(name=name, shape=shape, kind=self._unsigned(4), offset=self._unsigned(8))

    def _alignment(self, found: dict[str, Value]) -> int:
        alignment = found.get("general.alignment", tensors.ALIGNMENT_DEFAULT)
        if not isinstance(alignment, int) or alignment not in tensors.ALIGNMENTS:
            raise self._bad(f"an alignment of {alignment}")
        return alignment

    def _check_tensors(self, described: list[Tensor], alignment: int) -> None:
        start = -(-self._file.tell() // alignment) * alignment
        fault = tensors.fault(described, alignment=alignment, room=self._size - start)
        if fault is not None:
            raise self._bad(fault)

    def _summary(self, version: int, found: dict[str, Value], described: list[Tensor]) -> GgufHeader:
        def text(key: str) -> str | None:
            value = found.get(key)
            return value if isinstance(value, str) else None

        def number(key: str) -> int | None:
            value = found.get(key)
            return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

        architecture = text("general.architecture")
        tokens = found.get(_TOKENS)
        return GgufHeader(
            version=version,
            architecture=_shown(architecture),
            name=_shown(text("general.name")),
            license=_shown(text("general.license")),
            context_tokens=number(f"{architecture}.context_length"),
            tokenizer=_shown(text("tokenizer.ggml.model")),
            chat_template=text("tokenizer.chat_template"),
            chatml_tokens=self._has_chatml(found),
            vocabulary=tokens.count if isinstance(tokens, Array) else None,
            cache_bytes_per_token=self._cache_bytes(found, architecture),
            tensors=len(described),
            parameters=sum(tensor.items for tensor in described),
            parts=number("split.count") or 1,
        )

    def _has_chatml(self, found: dict[str, Value]) -> bool:
        types = found.get("tokenizer.ggml.token_type")
        if len(self._delimiters) < len(_DELIMITERS) or not isinstance(types, Array):
            return False
        return all(self._item(types, index) == _CONTROL_TOKEN for index in self._delimiters.values())

    def _cache_bytes(self, found: dict[str, Value], architecture: str | None) -> int | None:
        """Keys and values of every layer in 16-bit numbers, as llama.cpp keeps them."""

        def number(name: str) -> int | None:
            value = found.get(f"{architecture}.{name}")
            if isinstance(value, Array):
                # One number a layer; the largest one makes the estimate safe.
                items = [self._item(value, index) for index in range(min(value.count, _LAYERS_MAX))]
                return max((item for item in items if isinstance(item, int)), default=None)
            return value if isinstance(value, int) else None

        layers, width, heads = number("block_count"), number("embedding_length"), number("attention.head_count")
        if not layers or not width or not heads:
            return None
        each = width // heads
        keys, values = number("attention.key_length") or each, number("attention.value_length") or each
        return 2 * layers * (number("attention.head_count_kv") or heads) * (keys + values)

    def _item(self, array: Array, index: int) -> int | float | None:
        """One number of an array, or None where it holds no numbers. The array was stepped over within bounds."""
        layout = _SCALARS.get(array.kind)
        if layout is None:
            return None
        size = struct.calcsize(layout)
        self._file.seek(array.start + index * size)
        item: int | float = struct.unpack(layout, self._take(size))[0]
        return item

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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shown(text: str | None) -> str | None:
    return None if text is None else text.encode()[:_SHOWN_BYTES_MAX].decode("utf-8", "ignore")
