"""The outer wait for a lock, where waiting on is right: what is lost by giving up cost more than the wait.

Every statement waits for itself, five seconds at most (`limits.BUSY_WAIT_MS`). A settlement may have minutes of
inference behind it and a lease in front of it, so it tries again for longer. Only StorageBusy is tried again: it says
that nothing was done. The wait is bounded, and ends early when the caller is told to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from emelex_core.errors import StorageBusy

T = TypeVar("T")
_FIRST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.5


def patiently(act: Callable[[], T], *, seconds: float, stopped: Callable[[], bool] | None = None) -> T:
    """Call `act`, again while the database is locked, for so long at most; return what it returns.

    Raises: StorageBusy, the last one, after the bound or once `stopped` says so; whatever else `act` raises, at once.
    """
    bound = stop_after_delay(seconds)

    def give_up(state: RetryCallState) -> bool:
        return bound(state) or (stopped is not None and stopped())

    attempts = Retrying(
        stop=give_up,
        wait=wait_random_exponential(multiplier=_FIRST_SECONDS, max=_LONGEST_SECONDS),
        retry=retry_if_exception_type(StorageBusy),
        reraise=True,
    )
    return attempts(act)
