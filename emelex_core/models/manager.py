"""ModelManager: what is installed in a Home, and the only way to change it (seed, "Durability and authority").

    manager = ModelManager(home, endpoints=config.models.endpoint)
    model = manager.install(path, name="small").model          # local:small, by copy
    store.bind_model(session.id, model, manager=manager)
    manager.remove(model.reference)                            # refused while a Session is bound to it

The module owns these invariants:

- Installs are immutable: a snapshot is added, verified or removed as a whole, never changed.
- Removal asks the guard under the mutation lock; a manager that is built directly has the guard over its Home's memory.
- What is returned was checked against the disk at that moment; `revalidate` checks it again, cheaply where a stamp can.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from emelex_core import clock as clocks
from emelex_core import faults, home, ids
from emelex_core.clock import Clock
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.errors import AmbiguousId, Invalid, ModelSnapshotInvalid, NotFound, Refused
from emelex_core.home import Home
from emelex_core.models import capabilities, files, guard, install, probe, snapshots
from emelex_core.models.files import Progress
from emelex_core.models.gguf import read_header
from emelex_core.models.guard import MemorySnapshotReferenceGuard, SnapshotReferenceGuard
from emelex_core.models.install import Installed, Installer
from emelex_core.models.probe import Prober
from emelex_core.models.records import InstalledModel, ModelKind
from emelex_core.models.resolve import BUILTIN_REFERENCE, ResolvedEndpoint, ResolvedFile, resolve_model
from emelex_core.models.snapshots import QUARANTINE, SNAPSHOTS, STAMP, Damaged, Snapshot

_NO_ENDPOINTS: Final[Mapping[str, EndpointConfig]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One model whose every byte was hashed. `restamped` says that its stamp was out of date, as after a restore."""

    model: InstalledModel
    restamped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedModel:
    """A model that is gone. `bytes_freed` is 0 for a linked one, whose target stays as it is."""

    reference: str
    snapshot_id: str
    bytes_freed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedModels:
    """What a sweep removed, and what it left because somebody still works on it."""

    removed: int
    bytes_freed: int
    in_use: int
    damaged: tuple[Damaged, ...]


