"""Which time counts: a clock that jumped ages nothing (behaviours 179 and 182; reports, K4).

A single reading of the clock proves nothing. The store remembers when maintenance last looked at the clock, and how far
time has counted. Between two looks the clock may go on by as much as a machine is off for a weekend; that is taken for
time that passed. A longer leap counts as that much only, until the store has lived for a week on its far side without
the clock going back: then the leap was real (the machine was off), and counts in full.

    true clock          ──┬─────┬─────┬──── leap ────┬─────┬── … a week … ──┬──
    counted             ──┴─────┴─────┴─ 3 days ─┐   └─────┴──── lags ──────┘ catches up

A clock that was set back takes the counted instant with it: nothing is older than the clock says, either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Transaction
from emelex_core.db.statements import load

SQL: Final = load("emelex_core", "retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class LivedTime:
    """`seen_at` is the last reading of the clock; time counts up to `counted_at`.

    `lived_ms` is how long the store has lived since a leap that is not believed yet.
    """

    seen_at: int
    counted_at: int
    lived_ms: int

    def at(self, now: int) -> LivedTime:
        """The same after another reading of the clock."""
        step = now - self.seen_at
        if step < 0:
            return LivedTime(seen_at=now, counted_at=min(self.counted_at, now), lived_ms=0)
        counted_at, lived_ms = self.counted_at, 0
        if counted_at < self.seen_at:
            lived_ms = self.lived_ms + min(step, limits.CLOCK_BELIEF_MS)
            if lived_ms >= limits.CLOCK_BELIEF_MS:
                counted_at, lived_ms = self.seen_at, 0
        counted_at = min(now, counted_at + min(step, limits.CLOCK_GAP_MS_MAX))
        return LivedTime(seen_at=now, counted_at=counted_at, lived_ms=lived_ms)


def read(transaction: Transaction, *, now: int) -> LivedTime:
    """What time counts at a reading of the clock. Writes nothing."""
    row = transaction.one(SQL["time_seen"])
    if row is None:
        born = cast(int, (transaction.one(SQL["born"]) or (now,))[0])
        return LivedTime(seen_at=born, counted_at=born, lived_ms=0).at(now)
    seen_at, counted_at, lived_ms = (cast(int, value) for value in row)
    return LivedTime(seen_at=seen_at, counted_at=counted_at, lived_ms=lived_ms).at(now)


def see(transaction: Transaction, *, now: int) -> LivedTime:
    """Read and remember."""
    time = read(transaction, now=now)
    transaction.run(
        SQL["see_time"], {"seen_at": time.seen_at, "counted_at": time.counted_at, "lived_ms": time.lived_ms}
    )
    return time
