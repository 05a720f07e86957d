"""The header reader on whole, cut and mangled files: it answers or refuses, and follows no length beyond the end."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emelex_core.errors import ModelUnusable
from emelex_core.models.files import Verified
from emelex_core.models.gguf import read_header

PATIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def test_a_header_says_what_the_model_says_of_itself(gguf: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf)
    header = read_header(path)
    assert (header.version, header.architecture, header.name) == (3, "llama", "Small")
    assert (header.context_tokens, header.tokenizer) == (2_048, "gpt2")
    assert header.chat_template == "{{ messages }}"


def test_the_builtin_models_header(source: Verified) -> None:
    header = read_header(source.path)
    assert header.context_tokens == 8_192
    assert header.chat_template is not None
    assert "<|im_start|>" in header.chat_template


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
