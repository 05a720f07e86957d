"""The Q8_0 copy: private, made once, made again when it cannot be trusted, and never made from a bad source."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from emelex_core.engine import native
from emelex_core.errors import EngineFailure, Refused, Storage, StorageBusy, StorageFull
from emelex_core.models import derived as module
from emelex_core.models import files
from emelex_core.models.derived import ensure_q8_0
from emelex_core.models.files import Verified
from processes import keep

pytestmark = pytest.mark.model

COPY = "m-q8_0.gguf"
MANIFEST = "m-q8_0.json"


@pytest.fixture
def quantized(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The targets of each real quantisation, in order."""
    targets: list[Path] = []
    real = native.quantize_q8_0

    def recorded(source: Path, target: Path, *, threads: int) -> bool:
        targets.append(target)
        return real(source, target, threads=threads)

    monkeypatch.setattr(module.native, "quantize_q8_0", recorded)
    return targets


def test_copy_manifest_and_directories_are_private_and_true(made: Path, source: Verified) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
    assert {path.name for path in made.iterdir()} == {COPY, MANIFEST, ".lock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()} == {0o600}
    manifest = orjson.loads((made / MANIFEST).read_bytes())
    assert manifest == {
        "source_sha256": source.sha256,
        "derived_sha256": files.digest(made / COPY).sha256,
        "quantization": "q8_0",
        "llama_cpp": native.version(),
    }


def test_a_full_disk_is_told_with_what_was_free(
    tmp_path: Path, source: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the torn copy took is free again: "0 bytes are free" would be the figure of a moment that is over."""

    def fills(source: Path, target: Path, *, threads: int) -> bool:
        target.write_bytes(b"x" * 64 * 1_024)
        return False

    monkeypatch.setattr(module.native, "quantize_q8_0", fills)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: SimpleNamespace(free=0))
    with pytest.raises(StorageFull, match="needs more than the 65536 bytes that are free there"):
        ensure_q8_0(source, tmp_path / "derived", name="m", threads=1)


def test_a_good_copy_is_used_as_it_is(derived: Path, source: Verified, quantized: list[Path]) -> None:
    before = (derived / COPY).stat()
    found = ensure_q8_0(source, derived, name="m", threads=1)
    assert found.path == derived / COPY
    assert (derived / COPY).stat().st_ino == before.st_ino
    assert not quantized


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def other_source(path: Path) -> None:
    manifest = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps({**manifest, "source_sha256": "0" * 64}))


DAMAGES = {
    "altered copy": (COPY, alter),
    "cut copy": (COPY, cut),
    "missing copy": (COPY, Path.unlink),
    "missing manifest": (MANIFEST, Path.unlink),
    "torn manifest": (MANIFEST, cut),
    "empty manifest": (MANIFEST, lambda path: path.write_bytes(b"")),
    "foreign manifest": (MANIFEST, lambda path: path.write_bytes(b'{"source_sha256": 7}')),
    "manifest that is a list": (MANIFEST, lambda path: path.write_bytes(b"[1]")),
    "manifest with odd types": (
        MANIFEST,
        lambda path: path.write_bytes(orjson.dumps(dict.fromkeys(orjson.loads(path.read_bytes()), 1))),
    ),
    "manifest of another source": (MANIFEST, other_source),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda name: name.replace(" ", "-"))
def test_what_cannot_be_trusted_is_made_again(
    derived: Path, made: Path, source: Verified, quantized: list[Path], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    name, spoil = DAMAGES[damage]
    spoil(derived / name)
    with caplog.at_level(logging.INFO):
        found = ensure_q8_0(source, derived, name="m", threads=1)
    assert len(quantized) == 1
    assert found.sha256 == files.digest(made / COPY).sha256
    assert "a faster copy of the model is written" in caplog.text
    if damage in {"altered copy", "cut copy"}:
        assert caplog.text.count(found.sha256) >= 1, "the log names both digests"
    assert ensure_q8_0(source, derived, name="m", threads=1) == found
    assert len(quantized) == 1


def test_a_crashed_makers_leavings_go(derived: Path, source: Verified, quantized: list[Path]) -> None:
    (derived / COPY).unlink()
    (derived / f"{COPY}.part").write_bytes(b"half")
    (derived / f"{MANIFEST}.part").write_bytes(b"half")
    ensure_q8_0(source, derived, name="m", threads=1)
    assert {path.name for path in derived.iterdir()} == {COPY, MANIFEST, ".lock"}


def test_a_failed_quantisation_leaves_nothing(derived: Path, source: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    (derived / MANIFEST).unlink()
    monkeypatch.setattr(module.native, "quantize_q8_0", lambda source, target, *, threads: False)
    with pytest.raises(EngineFailure, match="Q8_0"):
        ensure_q8_0(source, derived, name="m", threads=1)
    assert {path.name for path in derived.iterdir()} == {".lock"}


def test_a_directory_that_others_may_read_is_refused(derived: Path, source: Verified) -> None:
    derived.chmod(0o755)
    with pytest.raises(Refused, match="0700"):
        ensure_q8_0(source, derived, name="m", threads=1)


def test_a_file_in_the_directorys_place_is_one_clear_error(tmp_path: Path, source: Verified) -> None:
    place = tmp_path / "derived"
    place.write_bytes(b"")
    with pytest.raises((Refused, Storage)) as caught:
        ensure_q8_0(source, place, name="m", threads=1)
    assert str(place) in str(caught.value)


def test_a_stuck_holder_of_the_lock_is_not_waited_for_for_ever(
    derived: Path, source: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_WAIT_SECONDS", 0.2)
    (derived / MANIFEST).unlink()
    with files.exclusive(derived / ".lock"), pytest.raises(StorageBusy):
        ensure_q8_0(source, derived, name="m", threads=1)


MAKER = """
import sys
from pathlib import Path
from emelex_core.models import derived, files
real = derived.native.quantize_q8_0
def told(source, target, *, threads):
    print("made", flush=True)
    return real(source, target, threads=threads)
derived.native.quantize_q8_0 = told
print("ready", flush=True)
sys.stdin.readline()
derived.ensure_q8_0(files.digest(Path(sys.argv[1])), Path(sys.argv[2]), name="m", threads=1)
"""


def test_two_processes_make_it_once(tmp_path: Path, source: Verified) -> None:
    directory = tmp_path / "derived"
    command = [sys.executable, "-P", "-c", MAKER, str(source.path), str(directory)]
    makers = [
        keep(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) for _ in range(2)
    ]
    for maker in makers:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    outputs = [maker.communicate(timeout=60)[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0]
    assert sorted(outputs) == ["", "made\n"]
    assert {path.name for path in directory.iterdir()} == {COPY, MANIFEST, ".lock"}
