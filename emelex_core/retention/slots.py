"""Slots: a scheduled run happens once an instant of its schedule, however many processes fire (issue 7, item 5)."""

from __future__ import annotations

from typing import Final, cast

from emelex_core import codec, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database
from emelex_core.db.statements import load

SQL: Final = load("emelex_core", "retention")
_NAME_BYTES_MAX: Final = 64


def is_taken(database: Database, name: str, slot: int) -> bool:
    """Whether somebody has taken a slot. Most who ask come second: they need no write lock to learn it."""
    with database.read() as transaction:
        return transaction.one(SQL["slot_taken"], {"name": name, "slot": slot}) is not None


def take(database: Database, name: str, slot: int, *, clock: Clock) -> bool:
    """Take the slot of a schedule, an instant in milliseconds; whether it was free. Raises: Invalid, Storage."""
    codec.check_line(name, what="name of a schedule", bytes_max=_NAME_BYTES_MAX)
    if is_taken(database, name, slot):
        return False
    with database.write() as transaction:
        return transaction.run(SQL["take_slot"], {"name": name, "slot": slot, "now": clock()}) == 1


def give_back(database: Database, name: str, slot: int) -> None:
    """Make a slot free again, for a run that failed. Waits as long as a settlement does. Raises: Storage."""
    with database.write(wait_ms=limits.SETTLE_WAIT_MS) as transaction:
        transaction.run(SQL["give_slot_back"], {"name": name, "slot": slot})


def last(database: Database, name: str) -> tuple[int, int] | None:
    """The slot that was taken last, and when; None for a schedule that never ran."""
    with database.read() as transaction:
        row = transaction.one(SQL["last_slot"], {"name": name})
    return None if row is None else (cast(int, row[0]), cast(int, row[1]))
