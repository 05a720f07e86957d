"""Page cursors as texts: `<instant or event>.<id, row or place>`, opaque to people, checked when they come back."""

from __future__ import annotations

import math

from emelex_core.errors import UsageError


def session_cursor(text: str | None) -> tuple[int, str] | None:
    """Read the cursor of a list of Sessions. Raises: UsageError."""
    if text is None:
        return None
    instant, _, session_id = text.partition(".")
    if not instant.isdecimal() or len(instant) > 18 or len(session_id) != 36:
        raise _unknown(text)
    return int(instant), session_id


def knowledge_cursor(text: str | None) -> tuple[int, int] | None:
    """Read the cursor of a list of Knowledge. Raises: UsageError."""
    return None if text is None else _two_numbers(text)


def asset_cursor(text: str | None) -> tuple[int, str] | None:
    """Read the cursor of a list of assets. Raises: UsageError."""
    if text is None:
        return None
    instant, _, sha256 = text.partition(".")
    if not instant.isdecimal() or len(instant) > 18 or len(sha256) != 64:
        raise _unknown(text)
    return int(instant), sha256


def linked_cursor(text: str | None) -> tuple[int, int]:
    """Read the cursor of a list of a Session's assets, the start without one. Raises: UsageError."""
    return (0, 0) if text is None else _two_numbers(text)


def number_cursor(text: str | None) -> int:
    """Read the cursor of a list by row, the start without one. Raises: UsageError."""
    if text is None:
        return 0
    if not text.isdecimal() or len(text) > 18:
        raise _unknown(text)
    return int(text)


def place_cursor(text: str | None) -> tuple[int, float, int] | None:
    """Read the cursor of found Knowledge: group, rank and row. Raises: UsageError."""
    if text is None:
        return None
    group, _, rest = text.partition("/")
    place = rank_cursor(rest)
    if place is None or group not in ("0", "1", "2"):
        raise _unknown(text)
    return int(group), *place


def rank_cursor(text: str | None) -> tuple[float, int] | None:
    """Read the cursor of found events: rank and row. Raises: UsageError."""
    if text is None:
        return None
    rank, _, row = text.partition("/")
    try:
        place = float(rank), int(row)
    except ValueError:
        raise _unknown(text) from None
    if not math.isfinite(place[0]) or len(row) > 19:
        raise _unknown(text)
    return place


def write_place(*place: float) -> str:
    """Write the cursor behind a hit."""
    return "/".join(map(repr, place))


def cursor(instant: int, last: int | str) -> str:
    """Write the cursor behind a row."""
    return f"{instant}.{last}"


def _two_numbers(text: str) -> tuple[int, int]:
    first, _, second = text.partition(".")
    if not first.isdecimal() or not second.isdecimal() or max(len(first), len(second)) > 18:
        raise _unknown(text)
    return int(first), int(second)


def _unknown(text: str) -> UsageError:
    return UsageError(f"{text[:80]!r} is no cursor of this list", hint="take it from the end of the page before")
