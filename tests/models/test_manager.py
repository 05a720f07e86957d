"""Installing, verifying, removing and sweeping models: whole or not at all, and never what is still needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from emelex_core.errors import (
    AmbiguousId,
    Invalid,
    ModelSnapshotInvalid,
    ModelUnusable,
    NotFound,
    Refused,
    StorageFull,
    UsageError,
)
from emelex_core.home import Home
from emelex_core.models import BUILTIN_REFERENCE, InstalledModel, ModelKind, ModelManager, install, memory
from emelex_core.models.probe import Probed
from emelex_core.models.records import InventoryItem, inventory_digest
from tinymodels import tiny_model


def tree(directory: Path) -> dict[str, int]:
    """Every name below a directory with its mode."""
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode) for path in sorted(directory.rglob("*"))
    }


def directory_of(manager: ModelManager, model: InstalledModel) -> Path:
    assert model.digest is not None
    return manager.home.models / "snapshots" / model.digest


def test_an_owned_model_is_a_private_copy_with_its_record(manager: ModelManager, tiny: Path) -> None:
    """Modes 0600 and 0700 under any umask; the digest is that of the exact inventory."""
    before = os.umask(0)
    try:
        installed = manager.install(tiny)
    finally:
        os.umask(before)
    model = installed.model
    assert not installed.already
    assert (model.kind, model.reference) == (ModelKind.OWNED, "local:tiny-model.q8")
    digest = hashlib.sha256(tiny.read_bytes()).hexdigest()
    size = tiny.stat().st_size
    assert model.digest == inventory_digest((InventoryItem(name="weights.gguf", size=size, sha256=digest),))
    assert model.snapshot_id == f"local:tiny-model.q8@sha256:{model.digest}"
    assert tree(manager.home.models) == {
        ".mutation.lock": 0o600,
        "quarantine": 0o700,
        "snapshots": 0o700,
        f"snapshots/{model.digest}": 0o700,
        f"snapshots/{model.digest}/manifest.json": 0o600,
        f"snapshots/{model.digest}/stamp.json": 0o600,
        f"snapshots/{model.digest}/weights.gguf": 0o600,
    }
    assert (model.sha256, model.size, model.license, model.parameters) == (digest, size, "apache-2.0", 192)
    assert manager.list_models() == ((model,), ())
    assert manager.revalidate(model) == model


def test_capabilities_are_evidence(manager: ModelManager, tiny: Path) -> None:
    """Issue 4, item 4: read from the file or probed, each with where it comes from."""
    able = manager.install(tiny).model.capabilities
    assert (able.context_tokens, able.chat, able.system_role, able.tools, able.grammar) == (
        2_048,
        "chatml",
        True,
        True,
        True,
    )
    assert able.evidence["context_tokens"] == able.evidence["chat"] == able.evidence["tools"] == "file"
    assert able.evidence["grammar"] == "probed with a test"


def test_what_cannot_be_probed_is_said_and_not_assumed(
    place: Home, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(path: Path) -> Probed:
        raise AssertionError(path)

    manager = ModelManager(place, prober=never)
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    able = manager.install(tiny, name="large").model.capabilities
    assert able.grammar is None
    assert able.evidence["grammar"].startswith("not probed: it needs about")
    tiny.write_bytes(tiny_model({"tokenizer.ggml.token_type": None, "tokenizer.chat_template": None}))
    able = manager.install(tiny, name="other").model.capabilities
    assert (able.chat, able.system_role, able.tools, able.grammar) == ("none", None, None, None)
    assert "ChatML" in able.evidence["grammar"]


def test_importing_again_changes_nothing(manager: ModelManager, tiny: Path) -> None:
    first = manager.install(tiny)
    before = tree(manager.home.models)
    again = manager.install(tiny)
    assert (again.already, again.model) == (True, first.model)
    assert tree(manager.home.models) == before


def test_a_name_stands_for_one_snapshot_and_bytes_under_one_name(manager: ModelManager, tiny: Path) -> None:
    manager.install(tiny, name="small")
    with pytest.raises(Invalid, match="already as local:small") as caught:
        manager.install(tiny, name="other")
    assert caught.value.hint is not None
    with pytest.raises(Invalid, match="already as local:small"):
        manager.install(tiny, name="small", link=True)
    tiny.write_bytes(tiny_model(filling=b"other bytes"))
    with pytest.raises(Invalid, match="local:small is installed already, from other bytes"):
        manager.install(tiny, name="small")
    assert len(manager.list_models()[0]) == 1
    assert not list((manager.home.models / "quarantine").iterdir())


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 65, "a b", "local:x", "naïve"])
def test_names_are_plain(manager: ModelManager, tiny: Path, name: str) -> None:
    with pytest.raises(UsageError):
        manager.install(tiny, name=name)
    assert not manager.home.root.exists()


class Bad(NamedTuple):
    make: Callable[[Path], object]
    words: str


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BAD = {
    "missing": Bad(Path.unlink, "cannot be read"),
    "empty": Bad(lambda path: path.write_bytes(b""), "ends there"),
    "foreign": Bad(lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)), "not a GGUF file"),
    "cut": Bad(lambda path: os.truncate(path, path.stat().st_size - 1), "beyond the end"),
    "pipe": Bad(_fifo, "not a regular file"),
    "folder": Bad(lambda path: (path.unlink(), path.mkdir()), "regular file|cannot be read"),
    "part": Bad(
        lambda path: path.write_bytes(tiny_model({"split.count": b"\x02\x00\x00\x00\x03\x00"})), "one of 3 parts"
    ),
    "hollow": Bad(lambda path: path.write_bytes(tiny_model(tensors=(), data=b"")), "no weights"),
    "projector": Bad(
        lambda path: path.write_bytes(
            tiny_model(dict.fromkeys(("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores")))
        ),
        "no language model",
    ),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("link", [False, True], ids=["copy", "link"])
def test_what_is_no_sound_model_leaves_nothing(manager: ModelManager, tiny: Path, kind: str, link: bool) -> None:
    BAD[kind].make(tiny)
    with pytest.raises(ModelUnusable, match=BAD[kind].words) as caught:
        manager.install(tiny, name="bad", link=link)
    assert tiny.name in caught.value.message
    assert not manager.home.root.exists(), "a file that is refused makes no Home"


def test_a_model_that_the_probe_refuses_leaves_nothing(place: Home, tiny: Path) -> None:
    def refuses(path: Path) -> Probed:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, "what is probed is the private copy"
        raise ModelUnusable(f"{path}: llama.cpp ends by signal 6 on it")

    manager = ModelManager(place, prober=refuses)
    with pytest.raises(ModelUnusable, match="signal 6"):
        manager.install(tiny)
    assert manager.list_models() == ((), ())
    assert not list((place.models / "quarantine").iterdir())


def test_room_is_looked_for_before_anything_is_copied(
    manager: ModelManager, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tiny)
    monkeypatch.setattr(install.shutil, "disk_usage", lambda path: usage._replace(free=tiny.stat().st_size))
    with pytest.raises(StorageFull, match=str(tiny.stat().st_size)) as caught:
        manager.install(tiny)
    assert "--link" in str(caught.value.hint)
    assert not (manager.home.models / "quarantine").exists()
    assert manager.install(tiny, link=True).model.kind is ModelKind.LINKED, "a link needs no room"


def test_progress_tells_every_byte(manager: ModelManager, tiny: Path) -> None:
    told: list[tuple[str, int, int]] = []
    manager.install(tiny, progress=lambda doing, done, total: told.append((doing, done, total)))
    size = tiny.stat().st_size
    assert told == [("copying", size, size), ("probing", size, size)]
    told.clear()
    manager.verify("local:tiny-model.q8", progress=lambda doing, done, total: told.append((doing, done, total)))
    assert told == [("hashing", size, size)]


def test_a_source_that_changes_while_it_is_copied_is_refused(manager: ModelManager, tiny: Path) -> None:
    def meddle(doing: str, done: int, total: int) -> None:
        if doing == "copying":
            with tiny.open("ab") as file:
                file.write(b"more")

    with pytest.raises(ModelUnusable, match="changed while it was read"):
        manager.install(tiny, progress=meddle)
    assert manager.list_models() == ((), ())


def _rewrite(path: Path) -> None:
    """Other bytes of the same size under the same times: what only hashing tells."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _rename_in_manifest(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"tiny-model.q8"', b'"other"'))


