"""What a turn that broke midway leaves behind, in words for a person: which call was not run, and the way back.

The module owns these invariants:

- A call is only said not to have run when its start was never told. A start is told before the journal has it, so of a
  call whose start was told nothing is claimed: the journal knows, and resuming tells.
- Every end of a chat that was not asked for names the way back, and speaks of the chat, never of the store's interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emelex_cli.output import one_line
from emelex_cli.shapes import short
from emelex_core.clock import iso
from emelex_core.errors import SessionBusy, StaleLease

if TYPE_CHECKING:
    from emelex_core.agent.ports import AgentEvent, ToolCall
    from emelex_core.errors import EmelexError

WAY_BACK: Final = "`emelex resume` goes on with what is stored"
_NAME_SHOWN: Final = 40


class Aftermath:
    """The calls of the turn that runs: the one that was asked about, and those that started and have not ended."""

    def __init__(self) -> None:
        self._asked: ToolCall | None = None
        self._started: dict[str, ToolCall] = {}

    def hear(self, event: AgentEvent) -> None:
        """Follow one event."""
        from emelex_core.agent import ports

        match event:
            case ports.TurnStarted():
                self._asked = None
                self._started.clear()
            case ports.ApprovalAsked(request=request):
                self._asked = request.call
            case ports.ToolStarted(call=call):
                self._asked = None
                self._started[call.call_id] = call
            case ports.ToolFinished(call=call):
                self._asked = None
                self._started.pop(call.call_id, None)
            case _:
                return

    def explain(self, error: EmelexError) -> None:
        """Make the error that ends a chat one message: what failed, how the calls stand, the way back."""
        if isinstance(error, StaleLease):
            error.message = "this chat lost its Session: its hold ran out, or another process took it"
        if self._asked is not None:
            error.message += f"; the call of {_name(self._asked)} that was asked about was not run"
        elif self._started:
            names = ", ".join(map(_name, self._started.values()))
            error.message += f"; {names} was about to start, and resuming tells whether it did"
        error.hint = WAY_BACK


def explain_busy(error: SessionBusy, session_id: str) -> None:
    """Say of a Session that somebody holds until when, and what to do."""
    error.message = (
        f"Session {session_id[:8]} is in use by another process, until {iso(error.held_until)} unless it goes on longer"
    )
    error.hint = "end the other chat or worker, or wait until then; then `emelex resume`"


def _name(call: ToolCall) -> str:
    return one_line(short(call.name, _NAME_SHOWN))
