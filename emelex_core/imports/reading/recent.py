"""A bounded memory of recent keys, for what must not grow with the file.

The module owns one invariant: at least the newest `capacity` keys are remembered and at most twice as many, whatever
the input. Two generations make that cheap: when the young one is full it becomes the old one, and the old one goes.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from emelex_core import limits

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Maps recent text keys to values."""

    def __init__(self, capacity: int = limits.IMPORT_RECENT_RECORDS_MAX) -> None:
        self._capacity = capacity
        self._young: dict[str, Value] = {}
        self._old: dict[str, Value] = {}

    def put(self, key: str, value: Value) -> None:
        """Remember a key; a known one gets the new value."""
        if len(self._young) >= self._capacity:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def get(self, key: str) -> Value | None:
        """Return what is remembered under the key, or None."""
        value = self._young.get(key)
        return self._old.get(key) if value is None else value
