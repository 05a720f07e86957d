"""What a check may set right: only values that other stored values decide.

Each repair is one transaction of its own, and does nothing to a Session that has grown since it was read.
"""

from __future__ import annotations

from typing import Final, cast

from emelex_core.archive.histories import History
from emelex_core.db import inspection
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt
from emelex_core.events import MediaPart, decode_payload

SQL: Final = load("emelex_core", "archive")
EVENTS: Final = load("emelex_core", "events")
SESSIONS: Final = load("emelex_core", "sessions")


def repair_indexes(database: Database) -> bool:
    """Make every index anew; whether that went through. Raises: Storage."""
    try:
        with database.write() as transaction:
            inspection.rebuild_indexes(transaction)
    except Corrupt:
        return False
    return True


def repair_history(database: Database, session_id: str, history: History) -> bool:
    """Set a Session's counters, Summary pointer and media links by its proven events. Raises: Storage.

    False when it cannot be done: the Session has grown since, or a link leads to an asset that is not cataloged.
    """
    summary_sequence, covered_sequence = history.coverage()
    try:
        with database.write() as transaction:
            head = transaction.one(SESSIONS["head"], {"id": session_id})
            if head is None or head[0] != history.last_sequence:
                return False
            transaction.run(SQL["repair_bytes"], {"id": session_id})
            transaction.run(
                SQL["repair_coverage"],
                {"id": session_id, "summary_sequence": summary_sequence, "covered_sequence": covered_sequence},
            )
            for sequence in history.wrong_links:
                _link_again(transaction, session_id, sequence)
    except Corrupt:
        return False
    return True


def _link_again(transaction: Transaction, session_id: str, sequence: int) -> None:
    place: dict[str, Value] = {"session_id": session_id, "after": sequence - 1, "through": sequence, "limit": 1}
    row = transaction.all(EVENTS["page"], place)[0]
    media = [
        part.ref for part in decode_payload(cast(bytes, row[7]), what="event").parts if isinstance(part, MediaPart)
    ]
    transaction.run(SQL["drop_links"], {"session_id": session_id, "sequence": sequence})
    for ordinal, ref in enumerate(media):
        link: dict[str, Value] = {"session_id": session_id, "sequence": sequence, "ordinal": ordinal}
        transaction.run(EVENTS["link_asset"], {**link, "sha256": ref.sha256, "kind": ref.kind})
