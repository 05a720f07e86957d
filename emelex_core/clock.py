"""The clock that is passed around (house habit 12). Instants are integer milliseconds since the epoch, UTC.

Whatever is stored or compared as an instant comes from a `Clock`. Beside it only `ids` reads the wall clock, for the
stamp of an id, which is never read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from emelex_core import limits

Clock: TypeAlias = Callable[[], int]
"""Returns the current instant in milliseconds since the epoch, UTC."""


def system_clock() -> int:
    """Return the wall clock's instant in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def touched_at(before: int, now: int) -> int:
    """The instant of activity that follows `before`: later than it, and not before `now`.

    One that a clock which was wrong had put far ahead comes down to `now` (behaviour 182).
    """
    if now >= limits.CLOCK_MS_MIN and before > now + limits.CLOCK_AHEAD_MS_MAX:
        return now
    return max(before + 1, now)


def iso(instant_ms: int | None) -> str | None:
    """Format an instant as RFC 3339 in UTC with milliseconds; None stays None."""
    if instant_ms is None:
        return None
    moment = datetime.fromtimestamp(instant_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> int | None:
    """Read an RFC 3339 instant into milliseconds; None where the text is not one or has no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    try:
        return int(moment.timestamp() * 1000)
    except (OverflowError, ValueError):
        return None
