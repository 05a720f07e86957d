"""When a dead worker is replaced: at once the first time, then with growing delays, then no more (behaviour 190)."""

from __future__ import annotations

from typing import Final

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random
from tenacity.wait import wait_base

DEATHS_MAX: Final = 10
"""Deaths in a row of one worker, without a settled job between them, at which the pool gives up."""

BACKOFF: Final = wait_exponential(multiplier=0.1, max=30.0) + wait_random(0.0, 0.05)


class Respawn:
    """One worker's deaths in a row. A settled job wipes them out."""

    def __init__(self, *, deaths_max: int = DEATHS_MAX, backoff: wait_base = BACKOFF) -> None:
        self._deaths_max = deaths_max
        self._backoff = backoff
        self._state = RetryCallState(Retrying(), None, (), {})
        self.deaths = 0

    def after_death(self) -> float | None:
        """Count a death; return the seconds to wait before the worker is replaced, or None to give up."""
        self.deaths += 1
        if self.deaths >= self._deaths_max:
            return None
        if self.deaths == 1:
            return 0.0
        self._state.attempt_number = self.deaths - 1
        return float(self._backoff(self._state))

    def proved(self) -> None:
        """Note that the worker works: it has settled a job."""
        self.deaths = 0
