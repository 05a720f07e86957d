"""Records of Knowledge: what a run or a person asks for, and what is stored. Instants are milliseconds, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

TRUSTED_SPEAKERS: Final = frozenset({"user", "assistant"})
"""Whose words may become Knowledge without review; what only a tool or a page said is quarantined (behaviour 186)."""


class Mode(StrEnum):
    """What becomes of a changeset: applied, kept for review as a whole, or only looked at."""

    AUTO = "auto"
    REVIEW = "review"
    DRY_RUN = "dry-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The words that an entry rests on: `quote` stands byte for byte in the event (behaviour 186)."""

    event_id: str
    sequence: int
    speaker: str
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """One accepted candidate. `confidence` is between 0 and 1 and comes from the evidence's origin.

    `quarantined` says that the words came from a tool or a page, whoever repeated them; `reason` is why.
    """

    key: str
    content: str
    confidence: float
    evidence: Evidence
    reason: str | None = None
    quarantined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An active entry that the evidence says is no longer so. Its versions stay, with confidence and provenance."""

    key: str
    evidence: Evidence
    reason: str
    quarantined: bool = False


Change: TypeAlias = Upsert | Tombstone
"""One operation of a changeset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Which job read which events of which Session, and what made its candidates, as canonical JSON."""

    job_id: str
    session_id: str
    first_sequence: int
    last_sequence: int
    sha256: str
    made_by: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one operation came to: added, changed, unchanged, tombstoned, proposed or skipped.

    `reason` is that of a proposal: pinned, forgotten, user_written, quarantined or review.
    """

    key: str
    operation: str
    outcome: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What applying a changeset did, or in a dry run would do.

    `changed` are new or changed entries, `unchanged` identical ones, `proposed` those kept for review, `skipped`
    tombstones of what is pinned or not there.
    """

    changed: int
    unchanged: int
    proposed: int
    tombstoned: int = 0
    skipped: int = 0
    outcomes: tuple[Outcome, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """One entry at one version. `source_alive` is False once its Session was deleted.

    `valid_from` is when the version's evidence was said: the instant from which it holds.
    """

    row: int
    key: str
    version: int
    pinned: bool
    content: str
    confidence: float
    origin: str
    session_id: str | None
    evidence: Evidence | None
    job_id: str | None
    created_at: int
    updated_at: int
    tombstoned_at: int | None
    source_alive: bool
    tombstoned_by: str | None = None
    valid_from: int | None = None
    workspace_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeVersion:
    """One immutable version of an entry; `active` says that it is the one in use."""

    version: int
    active: bool
    content: str
    confidence: float
    origin: str
    session_id: str | None
    source_alive: bool
    evidence: Evidence | None
    job_id: str | None
    valid_from: int
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """One line of an entry's record: who changed it, why, in which run, and what was active after it."""

    row: int
    action: str
    actor: str
    job_id: str | None
    session_id: str | None
    reason: str | None
    version_before: int | None
    version_after: int
    active_after: bool
    effective_at: int
    changed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A run's change that waits for a person. `content` and `confidence` are None for a tombstone.

    `reason` says why it was not applied, `why` what the run gave as its own reason.
    """

    row: int
    id: str
    key: str
    operation: str
    content: str | None
    confidence: float | None
    reason: str
    why: str | None
    session_id: str
    evidence: Evidence
    job_id: str
    state: str
    created_at: int
    decided_at: int | None
    active_content: str | None
    workspace_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What undoing one run did. `kept` are keys that were changed again since and stay as they are."""

    job_id: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    proposals: int
