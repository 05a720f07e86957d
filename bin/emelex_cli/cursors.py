"""Page cursors as texts: `<instant>.<id or row>`, opaque to people, checked when they come back."""

from __future__ import annotations

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
    if text is None:
        return None
    instant, _, row = text.partition(".")
    if not instant.isdecimal() or not row.isdecimal() or max(len(instant), len(row)) > 18:
        raise _unknown(text)
    return int(instant), int(row)


def cursor(instant: int, last: int | str) -> str:
    """Write the cursor behind a row."""
    return f"{instant}.{last}"


def _unknown(text: str) -> UsageError:
    return UsageError(f"{text[:80]!r} is no cursor of this list", hint="take it from the end of the page before")
