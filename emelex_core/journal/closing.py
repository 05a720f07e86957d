"""How batches and turns enter the history: the events that say so, and the removal of what was journalled for them.

Removal runs in the transaction that appends the events, and matches what its reader saw row by row.
"""

from __future__ import annotations

from typing import Final

from emelex_core.db.database import Transaction, Value
from emelex_core.errors import Corrupt
from emelex_core.events import Event, EventKind, TextPart
from emelex_core.journal.reading import SQL
from emelex_core.journal.records import JournalledTurn

FAILED_TURN: Final = "failed_turn"
FAILED_AFTER_CHECKPOINT: Final = "failed_turn_after_checkpoint"
UNANSWERED_INPUT: Final = "unanswered_input"


def batch_events(turn: JournalledTurn) -> tuple[Event, ...]:
    """A batch as it enters the history: its messages, the results in the calls' order, their audits.

    Raises: Corrupt without a batch, or for a call that has no result yet.
    """
    if turn.batch is None:
        raise Corrupt(f"turn {turn.turn_id} has no batch under way")
    results: list[Event] = []
    audits: list[Event] = []
    for call in turn.batch.calls:
        if call.result is None:
            raise Corrupt(f"turn {turn.turn_id}: call {call.call_id} is {call.state}, and has no result")
        results.append(call.result)
        audits += call.audits
    return (*turn.batch.messages, *results, *audits)


def closing_events(turn: JournalledTurn, diagnostic: str) -> tuple[Event, ...]:
    """What stands in the history of a turn that failed: an input that nothing else keeps, and the diagnostic.

    The input is an audit event, so that a person finds their words again and no model takes them for a question.
    """
    label = FAILED_AFTER_CHECKPOINT if turn.checkpoints else FAILED_TURN
    failure = Event(kind=EventKind.ERROR, parts=(TextPart(text=diagnostic),), label=label)
    if turn.checkpoints:
        return (failure,)
    return (Event(kind=EventKind.AUDIT, parts=turn.input.parts, label=UNANSWERED_INPUT), failure)


def close_batch(transaction: Transaction, *, turn: JournalledTurn, count: int, size: int) -> None:
    """Remove a batch's journal in the transaction that appended its `count` events. Raises: Corrupt."""
    place: dict[str, Value] = {"session_id": turn.session_id}
    calls = () if turn.batch is None else turn.batch.calls
    cleared = transaction.run(SQL["clear_calls"], place)
    removed = transaction.run(SQL["clear_batch"], place)
    counted = transaction.run(SQL["count_checkpoint"], {**place, "turn_id": turn.turn_id, "before": turn.checkpoints})
    if (cleared, removed, counted) != (len(calls), 1, 1):
        raise Corrupt(f"the journal of turn {turn.turn_id} changed while its batch was published")
    noted: dict[str, Value] = {"ordinal": turn.checkpoints + 1, "count": count, "bytes": size}
    transaction.run(SQL["note_checkpoint"], {**place, **noted})


def close_turn(transaction: Transaction, *, turn: JournalledTurn, checkpoints: int | None = None) -> None:
    """End a turn in the transaction that appended its last events. Raises: Corrupt while a batch is open.

    `checkpoints` is how many there are by now, where the same transaction has added one.
    """
    values: dict[str, Value] = {
        "session_id": turn.session_id,
        "turn_id": turn.turn_id,
        "checkpoints": turn.checkpoints if checkpoints is None else checkpoints,
    }
    if not transaction.run(SQL["close_turn"], values):
        raise Corrupt(f"turn {turn.turn_id} is not where its journal's reader left it")
