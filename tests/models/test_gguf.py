"""The header reader on whole, cut and mangled files: it answers or refuses, and follows no length beyond the end."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emelex_core.engine import native
from emelex_core.errors import ModelUnusable
from emelex_core.models import tensors
from emelex_core.models.files import Verified
from emelex_core.models.gguf import read_header
from tinymodels import INT32, Q8_0, Tensor, count, numbers, text, texts, tiny_model, word

PATIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def test_a_header_says_what_the_model_says_of_itself(gguf: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf)
    header = read_header(path)
    assert (header.version, header.architecture, header.name) == (3, "llama", "Small")
    assert (header.context_tokens, header.tokenizer, header.license) == (2_048, "gpt2", "apache-2.0")
    assert header.chat_template == "{{ message['role'] }} {{ tools }}"
    assert (header.chatml_tokens, header.vocabulary, header.parts) == (True, 3, 1)
    assert (header.tensors, header.parameters) == (1, 192)
    # Two layers, two heads of 16 numbers, keys and values, two bytes each.
    assert header.cache_bytes_per_token == 2 * 2 * (16 + 16) * 2


def test_the_builtin_models_header(source: Verified) -> None:
    header = read_header(source.path)
    assert header.context_tokens == 8_192
    assert header.chat_template is not None
    assert "<|im_start|>" in header.chat_template
    assert header.chatml_tokens
    assert (header.license, header.vocabulary, header.tensors) == ("apache-2.0", 49_152, 272)
    assert header.cache_bytes_per_token == 23_040, "4,096 tokens take 94 MB, as measured"


HOSTILE = {
    "alignment of another type": tiny_model({"general.alignment": word("32")}),
    "alignment of another width": tiny_model({"general.alignment": struct.pack("<IQ", 10, 32)}),
    "alignment of zero": tiny_model({"general.alignment": count(0)}),
    "alignment that is no power of two": tiny_model({"general.alignment": count(33)}),
    "tokens that are numbers": tiny_model({"tokenizer.ggml.tokens": numbers(INT32, "i", 1, 2, 3)}),
    "tokens that are a text": tiny_model({"tokenizer.ggml.tokens": word("abc")}),
    "merges that are numbers": tiny_model({"tokenizer.ggml.merges": numbers(INT32, "i", 1)}),
    "types that are too few": tiny_model({"tokenizer.ggml.token_type": numbers(INT32, "i", 1)}),
    "types without tokens": tiny_model({"tokenizer.ggml.tokens": None}),
    "a token that stands twice": tiny_model({"tokenizer.ggml.tokens": texts("a", "<|im_end|>", "<|im_end|>")}),
    "a token that a C text would end in": tiny_model({"tokenizer.ggml.tokens": texts("a\0b", "c", "d")}),
    "a token that is no UTF-8": tiny_model({"tokenizer.ggml.tokens": texts(b"\xff", "c", "d")}),
    "scores of another type": tiny_model({"tokenizer.ggml.scores": numbers(INT32, "i", 0, 1, 2)}),
    "a key that stands twice": tiny_model(more=text("general.name") + word("Again")),
    "a tensor beyond the file": tiny_model(tensors=(Tensor(shape=(64, 4)),)),
    "a tensor far beyond the file": tiny_model(tensors=(Tensor(offset=1 << 62),)),
    "a tensor that is not aligned": tiny_model(tensors=(Tensor(offset=4, shape=(1,)),)),
    "a tensor of unknown type": tiny_model(tensors=(Tensor(kind=99),)),
    "a tensor of a removed type": tiny_model(tensors=(Tensor(kind=4),)),
    "a tensor whose items overflow": tiny_model(tensors=(Tensor(shape=(1 << 32, 1 << 32)),)),
    "a tensor of nothing": tiny_model(tensors=(Tensor(shape=(0, 3)),)),
    "a tensor without dimensions": tiny_model(tensors=(Tensor(shape=()),)),
    "a tensor with five": tiny_model(tensors=(Tensor(shape=(1, 1, 1, 1, 1)),)),
    "a row that is no whole block": tiny_model(tensors=(Tensor(kind=Q8_0, shape=(33, 1)),)),
    "a name that is too long": tiny_model(tensors=(Tensor(name="t" * 64),)),
    "a tensor that stands twice": tiny_model(tensors=(Tensor(), Tensor())),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_llama_cpp_only_asserts_is_refused_before_it(kind: str, tmp_path: Path) -> None:
    """Issue 4, item 1: a hostile file is refused by name, before the library maps it."""
    path = tmp_path / "m.gguf"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(ModelUnusable, match="damaged header at byte"):
        read_header(path)


def test_block_sizes_are_those_of_the_native_library() -> None:
    """Every type that the reader knows has the size that ggml reckons with."""
    native.bindings()
    from llama_cpp import _ggml

    library = _ggml.libggml
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_size.restype = ctypes.c_size_t
    found = {kind: (library.ggml_blck_size(kind), library.ggml_type_size(kind)) for kind in tensors.BLOCKS}
    assert found == tensors.BLOCKS


@pytest.mark.parametrize(
    ("changes", "chatml"),
    [
        ({}, True),
        ({"tokenizer.ggml.token_type": numbers(INT32, "i", 1, 1, 3)}, False),
        ({"tokenizer.ggml.token_type": None}, False),
        ({"tokenizer.ggml.tokens": texts("a", "b", "<|im_end|>")}, False),
    ],
)
def test_chatml_is_spoken_only_by_control_tokens(
    changes: dict[str, bytes | None], chatml: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model(changes))
    assert read_header(path).chatml_tokens is chatml


def test_each_cut_is_refused_with_its_place(gguf: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for size in range(len(gguf)):
        path.write_bytes(gguf[:size])
        with pytest.raises(ModelUnusable, match="at byte") as caught:
            read_header(path)
        assert str(path) in caught.value.message


@PATIENT
@given(place=st.integers(0, 400), junk=st.binary(min_size=1, max_size=9))
def test_a_mangled_header_is_read_or_refused(gguf: bytes, tmp_path: Path, place: int, junk: bytes) -> None:
    place %= len(gguf)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf[:place] + junk + gguf[place + len(junk) :])
    refused = None
    try:
        header = read_header(path)
    except ModelUnusable as error:
        refused = error.message
    assert header.version in {2, 3} if refused is None else str(path) in refused


@pytest.mark.parametrize(
    "entry",
    [
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99),
        struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", 8, 2**40),
        struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 0, 2**62),
        struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**62),
        struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50,
    ],
    ids=["key", "type", "text", "array", "array of texts", "nesting"],
)
def test_lengths_beyond_the_file_are_not_followed(entry: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
    with pytest.raises(ModelUnusable):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"GGUF\x01\x00\x00\x00" + bytes(16), b"\x00" * 4_096])
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelUnusable):
        read_header(path)
    with pytest.raises(ModelUnusable, match="cannot be read"):
        read_header(tmp_path)