def _inventory_in_manifest(path: Path) -> None:
    record = orjson.loads(path.read_bytes())
    record["inventory"][0]["size"] += 1
    path.write_bytes(orjson.dumps(record))


OWNED = {
    "altered weights": ("weights.gguf", _rewrite),
    "cut weights": ("weights.gguf", lambda path: os.truncate(path, 10)),
    "missing weights": ("weights.gguf", Path.unlink),
    "replaced weights": (
        "weights.gguf",
        lambda path: (shutil.copy2(path, f"{path}.new"), Path(f"{path}.new").replace(path)),
    ),
    "readable weights": ("weights.gguf", lambda path: path.chmod(0o644)),
    "linked weights": (
        "weights.gguf",
        lambda path: (path.rename(path.parents[2] / "away"), path.symlink_to("../../away")),
    ),
    "twice named weights": ("weights.gguf", lambda path: os.link(path, path.parents[2] / "second")),
    "renamed in the manifest": ("manifest.json", _rename_in_manifest),
    "other inventory": ("manifest.json", _inventory_in_manifest),
    "torn manifest": ("manifest.json", lambda path: os.truncate(path, 20)),
    "missing manifest": ("manifest.json", Path.unlink),
    "readable manifest": ("manifest.json", lambda path: path.chmod(0o640)),
    "torn stamp": ("stamp.json", lambda path: os.truncate(path, 20)),
    "missing stamp": ("stamp.json", Path.unlink),
    "foreign stamp": ("stamp.json", lambda path: path.write_bytes(b"[]")),
    "a file more": ("weights.gguf", lambda path: path.with_name("more").touch()),
    "open directory": ("weights.gguf", lambda path: path.parent.chmod(0o755)),
}


