"""`AgentSession`: a model, tools and an exact history, one turn after another.

The module owns these invariants:

- The history is exactly what was committed: a batch of calls enters it whole with its results, a turn that fails before
  its first checkpoint leaves it as it was (behaviours 76 and 77).
- Each turn ends in one of three ways: `finish`, `fail`, or poisoned. It is poisoned from before its first wait until it
  is known to be at an end, so that a future that is dropped, or a journal that fails, stops every later turn
  (behaviour 85).
- No tool runs whose answer the model could not be told: that the next round fits is checked first, where the model
  can say so.
- A model is asked at most `rounds_max` times; proposals of the last round never run (behaviour 84).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from emelex_core import limits
from emelex_core.agent import audits
from emelex_core.agent.approvals import ASKS_DEFAULT, deny
from emelex_core.agent.batch import Batch
from emelex_core.agent.budget import TurnBudget, check_input
from emelex_core.agent.calls import Approve, Effect, Tool, ToolDeclaration
from emelex_core.agent.delivery import Delivery, Ledger, answer
from emelex_core.agent.fitting import RESULT_BYTES_MIN
from emelex_core.agent.notices import Checkpointed, EventSink, TurnCompleted, TurnFailed, TurnOutcome, TurnStarted
from emelex_core.agent.proposals import Planned, ToolBox
from emelex_core.agent.rounds import AgentModel, ModelReply, ModelRequest, RoomChecked, Usage
from emelex_core.agent.turn_journal import NullJournal, TurnJournal
from emelex_core.agent.wording import shortened, visible
from emelex_core.engine.cancel import CancelToken
from emelex_core.engine.ports import FinishReason, Sampling
from emelex_core.errors import Cancelled, EmelexError, Invalid, OutputRejected, Poisoned
from emelex_core.events import ROLES, Event, EventKind, Part, ReasoningPart, TextPart, ToolCallPart

OUTPUT_TOKENS_MAX: Final = limits.OUTPUT_TOKENS_MAX

_UNSEEN: Final = "none"


class AgentSession:
    """A conversation with a model that may call tools. One turn runs at a time.

    `history` are earlier events in order, as replay gives them; what no model sees is left out of it. `approve` is
    asked before each call whose effect is in `asks`, and before each that its tool is cautious about.

    Raises: Invalid for tools with the same name or a schema that is not bounded, and for bounds out of their range.
    """

    def __init__(
        self,
        model: AgentModel,
        tools: Sequence[Tool] = (),
        *,
        system: str,
        history: Sequence[Event] = (),
        approve: Approve = deny,
        asks: frozenset[Effect] = ASKS_DEFAULT,
        rounds_max: int = limits.AGENT_ROUNDS,
        output_tokens_max: int = OUTPUT_TOKENS_MAX,
        sampling: Sampling | None = None,
    ) -> None:
        if not 1 <= rounds_max <= limits.AGENT_ROUNDS_MAX:
            raise Invalid(f"{rounds_max} rounds a turn; 1 to {limits.AGENT_ROUNDS_MAX} can be asked for")
        self._model = model
        self._box = ToolBox(tools)
        self._system = system
        self._history = tuple(event for event in history if ROLES[event.kind] != _UNSEEN)
        self._approve = approve
        self._asks = asks
        self._rounds_max = rounds_max
        self._output_tokens_max = output_tokens_max
        self._sampling = Sampling() if sampling is None else sampling
        self._poisoned = False

    @property
    def history(self) -> tuple[Event, ...]:
        """What the model sees before the next input, in order."""
        return self._history

    @property
    def poisoned(self) -> bool:
        """Whether a turn runs, or was left midway."""
        return self._poisoned

    @property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """All registered tools as the model is told of them."""
        return tuple(tool.declaration for tool in self._box.tools.values())

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the tools that may be called."""
        return self._box.enabled

    def enable(self, names: Sequence[str]) -> None:
        """Allow exactly these of the registered tools from the next round on; nothing is stored (behaviours 89 to 92).

        Raises: Invalid naming a tool that is not registered; the old subset then stays.
        """
        self._box.enable(names)

    async def run(
        self,
        message: Event,
        *,
        sink: EventSink | None = None,
        journal: TurnJournal | None = None,
        cancel: CancelToken | None = None,
    ) -> TurnOutcome:
        """Run one turn from a user's words to an answer.

        Raises: Invalid for an input that cannot open a turn, with nothing journalled; Poisoned after a turn that was
        left midway, or beside one that runs; Cancelled; EngineFailure, PermanentFailure and OutputRejected of the
        model; ToolFailed when a tool broke; what the sink or the journal raises. After all but the journal's errors the
        turn is closed and the session can go on.
        """
        check_input(message)
        if self._poisoned:
            raise Poisoned("a turn runs or was left midway; resume the Session to see what is durable")
        cancel = CancelToken() if cancel is None else cancel
        if cancel.cancelled:
            raise Cancelled("the turn was cancelled before it began")
        turn = _Turn(message, Ledger(NullJournal() if journal is None else journal), Delivery(sink), cancel)
        self._poisoned = True
        await turn.ledger.begin(message)
        try:
            outcome = await self._rounds(turn)
        except Exception as error:
            if not turn.ledger.broken:
                await self._fail(turn, error)
            raise
        self._poisoned = False
        await turn.delivery.tell(TurnCompleted(outcome=outcome))
        return outcome

    async def _rounds(self, turn: _Turn) -> TurnOutcome:
        """Ask and act until the model answers without proposing anything."""
        await turn.delivery.tell(TurnStarted(message=turn.message))
        while True:
            reply = await self._ask(turn)
            planned = self._box.plan(reply.calls)
            assistant = _assistant(reply, planned)
            if not planned:
                return await self._finish(turn, reply, assistant)
            if turn.rounds == self._rounds_max:
                raise OutputRejected(f"the model still proposed tools in round {turn.rounds}, the last of this turn")
            await self._act(turn, planned, assistant)

    async def _ask(self, turn: _Turn) -> ModelReply:
        if turn.cancel.cancelled:
            raise Cancelled("the turn was cancelled")
        turn.rounds += 1
        reply = await answer(self._model, self._request(turn.pending), turn.delivery, turn.cancel)
        turn.prompt_tokens += reply.usage.prompt_tokens
        turn.output_tokens += reply.usage.output_tokens
        if reply.note is not None and reply.note not in turn.notes:
            turn.notes.append(reply.note)
        return reply

    def _request(self, pending: Sequence[Event]) -> ModelRequest:
        """What a round is asked with, behind the history."""
        declared = self.declarations
        return ModelRequest(
            system=self._system,
            messages=(*self._history, *pending),
            tools=tuple(item for item in declared if item.name in self._box.enabled),
            declared=declared,
            output_tokens_max=self._output_tokens_max,
            sampling=self._sampling,
        )

    async def _require_room(self, messages: Sequence[Event], planned: Sequence[Planned]) -> None:
        """Raise PermanentFailure when the model could not be told what these calls answer, in the fewest words."""
        if isinstance(self._model, RoomChecked) and any(item.tool is not None for item in planned):
            least = "." * RESULT_BYTES_MIN
            results = (Event.tool(item.call.call_id, least) for item in planned)
            await self._model.require_room(self._request((*messages, *results)))

    async def _act(self, turn: _Turn, planned: tuple[Planned, ...], assistant: Event) -> None:
        """Run one batch; with its checkpoint it becomes history, whatever happened in it."""
        batch = Batch(
            planned,
            ledger=turn.ledger,
            delivery=turn.delivery,
            budget=turn.budget,
            approve=self._approve,
            asks=self._asks,
            cancel=turn.cancel,
        )
        turn.budget.reserve(assistant, batch.calls)
        turn.budget.add(assistant)
        messages = (*turn.pending, assistant)
        await self._require_room(messages, planned)
        results, stopped = await batch.run(messages)
        self._commit(turn, (*messages, *results))
        turn.checkpoints += 1
        if stopped is not None:
            raise stopped
        await turn.delivery.tell(Checkpointed(count=turn.checkpoints))

    async def _finish(self, turn: _Turn, reply: ModelReply, assistant: Event) -> TurnOutcome:
        usage = Usage(prompt_tokens=turn.prompt_tokens, output_tokens=turn.output_tokens)
        audit = audits.turn_completed(
            self._model.identity,
            rounds=turn.rounds,
            usage=usage,
            finish_reason=reply.finish_reason,
            notes=tuple(turn.notes),
        )
        turn.budget.add(assistant, audit)
        messages = (*turn.pending, assistant)
        await turn.ledger.finish(messages, (audit,))
        self._commit(turn, messages)
        return TurnOutcome(
            answer=assistant,
            messages=tuple(turn.added),
            rounds=turn.rounds,
            usage=usage,
            finish_reason=reply.finish_reason,
            notes=tuple(turn.notes),
        )

    def _commit(self, turn: _Turn, messages: tuple[Event, ...]) -> None:
        self._history += messages
        turn.added.extend(messages)
        turn.pending = ()

    async def _fail(self, turn: _Turn, error: Exception) -> None:
        """Close the turn with a diagnostic; from then on the session can go on."""
        kind = error.kind if isinstance(error, EmelexError) else type(error).__name__
        diagnostic = diagnostic_of(error)
        await turn.ledger.fail(diagnostic)
        self._poisoned = False
        await turn.delivery.tell_at_the_end(TurnFailed(kind=kind, diagnostic=diagnostic, checkpoints=turn.checkpoints))


