"""GGUF files written by hand: sound ones of a few hundred bytes, and each kind of hostile one."""

from __future__ import annotations

import struct
from dataclasses import dataclass

UINT32, INT32, FLOAT32, TEXT, ARRAY = 4, 5, 6, 8, 9
F32, Q8_0 = 0, 8
ALIGNMENT = 32


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def texts(*values: str | bytes) -> bytes:
    return struct.pack("<IIQ", ARRAY, TEXT, len(values)) + b"".join(map(text, values))


def numbers(kind: int, layout: str, *values: float) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + struct.pack(f"<{len(values)}{layout}", *values)


def word(value: str) -> bytes:
    return struct.pack("<I", TEXT) + text(value)


def count(value: int) -> bytes:
    return struct.pack("<II", UINT32, value)


ENTRIES: dict[str, bytes] = {
    "general.architecture": word("llama"),
    "general.name": word("Small"),
    "general.license": word("apache-2.0"),
    "llama.context_length": count(2_048),
    "llama.block_count": count(2),
    "llama.embedding_length": count(64),
    "llama.attention.head_count": count(4),
    "llama.attention.head_count_kv": count(2),
    "llama.rope.freq_base": struct.pack("<If", FLOAT32, 10_000.0),
    "tokenizer.ggml.model": word("gpt2"),
    "tokenizer.ggml.tokens": texts("a", "<|im_start|>", "<|im_end|>"),
    "tokenizer.ggml.token_type": numbers(INT32, "i", 1, 3, 3),
    "tokenizer.ggml.scores": numbers(FLOAT32, "f", 0, 1, 2),
    "nested": struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", 0, 4) + b"1234",
    "tokenizer.chat_template": word("{{ message['role'] }} {{ tools }}"),
}
"""A header with a value of each kind that the reader treats in its own way."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor as its description says; its data are zeros."""

    name: str | bytes = "token_embd.weight"
    shape: tuple[int, ...] = (64, 3)
    kind: int = F32
    offset: int = 0

    @property
    def description(self) -> bytes:
        shape = struct.pack(f"<I{len(self.shape)}Q", len(self.shape), *self.shape)
        return text(self.name) + shape + struct.pack("<IQ", self.kind, self.offset)


def tiny_model(
    entries: dict[str, bytes | None] | None = None,
    *,
    tensors: tuple[Tensor, ...] = (Tensor(),),
    data: bytes = bytes(64 * 3 * 4),
    more: bytes = b"",
    filling: bytes = b"",
) -> bytes:
    """A GGUF file: entries over the usual ones (None leaves one out), `more` raw metadata, and tensors with their data.

    `filling` goes behind the data, to tell one model's bytes from another's.
    """
    chosen = {key: value for key, value in {**ENTRIES, **(entries or {})}.items() if value is not None}
    metadata = b"".join(text(key) + value for key, value in chosen.items()) + more
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(chosen) + bool(more)) + metadata
    head += b"".join(tensor.description for tensor in tensors)
    return head + bytes(-len(head) % ALIGNMENT) + data + filling