@pytest.mark.parametrize("damage", OWNED, ids=lambda name: name.replace(" ", "-"))
def test_whatever_alters_an_owned_snapshot_makes_its_stamp_invalid(
    manager: ModelManager, tiny: Path, damage: str
) -> None:
    """Behaviour 58."""
    model = manager.install(tiny).model
    name, spoil = OWNED[damage]
    spoil(directory_of(manager, model) / name)
    with pytest.raises(ModelSnapshotInvalid) as caught:
        manager.revalidate(model)
    assert model.digest is not None
    assert model.digest in caught.value.message


def test_a_restored_home_is_verified_and_stamped_anew(manager: ModelManager, tiny: Path) -> None:
    """A copy of a Home has other inodes and times: the stamp is out of date until every byte was hashed."""
    model = manager.install(tiny).model
    shutil.copytree(manager.home.models, manager.home.root / "copy")
    shutil.rmtree(manager.home.models)
    (manager.home.root / "copy").rename(manager.home.models)
    with pytest.raises(ModelSnapshotInvalid):
        manager.revalidate(model)
    assert manager.verify(model.reference).restamped
    assert manager.revalidate(model) == model
    assert not manager.verify(model.reference).restamped


@pytest.mark.parametrize("damage", ["altered weights", "cut weights", "renamed in the manifest"])
def test_verifying_blesses_nothing_that_was_altered(manager: ModelManager, tiny: Path, damage: str) -> None:
    model = manager.install(tiny).model
    name, spoil = OWNED[damage]
    spoil(directory_of(manager, model) / name)
    assert model.digest is not None
    for _ in range(2):
        with pytest.raises(ModelSnapshotInvalid):
            manager.verify(model.digest)