class _Turn:
    """What one turn holds. `pending` are its messages that are not history yet: the input, until a first checkpoint."""

    def __init__(self, message: Event, ledger: Ledger, delivery: Delivery, cancel: CancelToken) -> None:
        self.message = message
        self.ledger = ledger
        self.delivery = delivery
        self.cancel = cancel
        self.budget = TurnBudget(message)
        self.pending: tuple[Event, ...] = (message,)
        self.added: list[Event] = []
        self.notes: list[str] = []
        self.rounds = 0
        self.checkpoints = 0
        self.prompt_tokens = 0
        self.output_tokens = 0


def diagnostic_of(error: Exception) -> str:
    """An error in one visible line of at most 4 KiB."""
    words = error.message if isinstance(error, EmelexError) else f"{type(error).__name__}: {error}"
    return shortened(visible(words) or type(error).__name__, limits.DIAGNOSTIC_BYTES_MAX)


def _assistant(reply: ModelReply, planned: tuple[Planned, ...]) -> Event:
    """The assistant's event of one round.

    Raises: OutputRejected for an answer that says nothing, and for proposals in an answer that was cut at its bound.
    """
    if planned and reply.finish_reason is FinishReason.LENGTH:
        raise OutputRejected("the model's proposals were cut at the bound on its output; nothing of them was run")
    if not planned and reply.finish_reason is FinishReason.TOOL_CALLS:
        raise OutputRejected("the model ended with a tool call that it did not make")
    if not planned and not reply.text.strip():
        raise OutputRejected("the model answered nothing")
    parts: list[Part] = []
    if reply.reasoning:
        parts.append(ReasoningPart(text=reply.reasoning))
    if reply.text:
        parts.append(TextPart(text=reply.text))
    for item in planned:
        call = item.call
        parts.append(ToolCallPart(call_id=call.call_id, name=call.name, arguments=call.arguments))
    return Event(kind=EventKind.ASSISTANT, parts=tuple(parts))
