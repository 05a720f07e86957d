"""Installing a model: by copy into the Home, or as a link to a file outside.

    look at the source ─ room? ─ stage ─ copy or hash ─ read again, probe ─ record ─▶ rename into place

The module owns these invariants:

- A snapshot appears in one rename, complete and synced, or not at all. What a crash leaves lies in the quarantine,
  whose entries are locked by whoever still works on them, and is swept later.
- The copy is what was hashed, checked and probed; the source is only read, through one buffer.
- A name stands for one snapshot and bytes stand under one name, decided under the mutation lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emelex_core import faults, home, limits
from emelex_core.clock import Clock
from emelex_core.errors import Invalid, ModelUnusable, StorageFull, UsageError
from emelex_core.models import capabilities, files, memory, probe, snapshots
from emelex_core.models.capabilities import Capabilities
from emelex_core.models.files import Progress, Verified
from emelex_core.models.gguf import GgufHeader, read_header
from emelex_core.models.guard import mutation
from emelex_core.models.probe import Prober
from emelex_core.models.records import VERSION, InstalledModel, InventoryItem, Manifest, inventory_digest
from emelex_core.models.snapshots import MANIFEST, QUARANTINE, SNAPSHOTS, STAMP, WEIGHTS, Snapshot

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
INCOMING: Final = "in-"
OUTGOING: Final = "out-"
SPARE_BYTES: Final = 16 * limits.MIB
"""What must be left beside a copy, so that the memory in the same Home can still be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What an import did: `already` says that the same bytes were there under the same name."""

    model: InstalledModel
    already: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """Installs one file after another below one directory of models."""

    models: Path
    clock: Clock
    prober: Prober = probe.probe

    def install(self, source: Path, *, name: str | None, link: bool, progress: Progress | None) -> Installed:
        """Install a GGUF file by copy, or by link; nothing stands half-installed whatever happens.

        Raises: UsageError for a name; Invalid when name or bytes are taken by another; ModelUnusable for a file that
        is no sound model; StorageFull before anything is written when there is no room; Refused, Storage.
        """
        chosen = name if name is not None else name_from(source)
        if not NAME.match(chosen):
            raise UsageError(f"{chosen[:80]!r} cannot name a model", hint="--name: letters, digits, dots, dashes")
        target = Path(os.path.realpath(source))
        _require_whole(read_header(target), target)
        size = _size(target)
        if not link:
            files.private_directory(self.models)
            _require_room(self.models, size)
        with self._staged() as stage:
            found = self._bring(target, stage, link=link, progress=progress)
            # Read again: the header that was checked above was the source's, and this is what will be loaded.
            weights = target if link else stage / WEIGHTS
            header = read_header(weights)
            _require_whole(header, weights)
            if progress is not None:
                progress("probing", found.size, found.size)
            manifest = self._manifest(chosen, target, found, header, self._capabilities(weights, header), link=link)
            record(stage, manifest)
            if link and not found.unchanged():
                raise ModelUnusable(f"{target}: it changed while it was installed")
            faults.reach("model.recorded")
            return self._publish(stage, manifest)

    def _bring(self, target: Path, stage: Path, *, link: bool, progress: Progress | None) -> Verified:
        if link:
            found = files.digest(target, progress=progress)
        else:
            found = files.copy(target, stage / WEIGHTS, progress=progress)
        faults.reach("model.copied")
        return found

    def _capabilities(self, weights: Path, header: GgufHeader) -> Capabilities:
        """Probe what can be probed here. Raises: ModelUnusable when llama.cpp cannot run the file at all."""
        if not header.chatml_tokens:
            return capabilities.of_file(header, grammar=None, grammar_evidence="not probed: it speaks no ChatML")
        need = memory.need_bytes(header, weights_bytes=_size(weights), context_tokens=None)
        if need > memory.available_bytes():
            evidence = f"not probed: it needs about {need // limits.MIB} MiB of memory"
            return capabilities.of_file(header, grammar=None, grammar_evidence=evidence)
        found = self.prober(weights)
        return capabilities.of_file(header, grammar=found.grammar, grammar_evidence=f"probed with {found.engine}")

    def _manifest(
        self,
        name: str,
        target: Path,
        found: Verified,
        header: GgufHeader,
        able: Capabilities,
        *,
        link: bool,
    ) -> Manifest:
        return Manifest(
            version=VERSION,
            name=name,
            target=os.fspath(target) if link else None,
            source=os.fspath(target),
            installed_at=self.clock(),
            inventory=(InventoryItem(name=WEIGHTS, size=found.size, sha256=found.sha256),),
            architecture=header.architecture,
            license=header.license,
            parameters=header.parameters,
            capabilities=able,
        )

    def _publish(self, stage: Path, manifest: Manifest) -> Installed:
        """Give a recorded snapshot its place, unless it is there already."""
        digest = inventory_digest(manifest.inventory)
        place = self.models / SNAPSHOTS / digest
        with mutation(self.models):
            there = self._standing(manifest, digest)
            if there is not None:
                return Installed(model=there.model, already=True)
            files.private_directory(place.parent)
            with files.translated(place):
                stage.rename(place)
            home.sync_directory(place.parent)
            faults.reach("model.published")
        return Installed(model=snapshots.read(self.models, digest).model, already=False)

    def _standing(self, manifest: Manifest, digest: str) -> Snapshot | None:
        """The snapshot that makes this import needless. Raises: Invalid when name or bytes are taken."""
        found, damaged = snapshots.scan(self.models)
        for snapshot in found:
            same_name, same_bytes = snapshot.manifest.name == manifest.name, snapshot.digest == digest
            if same_name and same_bytes and snapshot.manifest.target == manifest.target:
                return snapshot
            if same_bytes:
                raise Invalid(
                    f"these bytes are installed already as {snapshot.model.reference} ({snapshot.model.kind})",
                    hint=f"use {snapshot.model.reference}, or remove it first",
                )
            if same_name:
                raise Invalid(
                    f"{snapshot.model.reference} is installed already, from other bytes ({snapshot.digest[:12]})",
                    hint="choose another --name, or remove it first",
                )
        if any(entry.path.name == digest for entry in damaged):
            raise Invalid(
                f"these bytes were installed before, and {digest[:12]} is damaged now", hint="remove it first"
            )
        return None

    @contextmanager
    def _staged(self) -> Generator[Path]:
        """A new directory in the quarantine, locked while it is worked on, and gone afterwards if it still is there."""
        stage = self.models / QUARANTINE / f"{INCOMING}{secrets.token_hex(8)}"
        with mutation(self.models):
            files.private_directory(stage)
            descriptor = hold(stage)
        try:
            faults.reach("model.staged")
            yield stage
        finally:
            if home.exists(stage):
                discard(stage)
            os.close(descriptor)


def record(stage: Path, manifest: Manifest) -> None:
    """Write a snapshot's two records beside its file and sync all of it. Raises: ModelUnusable, Storage."""
    data = snapshots.encode(manifest)
    files.write_private(stage / MANIFEST, data)
    snapshot = Snapshot(
        directory=stage,
        digest=inventory_digest(manifest.inventory),
        manifest=manifest,
        manifest_sha256=snapshots.sha256(data),
    )
    files.write_private(stage / STAMP, snapshots.stamp_bytes(snapshot.manifest_sha256, snapshots.see(snapshot)))
    home.sync_directory(stage)


