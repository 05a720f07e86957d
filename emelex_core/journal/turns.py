"""The journal of one Session's turns, under its lease (behaviours 67 to 77; ADR 0017).

    turn  = begin, { batch }, ( finish | fail )
    batch = plan, { call }, checkpoint
    call  = [ ask, [ decide ] ], [ start ], complete

The module owns these invariants:

- Each verb is one small transaction that first proves lease, workspace and cursor as an append does; where a verb
  appends, its events and the journal's step commit together.
- The input is durable before the model is asked, the whole batch before its first tool, each start before its tool
  runs. A call is started at most once, and only as it was planned.
- A batch is given room for its worst case before anything of it runs, so that no result can be refused afterwards.
- A batch enters the history whole, with a result for every call, or not at all.

What Invalid is raised for was not written, and the turn stands as before. Corrupt says that caller and journal disagree
about where the turn stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from emelex_core import codec, faults, ids, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Transaction, Value
from emelex_core.errors import Corrupt, Invalid, TurnUnfinished
from emelex_core.events import Event, EventKind
from emelex_core.journal import checks
from emelex_core.journal.checks import Call
from emelex_core.journal.closing import batch_events, close_batch, close_turn, closing_events
from emelex_core.journal.reading import SQL, read
from emelex_core.journal.records import JournalledTurn
from emelex_core.journal.states import CallState
from emelex_core.journal.stored import encode_event, encode_events
from emelex_core.sessions import append
from emelex_core.sessions.append import AppendedTurn, PreparedTurn
from emelex_core.sessions.lease import SessionLease


class Journal:
    """The journal under one lease. Like the lease, not for two threads at once."""

    def __init__(self, lease: SessionLease, *, clock: Clock) -> None:
        """Journal under a lease that has replayed its Session; `clock` is the store's."""
        self._lease = lease
        self._clock = clock

    @property
    def session_id(self) -> str:
        """The Session whose turns these are."""
        return self._lease.session_id

    def current(self) -> JournalledTurn | None:
        """The turn that has begun and has not ended. Raises: Corrupt, StaleSessionLease."""
        with self._lease.reading() as transaction:
            return read(transaction, self.session_id)

    def check_input(self, message: Event) -> None:
        """Raise Invalid for an input that `begin` would refuse, with nothing written."""
        checks.input_payload(message)
        with self._lease.reading() as transaction:
            _require_cataloged(transaction, message)

    def begin(self, message: Event) -> str:
        """Journal a turn's input and return the turn's id.

        Raises: Invalid for the input or its media, TurnUnfinished beside another turn; as `SessionLease.writing`.
        """
        payload = checks.input_payload(message)
        turn_id = ids.ordered_id()
        with self._lease.writing() as transaction:
            _require_cataloged(transaction, message)
            values = {**self._at(), "turn_id": turn_id, "input": payload}
            if not transaction.run(SQL["begin"], values):
                raise TurnUnfinished(f"Session {self.session_id} has a turn that was not finished")
            faults.reach("journal.before_commit")
        faults.reach("turn.begun")
        return turn_id

    def plan(self, messages: Sequence[Event], calls: Sequence[Call]) -> None:
        """Journal a proposed batch whole: (input, assistant) in a turn's first one, (assistant,) later.

        Raises: Invalid for the calls, and when the turn has no room for the batch's worst case; Corrupt for messages
        that do not belong here.
        """
        checks.check_calls(calls)
        arguments = [checks.arguments_of(call) for call in calls]
        stored = encode_events(messages, what="batch")
        with self._lease.writing() as transaction:
            turn = self._turn(transaction)
            if turn.batch is not None:
                raise Corrupt(f"turn {turn.turn_id} has a batch under way")
            checks.check_messages(messages, input_payload=None if turn.checkpoints else turn.input_payload)
            checks.check_proposal(messages[-1], calls)
            size = sum(len(encode_event(message, what="batch")) for message in messages)
            room = checks.reserve(size, len(messages), sum(map(len, arguments)), len(calls))
            _require_room(turn, room.bytes, room.events)
            batch: dict[str, Value] = {
                "messages": stored,
                "reserved_bytes": room.bytes,
                "reserved_events": room.events,
            }
            transaction.run(SQL["plan_batch"], {**self._at(), **batch})
            planned = zip(calls, arguments, strict=True)
            transaction.run_many(
                SQL["plan_call"],
                [{**self._names(call, data), "ordinal": number} for number, (call, data) in enumerate(planned)],
            )
            faults.reach("journal.before_commit")
        faults.reach("turn.planned")

    def ask(self, call: Call, request: str) -> None:
        """Journal that a planned call waits for an approval. Raises: Invalid for the text, Corrupt for the call."""
        codec.check_line(request, what="approval request", bytes_max=limits.APPROVAL_TEXT_BYTES_MAX)
        with self._lease.writing() as transaction:
            if not transaction.run(SQL["ask"], {**self._at(), **self._names(call), "request": request}):
                raise self._misplaced(transaction, call, CallState.PLANNED)
            faults.reach("journal.before_commit")
        faults.reach("turn.asked")

    def decide(self, call: Call, *, granted: bool, reason: str = "") -> None:
        """Journal the answer to an open approval; it holds once, for this call. Raises: Invalid, Corrupt."""
        codec.check_text(reason, what="reason", bytes_max=limits.APPROVAL_TEXT_BYTES_MAX)
        decision = {"decision": "granted" if granted else "denied", "reason": reason or None}
        with self._lease.writing() as transaction:
            if not transaction.run(SQL["decide"], {**self._at(), "call_id": call.call_id, **decision}):
                raise self._misplaced(transaction, call, CallState.PLANNED)
            faults.reach("journal.before_commit")
        faults.reach("turn.decided")

    def start(self, call: Call) -> None:
        """Journal that a planned call is about to run; it runs once this returned.

        Raises: Corrupt for a call that is not planned, was planned otherwise, or was not granted (behaviour 72).
        """
        names = self._names(call)
        with self._lease.writing() as transaction:
            if not transaction.run(SQL["start"], {**self._at(), **names}):
                raise self._misplaced(transaction, call, CallState.PLANNED)
            faults.reach("journal.before_commit")
        faults.reach("tool.started")

    def complete(self, call: Call, result: Event, audits: Sequence[Event]) -> None:
        """Journal a call's result: from `planned` not_executed, from `started` completed or unknown_effect.

        Raises: Invalid for the result (behaviour 73), Corrupt for a call in another state.
        """
        stored, state = checks.completion(call, result, audits)
        names = self._names(call)
        with self._lease.writing() as transaction:
            if not transaction.run(SQL["complete"], {**names, "state": state, "result": stored}):
                raise self._misplaced(transaction, call, state)
            self._require_kept_room(transaction, call)
            faults.reach("journal.before_commit")
        faults.reach("tool.completed")

    def checkpoint(self) -> AppendedTurn:
        """Append the batch, its results and their audits, and remove its journal, in one transaction (behaviour 74).

        Raises: Corrupt without a batch whose calls are all completed.
        """
        turn = self._read()
        prepared = append.prepare(batch_events(turn))
        close = partial(close_batch, turn=turn, count=len(prepared), size=append.size_of(prepared))
        appended = self._append(prepared, close)
        faults.reach("turn.checkpointed")
        return appended

    def finish(self, messages: Sequence[Event], audits: Sequence[Event] = ()) -> AppendedTurn:
        """Append the remaining messages and the audits and end the turn, in one transaction (behaviour 75).

        `messages` is (input, assistant) when nothing was checkpointed, else (assistant,). Raises: Invalid for an
        answer that does not fit the turn; the turn may then be failed. Corrupt beside an open batch.
        """
        turn = self._read()
        checks.check_messages(messages, input_payload=None if turn.checkpoints else turn.input_payload)
        if any(audit.kind not in (EventKind.AUDIT, EventKind.APPROVAL) for audit in audits):
            raise Invalid("only audit and approval events may stand behind a turn's messages")
        for event in (*messages, *audits):
            encode_event(event, what="answer")
        prepared = append.prepare((*messages, *audits))
        _require_room(turn, append.size_of(prepared), len(prepared))
        appended = self._append(prepared, partial(close_turn, turn=turn))
        faults.reach("turn.finished")
        return appended

    def fail(self, diagnostic: str) -> AppendedTurn:
        """End the turn with a diagnostic; a batch of which nothing has run is dropped (behaviours 76 and 77).

        Raises: Invalid for the diagnostic; Corrupt for a batch of which something has run: that is checkpointed first.
        """
        codec.check_line(diagnostic, what="diagnostic", bytes_max=limits.DIAGNOSTIC_BYTES_MAX)
        turn = self._read()
        prepared = append.prepare(closing_events(turn, diagnostic))

        def close(transaction: Transaction) -> None:
            if turn.batch is not None:
                transaction.run(SQL["drop_calls"], self._place())
                if not transaction.run(SQL["drop_unstarted"], self._place()):
                    raise Corrupt(f"turn {turn.turn_id} has calls that ran: complete and checkpoint them first")
            close_turn(transaction, turn=turn)

        appended = self._append(prepared, close)
        faults.reach("turn.failed")
        return appended

    def _append(self, prepared: PreparedTurn, also: Callable[[Transaction], None]) -> AppendedTurn:
        return self._lease.append_prepared([prepared], also=also, from_journal=True)[0]

    def _read(self) -> JournalledTurn:
        with self._lease.reading() as transaction:
            return self._turn(transaction)

    def _turn(self, transaction: Transaction) -> JournalledTurn:
        turn = read(transaction, self.session_id)
        if turn is None:
            raise Corrupt(f"Session {self.session_id} has no turn under way")
        return turn

    def _place(self) -> dict[str, Value]:
        return {"session_id": self.session_id}

    def _at(self) -> dict[str, Value]:
        return {**self._place(), "now": self._clock()}

    def _names(self, call: Call, arguments: bytes | None = None) -> dict[str, Value]:
        data = checks.arguments_of(call) if arguments is None else arguments
        return {**self._place(), "call_id": call.call_id, "name": call.name, "arguments": data}

    def _require_kept_room(self, transaction: Transaction, call: Call) -> None:
        row = transaction.one(SQL["room"], self._place())
        if row is None or cast(int, row[1]) > cast(int, row[0]):
            raise Invalid(f"the result of call {call.call_id} is larger than what its batch was given room for")

    def _misplaced(self, transaction: Transaction, call: Call, expected: CallState) -> Corrupt:
        """Why a call could not take a step."""
        found = transaction.one(SQL["call"], self._names(call))
        what = f"call {call.call_id} of Session {self.session_id}"
        if found is None:
            return Corrupt(f"{what} was not planned")
        if not found[1]:
            return Corrupt(f"{what} was planned with another name or other arguments")
        if found[0] != expected:
            return Corrupt(f"{what} is {found[0]!s}, not {expected}")
        return Corrupt(f"{what}: its approval is {'not asked for' if found[2] is None else str(found[2])}")


def _require_room(turn: JournalledTurn, size: int, events: int) -> None:
    """Behaviour 69: what a turn may hold, counted with what its checkpoints hold already. Raises: Invalid."""
    if turn.spent_bytes + size > limits.AGENT_TURN_BYTES_MAX:
        raise Invalid(
            f"the turn would hold up to {turn.spent_bytes + size} bytes; at most {limits.AGENT_TURN_BYTES_MAX} are "
            "accepted"
        )
    if turn.spent_events + events > limits.AGENT_TURN_EVENTS_MAX:
        raise Invalid(
            f"the turn would hold up to {turn.spent_events + events} events; at most {limits.AGENT_TURN_EVENTS_MAX} "
            "are accepted"
        )


def _require_cataloged(transaction: Transaction, message: Event) -> None:
    """The input's media are stored, so that the batch which carries them cannot be refused for them later."""
    for ref in message.media:
        row = transaction.one(SQL["has_asset"], {"sha256": ref.sha256})
        if row is None or row[0] != ref.size:
            raise Invalid(f"asset {ref.sha256[:80]} is not stored here", hint="store its bytes first")
