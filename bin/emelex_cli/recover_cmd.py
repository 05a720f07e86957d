"""`emelex memory sessions recover`: close the turn of a Session that was interrupted (behaviours 94 to 101, 162)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_core.clock import iso

if TYPE_CHECKING:
    from emelex_core.journal.records import RecoveredTurn

_WORDS: Final = {
    "completed": "its result stands as it was",
    "unknown_effect": "it had started; whether it took effect is unknown",
    "not_executed": "it had not started, and was not executed",
}


def recover(call: Call, *, session: str, everywhere: bool = False, accept_unknown_effects: bool = False) -> int:
    """Close an interrupted turn without running anything, and say how each call stands.

    Raises: UncertainToolInvocations while unknown effects are not accepted; Invalid when nothing was interrupted.
    """
    with call.writing() as store:
        found = call.session(store, session, everywhere=everywhere)
        place = found.workspace_path if everywhere else call.directory
        closed = store.recover_session(found.id, place, accept_unknown_effects=accept_unknown_effects)
    tell(call, closed)
    return 0


def tell(call: Call, closed: RecoveredTurn) -> None:
    """Say what became of an interrupted turn."""
    if call.out.json:
        call.out.record(_shape(closed), now=True)
        return
    begun = shapes.moment(closed.started_at)
    call.out.line(f"recovered {closed.session_id}: the turn of {begun} UTC is closed as failed; nothing was run")
    for one in closed.calls:
        call.out.line(f"  {shapes.short(one.name, 40)} ({one.call_id}): {_WORDS[one.status]}")
    call.out.line(f'  it began with "{shapes.short(closed.input.text, 120)}"')


def _shape(closed: RecoveredTurn) -> dict[str, Any]:
    """The turn as JSON: `recovered_tools` where a batch of calls was under way, else `recovered_turn`."""
    turn = {
        "type": "recovered_tools" if closed.calls else "recovered_turn",
        "session": closed.session_id,
        "turn_id": closed.turn_id,
        "started_at": iso(closed.started_at),
        "label": closed.label,
        "checkpoints": closed.checkpoints,
        "first_sequence": closed.first_sequence,
        "last_sequence": closed.last_sequence,
    }
    if not closed.calls:
        return turn
    calls = [{"call_id": one.call_id, "name": one.name, "status": one.status} for one in closed.calls]
    counts = {"exact": closed.exact, "uncertain": closed.uncertain, "not_executed": closed.not_executed}
    return {**turn, **counts, "calls": calls}
