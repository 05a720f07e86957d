"""Which assets there are, and which a Session links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, cast

from emelex_core import limits
from emelex_core.assets import files
from emelex_core.assets.media import HEAD_BYTES, sniff
from emelex_core.assets.records import AssetRecord, LinkedAsset
from emelex_core.db.database import Database, Row, Value
from emelex_core.db.statements import load
from emelex_core.errors import AmbiguousId, Invalid, NotFound, UsageError

SQL: Final = load("emelex_core", "assets")
_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}")


def page(
    database: Database, directory: Path, *, limit: int, before: tuple[int, str] | None = None
) -> list[AssetRecord]:
    """Return cataloged assets, the newest first, after a cursor of (created_at, sha256). Raises: Invalid."""
    if not 1 <= limit <= limits.PAGE_ASSETS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_ASSETS_MAX}")
    parameters = {
        "before_created_at": None if before is None else before[0],
        "before_sha256": None if before is None else before[1],
        "limit": limit,
    }
    with database.read() as transaction:
        rows = transaction.all(SQL["page"], parameters)
    return [_record(row, directory) for row in rows]


def get(database: Database, directory: Path, prefix: str) -> AssetRecord:
    """Return an asset by its digest or a prefix of 8 or more digits. Raises: UsageError, NotFound, AmbiguousId."""
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"{prefix[:80]!r} is no digest of an asset", hint="8 to 64 hexadecimal digits, in lower case")
    with database.read() as transaction:
        found = tuple(cast(str, row[0]) for row in transaction.all(SQL["ids_by_prefix"], {"prefix": prefix}))
        row = transaction.one(SQL["get"], {"sha256": found[0]}) if len(found) == 1 else None
    if len(found) > 1:
        raise AmbiguousId(f"{prefix} fits several assets: {', '.join(found[:10])}", candidates=found[:10])
    if row is None:
        raise NotFound(f"no asset {prefix}")
    return _record(row, directory)


def of_session(
    database: Database, session_id: str, *, limit: int = limits.PAGE_ASSETS_MAX, after: tuple[int, int] = (0, 0)
) -> list[LinkedAsset]:
    """Return what a Session's events link, in order, after a cursor of (sequence, ordinal). Raises: Invalid."""
    if not 1 <= limit <= limits.SESSION_ASSETS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.SESSION_ASSETS_MAX}")
    parameters: dict[str, Value] = {
        "session_id": session_id,
        "after_sequence": after[0],
        "after_ordinal": after[1],
        "limit": limit,
    }
    with database.read() as transaction:
        rows = transaction.all(SQL["page_of_session"], parameters)
    return [
        LinkedAsset(
            sequence=cast(int, sequence),
            ordinal=cast(int, ordinal),
            sha256=cast(str, sha256),
            kind=cast(str, kind),
            size=cast(int, size),
        )
        for sequence, ordinal, sha256, kind, size in rows
    ]


def _record(row: Row, directory: Path) -> AssetRecord:
    sha256, size, created_at, touched_at, references = row
    known = sniff(files.head(directory / cast(str, sha256), HEAD_BYTES))
    return AssetRecord(
        sha256=cast(str, sha256),
        size=cast(int, size),
        media_type=None if known is None else known[1],
        references=cast(int, references),
        created_at=cast(int, created_at),
        touched_at=cast(int, touched_at),
    )