class ModelManager:
    """The models of one Home. Cheap to build; nothing is opened, hashed or made before it is asked for."""

    def __init__(
        self,
        place: Home,
        *,
        endpoints: Mapping[str, EndpointConfig] = _NO_ENDPOINTS,
        references: SnapshotReferenceGuard | None = None,
        clock: Clock = clocks.system_clock,
        prober: Prober = probe.probe,
    ) -> None:
        """Manage a Home's models; `references` None installs the guard over the Home's own memory."""
        self.home = place
        self._models = place.models
        self._endpoints = endpoints
        self._references = references or MemorySnapshotReferenceGuard(place.database)
        self._installer = Installer(models=place.models, clock=clock, prober=prober)

    def list_models(self) -> tuple[tuple[InstalledModel, ...], tuple[Damaged, ...]]:
        """Every installed model by name, and what lies among them damaged. Raises: Refused, Storage."""
        found, damaged = snapshots.scan(self._models)
        return tuple(snapshot.model for snapshot in found), tuple(damaged)

    def get(self, reference: str) -> InstalledModel:
        """The model that a reference, a snapshot id or 8 or more digits of its digest name.

        An endpoint must be configured and the built-in model's package installed; neither is hashed or asked.
        Raises: NotFound, AmbiguousId, UsageError, ModelUnusable.
        """
        found, _ = snapshots.scan(self._models)
        for snapshot in found:
            if reference in (snapshot.model.reference, snapshot.model.snapshot_id):
                return snapshot.model
        if ids.is_prefix(reference[: ids.PREFIX_CHARACTERS_MIN]) and ":" not in reference:
            return _by_digest(found, reference).model
        resolved = resolve_model(_without_snapshot(reference), models_dir=self._models, endpoints=self._endpoints)
        if reference not in (resolved.reference, resolved.snapshot_id):
            raise NotFound(f"{reference}: {resolved.reference} is another snapshot now, {resolved.snapshot_id}")
        return _endpoint(resolved) if isinstance(resolved, ResolvedEndpoint) else _builtin(resolved)

    def install(
        self, source: Path, *, name: str | None = None, link: bool = False, progress: Progress | None = None
    ) -> Installed:
        """Install a GGUF file by copy, or as a link to it. Raises: as `Installer.install`."""
        return self._installer.install(source, name=name, link=link, progress=progress)

    def revalidate(self, model: InstalledModel) -> InstalledModel:
        """Prove that a model still is what it was, and return it as the disk says it is now.

        An owned model's stamp is compared; a linked one's identity, and all its bytes; the built-in one's bytes; an
        endpoint's configuration. Raises: ModelSnapshotInvalid, ModelUnusable, NotFound for an endpoint.
        """
        if model.digest is None:
            current = self.get(model.reference)
            if current.kind is ModelKind.BUILTIN and current.path is not None and current.sha256 is not None:
                files.verify(current.path, current.sha256, hint="install the package again")
        else:
            snapshot = snapshots.read(self._models, model.digest)
            snapshots.check_stamp(snapshot)
            if snapshot.manifest.target is not None:
                snapshots.check_content(snapshot)
            current = snapshot.model
        if (current.reference, current.snapshot_id) != (model.reference, model.snapshot_id):
            raise ModelSnapshotInvalid(
                f"{model.reference} is {current.snapshot_id} now, not {model.snapshot_id}", hint=snapshots.HINT
            )
        return current

    @contextmanager
    def mutation(self) -> Generator[None]:
        """Hold the Home-wide snapshot-mutation lock: no snapshot is added or removed meanwhile.

        Raises: StorageBusy, Refused, Storage.
        """
        with guard.mutation(self._models):
            yield

    def verify(self, reference: str, *, progress: Progress | None = None) -> Verification:
        """Hash every byte of a model. A stamp that is out of date is renewed when the bytes are the right ones.

        Raises: ModelSnapshotInvalid, ModelUnusable for what is not as it must be; NotFound, UsageError.
        """
        model = self.get(reference)
        if model.digest is None:
            if model.path is not None and model.sha256 is not None:
                files.verify(model.path, model.sha256, hint="install the package again", progress=progress)
            return Verification(model=model, restamped=False)
        snapshot = snapshots.read(self._models, model.digest)
        if snapshots.read_stamp(snapshot).manifest_sha256 != snapshot.manifest_sha256:
            # An altered manifest is never blessed: only its files' times may have changed, by a copy or a restore.
            snapshots.check_stamp(snapshot)
        verified = snapshots.check_content(snapshot, progress=progress)
        try:
            snapshots.check_stamp(snapshot)
        except ModelSnapshotInvalid:
            with self.mutation():
                _restamp(snapshots.read(self._models, model.digest), snapshot, unchanged=verified.unchanged())
            return Verification(model=model, restamped=True)
        return Verification(model=model, restamped=False)

    def remove(self, reference: str) -> RemovedModel:
        """Remove an installed model; a linked one's target stays. A damaged one is named by its digest.

        Raises: Refused while a Session is bound to it, and for what is not installed here; NotFound; whatever keeps the
        guard from knowing.
        """
        # Looked up first without the lock, whose file would make a Home for a name that nothing stands under.
        self._removable(reference)
        with self.mutation():
            directory, model = self._removable(reference)
            if model is not None and self._references.is_referenced(model.snapshot_id):
                raise Refused(
                    f"{model.snapshot_id} stays: a Session is bound to it",
                    hint="delete the Sessions that use it first; emelex memory sessions list --all shows them",
                )
            size = _bytes_of(directory)
            gone = self._models / QUARANTINE / f"{install.OUTGOING}{secrets.token_hex(8)}"
            files.private_directory(gone.parent)
            with files.translated(directory):
                directory.rename(gone)
            home.sync_directory(directory.parent)
        faults.reach("model.quarantined")
        install.discard(gone)
        return RemovedModel(
            reference=directory.name if model is None else model.reference,
            snapshot_id=directory.name if model is None else model.snapshot_id,
            bytes_freed=size,
        )

    def collect(self) -> CollectedModels:
        """Sweep what crashed imports and removals left in the quarantine. Damaged snapshots are told, not touched.

        Raises: StorageBusy, Refused, Storage.
        """
        place = self._models / QUARANTINE
        removed = freed = in_use = 0
        if home.exists(place):
            with self.mutation():
                files.require_private_directory(place)
                for entry in sorted(place.iterdir()):
                    size = _sweep(entry)
                    removed += size is not None
                    freed += size or 0
                    in_use += size is None
        return CollectedModels(
            removed=removed, bytes_freed=freed, in_use=in_use, damaged=tuple(snapshots.scan(self._models)[1])
        )

    def _removable(self, reference: str) -> tuple[Path, InstalledModel | None]:
        """The directory to remove, and its model where it is a sound one."""
        _, damaged = snapshots.scan(self._models)
        for entry in damaged:
            if entry.path.name == reference:
                self._require_unbound_damage(entry)
                return entry.path, None
        model = self.get(reference)
        if model.digest is None:
            raise Refused(
                f"{model.reference} is not installed in this Home",
                hint="a package is removed by its installer, an endpoint in config.toml",
            )
        return self._models / SNAPSHOTS / model.digest, model

    def _require_unbound_damage(self, entry: Damaged) -> None:
        """Damage does not free a snapshot: its name is unknown, so every Session that pins its digest counts."""
        if self._references.is_referenced(entry.path.name):
            raise Refused(f"{entry.path.name} stays, though damaged: a Session is bound to it", hint=snapshots.HINT)


