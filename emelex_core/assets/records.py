"""Records and reports of the asset store. Sizes are bytes, instants milliseconds since the epoch, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field

from emelex_core import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetLink:
    """The place where an event names an asset: its Session, its sequence, and the zero-based `ordinal` of the media."""

    session_id: str
    sequence: int
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetRecord:
    """One cataloged asset. `references` counts links of events; `media_type` is None when its file does not tell."""

    sha256: str
    size: int
    media_type: str | None
    references: int
    created_at: int
    touched_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedAsset:
    """One asset as an event of a Session links it."""

    sequence: int
    ordinal: int
    sha256: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetProblem:
    """What is wrong with one name in the asset directory. `reason` is a clause without the name."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectReport:
    """What one bounded pass of collection did.

    `rows` and `bytes` are of cataloged assets that went, `missing` of them had no file any more; `orphans` are files
    without a row, `temporaries` what killed writers left. `young`, `locked` and `journalled` were kept. A file that
    could not be removed is a problem and keeps its row. `complete` says that the pass came to the end of catalog and
    directory; otherwise the next one goes on from where this one stopped.
    """

    rows: int
    bytes: int
    missing: int
    orphans: int
    temporaries: int
    young: int
    locked: int
    journalled: int
    problems: tuple[AssetProblem, ...]
    problem_count: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a check of every cataloged asset found.

    `problems` are cataloged assets whose file is missing or not what it was; `uncataloged` counts files without a row,
    `temporaries` those of writers, at work or killed. Both are normal and collection's business.
    """

    assets: int
    bytes: int
    problems: tuple[AssetProblem, ...]
    problem_count: int
    uncataloged: int
    temporaries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRow:
    """A catalog row that was removed, so that it can be put back when its file cannot go."""

    sha256: str
    size: int
    created_at: int
    touched_at: int


@dataclass(slots=True)
class Problems:
    """Problems as they are found: so many are listed, all are counted."""

    count: int = 0
    listed: list[AssetProblem] = field(default_factory=list[AssetProblem])

    def add(self, name: str, reason: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.listed) < limits.ASSET_PROBLEMS_MAX:
            self.listed.append(AssetProblem(name=name, reason=reason))
