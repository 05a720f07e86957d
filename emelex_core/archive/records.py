"""Reports of the archive. Sizes are bytes, instants milliseconds since the epoch, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from emelex_core.identity import Identity

FINDINGS_MAX: Final = 1_000
"""Findings that a report lists; more are only counted."""


class Weight(StrEnum):
    """How much a finding matters."""

    DAMAGE = "damage"
    """What was stored is not what is there: only a backup brings it back."""
    DERIVED = "derived"
    """A value that other stored values decide is wrong; a check that may repair sets it right."""
    NOTE = "note"
    """Nothing is wrong, but somebody may want to act: an interrupted turn, a dead owner's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found. `area` is database, history, summary, media, job, knowledge, journal or owner."""

    weight: Weight
    area: str
    detail: str
    session_id: str | None = None
    sequence: int | None = None
    event_id: str | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check looked at and found; `findings` lists at most 1,000 of the counted ones."""

    sessions: int
    events: int
    jobs: int
    knowledge_versions: int
    assets: int
    asset_bytes: int
    findings: tuple[Finding, ...]
    damage: int
    derived: int
    repaired: int
    notes: int

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged, and nothing derived was left wrong."""
        return self.damage == 0 and self.derived == self.repaired


@dataclass(slots=True)
class Findings:
    """Findings as they come: so many are listed, all are counted."""

    listed: list[Finding] = field(default_factory=list[Finding])
    counts: dict[Weight, int] = field(default_factory=lambda: dict.fromkeys(Weight, 0))
    repaired: int = 0

    def add(self, finding: Finding) -> None:
        """Note one."""
        self.counts[finding.weight] += 1
        self.repaired += finding.repaired
        if len(self.listed) < FINDINGS_MAX:
            self.listed.append(finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A finished, verified backup: a Home of its own that can be read in place."""

    path: Path
    database_bytes: int
    database_sha256: str
    schema_version: int
    sessions: int
    events: int
    assets: int
    asset_bytes: int
    check: CheckReport


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundWorkspace:
    """A directory that Sessions or Knowledge belong to, as stored and as found on this machine now.

    `found` is None when there is no directory at the path any more. `sessions` and `knowledge` are counts.
    """

    id: int
    path: str
    stored: Identity
    found: Identity | None
    sessions: int
    knowledge: int

    @property
    def needs_rebind(self) -> bool:
        """Whether what stands at the path is not what it was bound to."""
        return self.found != self.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A finished restore. Identities are as they were; `workspaces` says which of them do not stand here."""

    database: Path
    sessions: int
    events: int
    assets: int
    asset_bytes: int
    check: CheckReport
    workspaces: tuple[BoundWorkspace, ...]
