"""Records of Knowledge: what distillation proposes, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The words that an entry rests on: `quote` stands byte for byte in the event (behaviour 186)."""

    event_id: str
    sequence: int
    speaker: str
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """One accepted candidate. `confidence` is between 0 and 1 and comes from the evidence's origin."""

    key: str
    content: str
    confidence: float
    evidence: Evidence


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
class Knowledge:
    """One active entry. Instants are milliseconds; `source_alive` is False once its Session was deleted."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What applying candidates did: new or changed entries, identical ones, and proposals kept for review."""

    changed: int
    unchanged: int
    proposed: int