class TestLinked:
    @pytest.fixture
    def model(self, manager: ModelManager, tiny: Path) -> InstalledModel:
        return manager.install(tiny, name="linked", link=True).model

    def test_only_a_record_is_kept(self, manager: ModelManager, tiny: Path, model: InstalledModel) -> None:
        assert (model.kind, model.path) == (ModelKind.LINKED, tiny)
        assert {path.name for path in directory_of(manager, model).iterdir()} == {"manifest.json", "stamp.json"}
        assert manager.revalidate(model) == model

    def test_it_is_the_same_snapshot_as_a_copy(self, manager: ModelManager, tiny: Path, model: InstalledModel) -> None:
        """What pins a run is the bytes, not where they lie."""
        manager.remove(model.snapshot_id)
        assert manager.install(tiny, name="linked").model.snapshot_id == model.snapshot_id

    def test_changed_content_fails_the_full_hash(
        self, manager: ModelManager, tiny: Path, model: InstalledModel
    ) -> None:
        """Behaviour 59: also under the same inode, size and times."""
        _rewrite(tiny)
        with pytest.raises(ModelSnapshotInvalid, match="SHA-256"):
            manager.revalidate(model)
        with pytest.raises(ModelSnapshotInvalid, match="SHA-256"):
            manager.verify(model.reference)

    def test_a_replaced_target_is_another_identity(
        self, manager: ModelManager, tiny: Path, model: InstalledModel
    ) -> None:
        data = tiny.read_bytes()
        tiny.unlink()
        with pytest.raises(ModelSnapshotInvalid, match="cannot be looked at"):
            manager.revalidate(model)
        tiny.with_name("new").write_bytes(data)
        tiny.with_name("new").rename(tiny)
        with pytest.raises(ModelSnapshotInvalid, match="identity"):
            manager.revalidate(model)
        assert manager.verify(model.reference).restamped, "the bytes are the same"
        assert manager.revalidate(model) == model

    def test_a_link_in_the_targets_place_is_refused(
        self, manager: ModelManager, tiny: Path, model: InstalledModel
    ) -> None:
        tiny.rename(tiny.with_name("away"))
        tiny.symlink_to("away")
        with pytest.raises(ModelSnapshotInvalid, match="regular file"):
            manager.revalidate(model)

    def test_removing_it_leaves_the_target(self, manager: ModelManager, tiny: Path, model: InstalledModel) -> None:
        """Behaviour 60."""
        before = (tiny.read_bytes(), tiny.stat().st_mtime_ns, tiny.stat().st_ino)
        assert manager.remove(model.reference).bytes_freed == 0
        assert (tiny.read_bytes(), tiny.stat().st_mtime_ns, tiny.stat().st_ino) == before
        assert manager.list_models() == ((), ())


