"""Instants as a person types them."""

from __future__ import annotations

import re
from typing import Final

from emelex_core import limits
from emelex_core.clock import parse_iso
from emelex_core.errors import UsageError

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def instant(text: str | None) -> int | None:
    """Read an instant with its zone, or a day in UTC, which means its end. Raises: UsageError."""
    if text is None:
        return None
    day = _DAY.fullmatch(text) is not None
    found = parse_iso(f"{text}T00:00:00Z" if day else text)
    if found is None:
        raise UsageError(f"{text[:80]!r} is no instant", hint="such as 2026-03-01 or 2026-03-01T12:00:00Z")
    return found + limits.DAY_MS - 1 if day else found
