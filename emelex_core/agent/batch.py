"""One batch of calls: planned whole, run in order, and part of the history whole or not at all.

The module owns these invariants:

- Nothing runs before the batch is planned, nothing runs that was refused or denied, and nothing runs twice.
- As long as nothing started, whatever goes wrong leaves no trace of the batch (behaviours 78 and 82).
- Once something started, every call gets a result: its own, "not executed", or an unknown effect; the batch is
  checkpointed, and only then the error goes on (behaviours 79, 81 and 83).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from emelex_core import limits
from emelex_core.agent import audits
from emelex_core.agent.approvals import denial, question
from emelex_core.agent.budget import TurnBudget
from emelex_core.agent.calls import (
    ApprovalDecision,
    ApprovalRequest,
    Approve,
    Effect,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
)
from emelex_core.agent.delivery import Delivery, Ledger
from emelex_core.agent.notices import ApprovalAsked, ApprovalDecided, ToolFinished, ToolProposed, ToolStarted
from emelex_core.agent.proposals import Planned
from emelex_core.agent.waiting import unless_cancelled
from emelex_core.agent.wording import shortened, visible
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import Cancelled, EmelexError, ToolError, ToolFailed
from emelex_core.events import Event, ToolResultPart

COMPLETED: Final = "completed"
NOT_EXECUTED: Final = "not_executed"
UNKNOWN_EFFECT: Final = "unknown_effect"

_ERROR_BYTES_MAX: Final = 4 * limits.KIB
_NOT_REACHED: Final = "The call was not executed, because the turn was stopped before it."


class Batch:
    """The calls of one model round."""

    def __init__(
        self,
        planned: Sequence[Planned],
        *,
        ledger: Ledger,
        delivery: Delivery,
        budget: TurnBudget,
        approve: Approve,
        asks: frozenset[Effect],
        cancel: CancelToken,
    ) -> None:
        self._planned = tuple(planned)
        self._ledger = ledger
        self._delivery = delivery
        self._budget = budget
        self._approve = approve
        self._asks = asks
        self._cancel = cancel
        self._started = False
        self._results: list[Event] = []

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in the model's order."""
        return tuple(item.call for item in self._planned)

    async def run(self, messages: tuple[Event, ...]) -> tuple[tuple[Event, ...], Exception | None]:
        """Run the batch and checkpoint it; return the results in order, and the error that stopped it midway.

        Raises: what went wrong before anything started, and whatever the journal raises.
        """
        await self._ledger.plan(messages, self.calls)
        for call in self.calls:
            await self._delivery.tell(ToolProposed(call=call))
        stopped: Exception | None = None
        try:
            for item in self._planned:
                await self._settle(item)
        except Exception as error:
            if not self._started or self._ledger.broken:
                raise
            stopped = error
            await self._close()
        await self._ledger.checkpoint()
        return tuple(self._results), stopped

    async def _settle(self, item: Planned) -> None:
        """Take one call to its result."""
        if self._cancel.cancelled:
            raise Cancelled("the turn was cancelled")
        if item.tool is None:
            return await self._complete(item.call, _refused(item.call, item.refusal or ""))
        trail: list[Event] = []
        try:
            request = question(item.tool, item.call, self._asks)
        except ToolError as error:
            # The tool cannot even say what the call would do, so nothing of it runs.
            return await self._complete(item.call, _refused(item.call, shortened(error.message, _ERROR_BYTES_MAX)))
        if request is not None:
            decision = await self._decided(request, trail)
            if not decision.granted:
                return await self._complete(item.call, _refused(item.call, denial(decision)), *trail)
        return await self._invoke(item.tool, item.call, trail, approved=request is not None)

    async def _decided(self, request: ApprovalRequest, trail: list[Event]) -> ApprovalDecision:
        await self._ledger.ask(request)
        trail.append(audits.approval_asked(request))
        await self._delivery.tell(ApprovalAsked(request=request))
        asking = _ask(self._approve, request)
        decision = await unless_cancelled(asking, self._cancel, what="the approval")
        kept = ApprovalDecision(granted=decision.granted is True, reason=shortened(visible(decision.reason), 1024))
        await self._ledger.decide(request, kept)
        trail.append(audits.approval_decided(request, kept))
        await self._delivery.tell(ApprovalDecided(request=request, decision=kept))
        return kept

    async def _invoke(self, tool: Tool, call: ToolCall, trail: list[Event], *, approved: bool) -> None:
        await self._delivery.tell(ToolStarted(call=call))
        if self._cancel.cancelled:
            raise Cancelled("the turn was cancelled")
        await self._ledger.start(call)
        self._started = True
        trail.append(audits.tool_started(call, tool.effect))
        context = ToolContext(
            cancel=self._cancel, approved=approved, output_bytes_max=max(self._budget.output_bytes_left, 0)
        )
        try:
            outcome = await tool.run(call.arguments, context)
            text = self._budget.take_output(outcome.text)
        except ToolError as error:
            outcome = ToolOutcome(text=error.message, is_error=True)
            text = self._budget.take_output(shortened(error.message, _ERROR_BYTES_MAX))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, its call gets a result before the turn ends
            await self._complete(call, _unknown(call, error), *trail)
            _give_up(call, error)
        result = Event.tool(call.call_id, text, is_error=outcome.is_error, exit_code=outcome.exit_code)
        await self._complete(call, result, *trail)

    async def _complete(self, call: ToolCall, result: Event, *trail: Event) -> None:
        (part,) = result.parts
        assert isinstance(part, ToolResultPart)
        closing = (*trail, audits.tool_finished(call, part))
        await self._ledger.complete(call, result, closing)
        self._budget.add(result, *closing)
        self._results.append(result)
        await self._delivery.tell(ToolFinished(call=call, result=result))

    async def _close(self) -> None:
        """Give every call that is still without one a result."""
        for item in self._planned[len(self._results) :]:
            result = Event.tool(item.call.call_id, _NOT_REACHED, is_error=True, status=NOT_EXECUTED)
            (part,) = result.parts
            assert isinstance(part, ToolResultPart)
            closing = audits.tool_finished(item.call, part)
            await self._ledger.complete(item.call, result, (closing,))
            self._budget.add(result, closing)
            self._results.append(result)
            await self._delivery.tell_at_the_end(ToolFinished(call=item.call, result=result))


async def _ask(approve: Approve, request: ApprovalRequest) -> ApprovalDecision:
    return await approve(request)


def _refused(call: ToolCall, words: str) -> Event:
    return Event.tool(call.call_id, words, is_error=True, status=NOT_EXECUTED)


def _unknown(call: ToolCall, error: Exception) -> Event:
    words = error.message if isinstance(error, EmelexError) else f"{type(error).__name__}: {error}"
    text = f"The tool broke while it ran. Its effect is unknown; it may have happened. {visible(words)}"
    return Event.tool(call.call_id, shortened(text, _ERROR_BYTES_MAX), is_error=True, status=UNKNOWN_EFFECT)


def _give_up(call: ToolCall, error: Exception) -> NoReturn:
    if isinstance(error, Cancelled):
        raise error
    words = error.message if isinstance(error, EmelexError) else f"{type(error).__name__}: {error}"
    raise ToolFailed(f"the tool {call.name} broke: {shortened(visible(words), 1024)}", tool=call.name) from error
