"""Fixtures of the models' tests: the verified source, a copy made once, and a GGUF file written by hand."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from emelex_core.models import BUILTIN_REFERENCE, ResolvedFile, resolve_model
from emelex_core.models.derived import ensure_q8_0
from emelex_core.models.files import Verified, digest


@pytest.fixture(scope="session")
def source() -> Verified:
    resolved = resolve_model(BUILTIN_REFERENCE, models_dir=Path("unused"), endpoints={})
    assert isinstance(resolved, ResolvedFile)
    return digest(resolved.path)


@pytest.fixture(scope="session")
def made(source: Verified, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a good copy and its manifest; tests work on copies of it."""
    directory = tmp_path_factory.mktemp("home") / "models" / "derived"
    ensure_q8_0(source, directory, name="m", threads=1)
    return directory


@pytest.fixture
def derived(made: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "derived"
    shutil.copytree(made, directory)
    return directory


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


@pytest.fixture(scope="session")
def gguf() -> bytes:
    """A small header with a value of each kind that the reader treats in its own way."""
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.name") + struct.pack("<I", 8) + text("Small"),
        text("llama.context_length") + struct.pack("<II", 4, 2_048),
        text("llama.rope.freq_base") + struct.pack("<If", 6, 10_000.0),
        text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 3) + struct.pack("<3f", 0, 1, 2),
        text("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 0, 4) + b"1234",
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text("{{ messages }}"),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)
