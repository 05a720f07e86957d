"""Whether a SQLite release has the reported write-ahead-log fault (reports, K2)."""

from __future__ import annotations

from typing import Final

_FIRST: Final = (3, 7, 0)
_FIXED: Final = (3, 51, 3)
_BACKPORTS: Final[dict[tuple[int, ...], int]] = {(3, 50): 7, (3, 44): 6}
"""Patch releases of older series that carry the fix."""


def fault(version: str) -> str | None:
    """Return a warning for a release in which writes that race a checkpoint can corrupt the database, else None."""
    number = tuple(int(piece) for piece in version.split(".")[:3] if piece.isdecimal())
    backport = _BACKPORTS.get(number[:2])
    if not _FIRST <= number < _FIXED or (backport is not None and number[2:] >= (backport,)):
        return None
    return f"SQLite {version} can damage a database when writes race a checkpoint; 3.51.3 and later cannot"
