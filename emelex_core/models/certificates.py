"""What a model has shown that it can do: evidence, bound to its exact weights, the program that ran it and the rules.

The module owns these invariants (issue 8, "A model earns its work"):

- A certificate counts for one snapshot, one program with its version and one set of trials; anything else is none.
- A file that is not a certificate is none, and says so in the log: certifying again is always right.
- Certificates appear whole; a newer one replaces the one before.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from emelex_core import limits
from emelex_core.models import files

log = logging.getLogger(__name__)

VERSION: Final = 1
DIRECTORY: Final = "certificates"
_BYTES_MAX: Final = 16 * limits.KIB


class Grade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ability: the form in which it was shown, None where it was not, and `good` of `trials` that passed."""

    form: str | None
    good: int
    trials: int


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evidence of three abilities. `words` restates a line, `judges` keeps or drops one, `writes` sums up freely.

    `engine` is the program with its version, `trials` the digest of what was asked and how it was scored; `made_at` is
    in milliseconds since the epoch, UTC.
    """

    version: int
    snapshot_id: str
    engine: str
    trials: str
    words: Grade
    judges: Grade
    writes: Grade
    made_at: int


def program(engine: str) -> str:
    """The program of an engine's description and its version, without how many threads it was given."""
    return engine.partition(",")[0]


def read(models: Path, *, snapshot_id: str, engine: str, trials: str) -> Certificate | None:
    """The certificate of exactly this, or None. `models` is that directory of the Home. Raises: Storage."""
    path = _path(models, snapshot_id)
    if not os.path.lexists(path):
        return None
    try:
        with files.translated(path), open(path, "rb") as file:
            data = file.read(_BYTES_MAX)
        found = msgspec.json.decode(data, type=Certificate)
    except msgspec.MsgspecError as error:
        log.warning("%s: it is no certificate (%s)", path, error)
        return None
    bound = (found.version, found.snapshot_id, found.engine, found.trials)
    return found if bound == (VERSION, snapshot_id, program(engine), trials) else None


def write(models: Path, certificate: Certificate) -> Path:
    """Put a certificate in its place and return where. Raises: Refused, Storage."""
    path = _path(models, certificate.snapshot_id)
    files.private_directory(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    files.remove(part)
    files.write_private(part, msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n")
    with files.translated(path):
        part.replace(path)
    return path


def _path(models: Path, snapshot_id: str) -> Path:
    return models / DIRECTORY / f"{hashlib.sha256(snapshot_id.encode()).hexdigest()}.json"
