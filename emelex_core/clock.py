"""The clock that is passed around (house habit 12). Instants are integer milliseconds since the epoch, UTC.

Whatever is stored or compared as an instant comes from a `Clock`. Beside it only `ids` reads the wall clock, for the
stamp of an id, which is never read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from emelex_core import limits

Clock: TypeAlias = Callable[[], int]
"""Returns the current instant in milliseconds since the epoch, UTC."""


def system_clock() -> int:
    """Return the wall clock's instant in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT_MS_MIN: Final = -62_135_596_800_000
INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The years 1 to 9999 in UTC: what `iso` can write. A zone can push a date that reads well beyond them."""


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
    moment = _EPOCH + timedelta(milliseconds=instant_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> int | None:
    """Read an RFC 3339 instant into milliseconds; None where the text is none, has no zone or leaves the calendar."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    # In whole milliseconds: a float loses the last one at the end of the calendar.
    instant = (moment - _EPOCH) // timedelta(milliseconds=1)
    return instant if INSTANT_MS_MIN <= instant <= INSTANT_MS_MAX else None
