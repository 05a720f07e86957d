"""Echoes: Codex writes what was said twice, as a response item and as an event message, in either order.

The module owns these invariants:

- The response item is the authority; its echo is dropped.
- An echo whose response item does not come is released in its place, so that words which only an event holds survive.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from emelex_core.imports.files.lenient import JsonObject
from emelex_core.imports.records import Position

USER: Final = "user"
ASSISTANT: Final = "assistant"
REASONING: Final = "reasoning"
_RECENT_TEXTS: Final = 16
_PENDING_MAX: Final = 256
_CONTAINED_CHARACTERS_MIN: Final = 16
"""A shorter echo must equal its item: `ok` stands inside many texts."""


@dataclass(frozen=True, slots=True)
class Echo:
    """What an event message said, and where."""

    role: str
    text: str
    payload: JsonObject
    start: Position
    occurred_at: int | None


@dataclass(slots=True)
class Echoes:
    """Matches echoes with response items of one turn."""

    _pending: list[Echo] = field(default_factory=list[Echo])
    _recent: dict[str, deque[str]] = field(default_factory=dict[str, deque[str]])

    @property
    def start(self) -> Position | None:
        """Where the oldest waiting echo stands."""
        return self._pending[0].start if self._pending else None

    def heard(self, role: str, text: str) -> int:
        """A response item said this: drop its waiting echoes and return how many they were."""
        said = text.strip()
        self._remember(role, said)
        before = len(self._pending)
        self._pending = [echo for echo in self._pending if echo.role != role or not _same(echo.text, said)]
        return before - len(self._pending)

    def repeats(self, echo: Echo) -> bool:
        """Whether an echo repeats something that was said, or that waits, since the last prompt."""
        waiting = (other.text for other in self._pending if other.role == echo.role)
        return any(_same(echo.text, said) for said in (*self._recent.get(echo.role, ()), *waiting))

    def add(self, echo: Echo) -> None:
        """Keep an echo until its item comes."""
        self._pending.append(echo)

    def release(self, *roles: str) -> list[Echo]:
        """Return the echoes of these roles that found no item, in order; they stop waiting."""
        released = [echo for echo in self._pending if echo.role in roles]
        if released:
            self._pending = [echo for echo in self._pending if echo.role not in roles]
            for echo in released:
                self._remember(echo.role, echo.text.strip())
        return released

    def overdue(self) -> list[Echo]:
        """Return echoes that waited for too long, so that the wait stays bounded."""
        extra = len(self._pending) - _PENDING_MAX
        released, self._pending = (self._pending[:extra], self._pending[extra:]) if extra > 0 else ([], self._pending)
        return released

    def _remember(self, role: str, said: str) -> None:
        self._recent.setdefault(role, deque(maxlen=_RECENT_TEXTS)).append(said)

    def forget(self) -> None:
        """A new prompt: what was said before does not answer its echoes."""
        self._recent.clear()


def _same(echo: str, said: str) -> bool:
    text = echo.strip()
    return text == said or (len(text) >= _CONTAINED_CHARACTERS_MIN and text in said)
