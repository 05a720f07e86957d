"""Page cursors as texts: `<instant or event>.<id, row or place>`, opaque to people, checked when they come back."""

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
