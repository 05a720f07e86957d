"""Durations as people type them: `30s`, `5m`, `1h`, `1h30m`; a plain number is seconds."""

from __future__ import annotations

import re
from typing import Final

from emelex_core.errors import UsageError

_SECONDS: Final = {"h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?\Z", re.ASCII)
_MOST_SECONDS: Final = 366 * 86_400


def seconds(text: str, *, option: str) -> float:
    """Read a duration. Raises: UsageError for what is none, for zero, and for more than a year."""
    match = _DURATION.match(text.strip())
    pieces = [] if match is None else list(zip(match.groups(), _SECONDS.values(), strict=True))
    total = sum(int(count) * length for count, length in pieces if count and len(count) < 12)
    if not 0 < total <= _MOST_SECONDS:
        raise UsageError(f"{option} {text[:80]!r} is no duration", hint="for example 30s, 5m or 1h30m")
    return float(total)
