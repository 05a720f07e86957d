"""Loading: a file whose bytes are not the expected ones never reaches llama.cpp."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from emelex_core.engine import llama_cpp, native
from emelex_core.errors import ModelUnusable
from emelex_core.home import Home
from emelex_core.models import (
    BUILTIN_REFERENCE,
    ModelManager,
    ResolvedFile,
    load_engine,
    load_tokenizer,
    memory,
    resolve_model,
)
from emelex_core.models.files import Verified
from emelex_core.models.resolve import BUILTIN_SHA256

pytestmark = pytest.mark.model


@pytest.fixture
def resolved(tmp_path: Path, source: Verified) -> ResolvedFile:
    """The built-in model as a file that a test may spoil."""
    path = tmp_path / "weights.gguf"
    shutil.copyfile(source.path, path)
    found = resolve_model(BUILTIN_REFERENCE, models_dir=tmp_path / "models", endpoints={})
    assert isinstance(found, ResolvedFile)
    return dataclasses.replace(found, path=path)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which native functions were handed a file."""
    calls: list[str] = []
    real_load, real_quantize = native.load_weights, native.quantize_q8_0

    def load(path: Path, *, vocabulary_only: bool) -> native.Owned:
        calls.append("load")
        return real_load(path, vocabulary_only=vocabulary_only)

    def quantize(source: Path, target: Path, *, threads: int) -> bool:
        calls.append("quantize")
        return real_quantize(source, target, threads=threads)

    monkeypatch.setattr(native, "load_weights", load)
    monkeypatch.setattr(native, "quantize_q8_0", quantize)
    return calls


def altered(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-5_000, os.SEEK_END)
        file.write(b"\x00\x01\x02\x03")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [altered, cut, Path.unlink, pipe, directory], ids=lambda spoil: spoil.__name__)
def test_a_spoiled_source_is_named_and_not_loaded(resolved: ResolvedFile, reached: list[str], spoil) -> None:
    """Bad input of issue 2: a model file cut or altered. A pipe in its place does not hang."""
    spoil(resolved.path)
    for load in (load_engine, load_tokenizer):
        with pytest.raises(ModelUnusable, match=r"weights\.gguf") as caught:
            load(resolved)
        if spoil in {altered, cut}:
            assert BUILTIN_SHA256 in caught.value.message
        assert caught.value.hint == resolved.hint
    assert not reached


def test_a_source_that_is_spoiled_after_the_copy_was_made_is_refused_too(
    resolved: ResolvedFile, reached: list[str]
) -> None:
    load_engine(resolved).close()
    reached.clear()
    altered(resolved.path)
    with pytest.raises(ModelUnusable, match=BUILTIN_SHA256):
        load_engine(resolved)
    assert not reached


def test_a_file_that_changes_while_it_is_loaded_is_thrown_away(
    resolved: ResolvedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    real = llama_cpp.LlamaTokenizer

    class Raced(real):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            altered(path)

        def close(self) -> None:
            closed.append("closed")
            super().close()

    monkeypatch.setattr(llama_cpp, "LlamaTokenizer", Raced)
    with pytest.raises(ModelUnusable, match="changed while"):
        load_tokenizer(resolved)
    assert closed == ["closed"]


def test_a_sound_header_without_a_model_is_refused_with_llama_cpps_reason(
    manager: ModelManager, tiny: Path, place: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    """llama.cpp's own words reach the error and not the terminal."""
    resolved = resolve_model(
        manager.install(tiny, name="hollow").model.reference, models_dir=place.models, endpoints={}
    )
    with pytest.raises(ModelUnusable, match=r"weights\.gguf: llama\.cpp cannot load it: \S+"):
        load_engine(resolved)
    assert capfd.readouterr() == ("", "")


def test_a_linked_model_runs_as_it_is(manager: ModelManager, place: Home, source: Verified) -> None:
    """Nothing is copied or derived, and what ran is named exactly."""
    model = manager.install(source.path, name="mine", link=True).model
    resolved = resolve_model("local:mine", models_dir=place.models, endpoints={})
    with load_engine(resolved, context_tokens=512) as engine:
        assert engine.info.context_tokens == 512
        assert engine.info.snapshot_id == model.snapshot_id
    assert not (place.models / "derived").exists()


def test_a_model_that_needs_more_memory_than_there_is_is_refused_with_both_figures(
    resolved: ResolvedFile, reached: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, item 4."""
    load_engine(resolved).close()
    reached.clear()
    monkeypatch.setattr(memory, "available_bytes", lambda: 100 << 20)
    with pytest.raises(ModelUnusable, match=r"needs about \d{3} MiB of memory, and 100 MiB are available"):
        load_engine(resolved)
    assert not reached
    load_tokenizer(resolved).close()