class TestNames:
    def test_a_model_is_found_by_reference_snapshot_or_digest(self, manager: ModelManager, tiny: Path) -> None:
        model = manager.install(tiny, name="small").model
        assert model.digest is not None
        for spelling in ("local:small", model.snapshot_id, model.digest, model.digest[:8]):
            assert manager.get(spelling) == model
        for spelling in ("local:big", "0" * 8, f"local:small@sha256:{'0' * 64}"):
            with pytest.raises((NotFound, UsageError)):
                manager.get(spelling)

    def test_a_prefix_that_fits_several_is_refused(
        self, manager: ModelManager, tiny: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest = manager.install(tiny, name="one").model.digest
        assert digest is not None
        scan = install.snapshots.scan
        monkeypatch.setattr(
            "emelex_core.models.manager.snapshots.scan", lambda models: (scan(models)[0] * 2, scan(models)[1])
        )
        with pytest.raises(AmbiguousId):
            manager.get(digest[:8])

    def test_the_builtin_model_is_a_model_too(self, manager: ModelManager) -> None:
        model = manager.get(BUILTIN_REFERENCE)
        assert (model.kind, model.license, model.capabilities.chat) == (ModelKind.BUILTIN, "apache-2.0", "chatml")
        assert manager.get(model.snapshot_id) == manager.revalidate(model) == model
        with pytest.raises(NotFound, match="another snapshot"):
            manager.get(f"{BUILTIN_REFERENCE}@sha256:{'0' * 64}")
        with pytest.raises(Refused):
            manager.remove(BUILTIN_REFERENCE)
        assert not manager.home.models.joinpath("snapshots").exists()


def test_a_removed_model_is_gone_and_its_room_free(manager: ModelManager, tiny: Path) -> None:
    model = manager.install(tiny).model
    removed = manager.remove(model.snapshot_id)
    assert (removed.snapshot_id, removed.bytes_freed) == (model.snapshot_id, model.size)
    assert tree(manager.home.models) == {".mutation.lock": 0o600, "quarantine": 0o700, "snapshots": 0o700}
    with pytest.raises(ModelSnapshotInvalid, match="no model is installed"):
        manager.revalidate(model)
    with pytest.raises(NotFound):
        manager.remove(model.reference)


def test_a_damaged_snapshot_is_listed_and_can_be_removed_by_its_digest(manager: ModelManager, tiny: Path) -> None:
    model = manager.install(tiny).model
    assert model.digest is not None
    (directory_of(manager, model) / "manifest.json").write_bytes(b"{}")
    models, damaged = manager.list_models()
    assert (models, [entry.path.name for entry in damaged]) == ((), [model.digest])
    with pytest.raises(Invalid, match="damaged"):
        manager.install(tiny)
    assert manager.collect().damaged == damaged, "a sweep tells of it and leaves it"
    manager.remove(model.digest)
    assert manager.list_models() == ((), ())
    assert not manager.install(tiny).already


def test_sweeping_without_models_makes_nothing(manager: ModelManager) -> None:
    swept = manager.collect()
    assert (swept.removed, swept.in_use, swept.damaged) == (0, 0, ())
    assert not manager.home.root.exists()


def test_a_sweep_leaves_what_somebody_works_on(place: Home, tiny: Path) -> None:
    """An import in the middle of its probe is not swept away, and is there in the end."""
    swept: list[tuple[int, int]] = []

    def sweeping(path: Path) -> Probed:
        (place.models / "quarantine" / "in-crashed").mkdir(mode=0o700)
        (place.models / "quarantine" / "in-crashed" / "weights.gguf").write_bytes(b"half")
        (place.models / "quarantine" / "stamp-crashed").write_bytes(b"half")
        found = ModelManager(place).collect()
        swept.append((found.removed, found.in_use))
        return Probed(grammar=True, engine="a test")

    model = ModelManager(place, prober=sweeping).install(tiny).model
    assert swept == [(2, 1)]
    assert ModelManager(place).revalidate(model) == model
    assert not list((place.models / "quarantine").iterdir())


@pytest.mark.model
def test_the_real_model_is_copied_probed_and_revalidated_cheaply(place: Home, source: install.Verified) -> None:
    """The probe runs llama.cpp in a child; a stamp is checked without reading 97 MB again."""
    manager = ModelManager(place)
    model = manager.install(source.path, name="real").model
    assert model.sha256 == source.sha256
    assert model.capabilities.grammar is True
    assert model.capabilities.evidence["grammar"].startswith("probed with llama.cpp")
    started = time.perf_counter()
    manager.revalidate(model)
    cheap = time.perf_counter() - started
    started = time.perf_counter()
    manager.verify(model.reference)
    assert cheap < (time.perf_counter() - started) / 4


@pytest.mark.model
@pytest.mark.parametrize("kind", ["hollow weights", "cut file"])
def test_the_real_probe_refuses_what_llama_cpp_cannot_run(place: Home, tiny: Path, kind: str) -> None:
    manager = ModelManager(place)
    if kind == "cut file":
        os.truncate(tiny, tiny.stat().st_size - 64)
    with pytest.raises(ModelUnusable, match=r"llama\.cpp cannot load it|beyond the end"):
        manager.install(tiny)
    assert manager.list_models() == ((), ())