def _by_digest(found: list[Snapshot], prefix: str) -> Snapshot:
    fitting = [snapshot for snapshot in found if snapshot.digest.startswith(prefix.lower())]
    if not fitting:
        raise NotFound(f"no installed model has a digest that begins with {prefix[:80]}")
    if len(fitting) > 1:
        names = tuple(snapshot.digest for snapshot in fitting[:10])
        raise AmbiguousId(f"{prefix} fits several models: {', '.join(names)}", candidates=names)
    return fitting[0]


def _without_snapshot(reference: str) -> str:
    """The reference in a snapshot id of the built-in model or an endpoint; any other text as it is."""
    for mark in ("@sha256:", "#"):
        if reference.startswith(("builtin:", "endpoint:")) and mark in reference:
            return reference.partition(mark)[0]
    return reference


def _endpoint(resolved: ResolvedEndpoint) -> InstalledModel:
    return InstalledModel(
        kind=ModelKind.ENDPOINT,
        reference=resolved.reference,
        snapshot_id=resolved.snapshot_id,
        digest=None,
        path=None,
        sha256=None,
        size=0,
        architecture=None,
        license=None,
        parameters=0,
        installed_at=None,
        capabilities=capabilities.of_endpoint(resolved.config),
    )


def _builtin(resolved: ResolvedFile) -> InstalledModel:
    if resolved.reference != BUILTIN_REFERENCE:
        raise Invalid(f"{resolved.reference} is neither installed, built in nor an endpoint")
    header = read_header(resolved.path)
    return InstalledModel(
        kind=ModelKind.BUILTIN,
        reference=resolved.reference,
        snapshot_id=resolved.snapshot_id,
        digest=None,
        path=resolved.path,
        sha256=resolved.sha256,
        size=resolved.path.stat().st_size,
        architecture=header.architecture,
        license=header.license,
        parameters=header.parameters,
        installed_at=None,
        capabilities=capabilities.of_file(header, grammar=True, grammar_evidence=capabilities.TESTED),
    )


def _restamp(current: Snapshot, verified: Snapshot, *, unchanged: bool) -> None:
    """Write a fresh stamp over an outdated one. The caller holds the mutation lock."""
    if current != verified or not unchanged:
        raise ModelSnapshotInvalid(f"{current.directory}: it changed while it was verified", hint=snapshots.HINT)
    part = current.directory.parent.parent / QUARANTINE / f"stamp-{secrets.token_hex(8)}"
    files.private_directory(part.parent)
    files.write_private(part, snapshots.stamp_bytes(current.manifest_sha256, snapshots.see(current)))
    with files.translated(part):
        part.replace(current.directory / STAMP)
    home.sync_directory(current.directory)


def _bytes_of(directory: Path) -> int:
    """Bytes of an owned model's file; records do not count."""
    weights = directory / snapshots.WEIGHTS
    with files.translated(directory):
        return weights.lstat().st_size if home.exists(weights) else 0


def _sweep(entry: Path) -> int | None:
    """Delete one entry of the quarantine and return its bytes; None while somebody works on it."""
    if entry.is_symlink() or not entry.is_dir():
        files.remove(entry)
        return 0
    descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not home.try_lock(descriptor, entry):
            return None
        size = _bytes_of(entry)
        install.discard(entry)
        return size
    finally:
        os.close(descriptor)