def hold(directory: Path) -> int:
    """Open and lock a directory of the quarantine, which tells a sweep that somebody works on it. Raises: Storage."""
    with files.translated(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def discard(directory: Path) -> None:
    """Delete a directory of the quarantine with what is in it; links are removed, never followed. Raises: Storage."""
    with files.translated(directory):
        shutil.rmtree(directory)


def name_from(source: Path) -> str:
    """The name that a file suggests: its own without the suffix, with what a name may not hold as dashes."""
    stem = source.name.removesuffix(".gguf").removesuffix(".GGUF")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64].lower()


def _size(path: Path) -> int:
    with files.reading(path) as file:
        return os.fstat(file.fileno()).st_size


def _require_whole(header: GgufHeader, path: Path) -> None:
    if header.parts > 1:
        raise ModelUnusable(
            f"{path}: it is one of {header.parts} parts of a model",
            hint="join them first with llama.cpp's llama-gguf-split --merge",
        )
    if header.tensors == 0 or header.vocabulary is None:
        raise ModelUnusable(f"{path}: it holds no weights or no vocabulary, so it is no language model")


def _require_room(models: Path, size: int) -> None:
    """Raise StorageFull, with both figures, when a copy would not fit."""
    with files.translated(models):
        free = shutil.disk_usage(models).free
    if free < size + SPARE_BYTES:
        raise StorageFull(
            f"{models}: a copy needs {size} bytes and {SPARE_BYTES} to spare; {free} are free",
            hint="free space, or install it with --link",
        )
