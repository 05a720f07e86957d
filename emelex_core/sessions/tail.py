"""Taking back the tail of an imported Session, to say it again (ADR 0012).

A transcript may be imported while its agent still writes it; its last turns then end where the file ended. The module
owns these invariants:

- Only events on which nothing rests are taken back: no Summary, no job that was ever attempted, no Knowledge, and no
  event that did not come from a transcript stands at or after them.
- Whole turns are taken back, in the transaction that says them again, under the Session's lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from emelex_core import digests
from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.sessions.append import Tail

SQL: Final = load("emelex_core", "tail")
EVENTS: Final = load("emelex_core", "events")


def kept_through(transaction: Transaction, session_id: str, *, after: int) -> int:
    """Return the last sequence past `after` that must stay, as the end of a turn; `after` when nothing must."""
    row = transaction.one(SQL["kept_through"], {"session_id": session_id, "after": after})
    assert row is not None
    kept = cast(int, row[0])
    if kept == after:
        return after
    end = transaction.one(SQL["turn_end"], {"session_id": session_id, "sequence": kept})
    return kept if end is None else cast(int, end[0])


def take_back(
    transaction: Transaction, session_id: str, holder: Mapping[str, Value], *, cursor: int, through: int, now: int
) -> Tail | None:
    """Remove the events after `through` and return the tail that is left; None when the lease or the cursor is lost.

    `holder` names Session and token as the statements of leases do. Raises: Invalid when something rests on the events,
    or when `through` is inside a turn.
    """
    if kept_through(transaction, session_id, after=through) != through:
        raise Invalid(f"events after {through} of Session {session_id} are in use and cannot be taken back")
    chain = digests.first_chain(session_id)
    if through:
        last = transaction.one(EVENTS["at"], {"session_id": session_id, "sequence": through})
        if last is None or cast(int, last[2]) != cast(int, last[3]) - 1:
            raise Invalid(f"event {through} of Session {session_id} does not end a turn")
        chain = cast(bytes, last[1])
    place: dict[str, Value] = {**holder, "through": through, "now": now}
    if not transaction.run(SQL["shorten"], {**place, "cursor": cursor, "chain": chain}):
        return None
    transaction.run(SQL["touch_assets"], {"id": session_id, "through": through, "now": now})
    transaction.run(SQL["remove"], {"id": session_id, "through": through})
    return Tail(sequence=through, chain=chain)
