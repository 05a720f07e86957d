"""Interrupted turns, closed without running anything (behaviours 94 to 101)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.archive.check import check
from emelex_core.archive.records import Weight
from emelex_core.errors import Corrupt, Invalid, NeedsAcceptance, TurnUnfinished, UncertainToolInvocations
from emelex_core.events import EventKind
from emelex_core.journal import recovery
from emelex_core.journal.states import CallState, TurnState
from emelex_core.journal.turns import Journal
from journals import HELLO, Call, calls, proposal, result, told
from stores import edit, rows, sound

Interrupt = Callable[..., None]


@pytest.fixture
def interrupt(store: MemoryStore, session: Session, workspace: Path) -> Interrupt:
    """Leave a turn as a crash leaves it: so many checkpoints, then calls in these states, or none."""

    def leave(*states: CallState, checkpoints: int = 0) -> None:
        with store.claim_session(session.id, workspace) as lease:
            lease.prove()
            journal = Journal(lease, clock=store.clock)
            journal.begin(HELLO)
            for number in range(1, checkpoints + 1):
                (call,) = calls(1, first=100 * number)
                journal.plan((HELLO, proposal(call)) if number == 1 else (proposal(call),), (call,))
                journal.start(call)
                journal.complete(call, *result(call))
                journal.checkpoint()
            if not states:
                return
            batch = calls(len(states))
            journal.plan((proposal(*batch),) if checkpoints else (HELLO, proposal(*batch)), batch)
            for call, state in zip(batch, states, strict=True):
                if state is not CallState.PLANNED:
                    journal.start(call)
                if state is CallState.COMPLETED:
                    journal.complete(call, *result(call, "exactly this"))

    return leave


def recover(store: MemoryStore, session: Session, workspace: Path, **flags: Any) -> Any:
    """Recover as the command does."""
    return store.recover_session(session.id, workspace, **flags)


def statuses(store: MemoryStore, session: Session) -> list[str]:
    """How the calls of the history stand."""
    return [gist for kind, _, gist in told(store, session.id) if kind == "tool"]


def test_a_turn_without_tools_is_closed_visibly(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """94: one audit, which keeps the person's words, and `failed_turn`."""
    interrupt()
    closed = recover(store, session, workspace)
    events = told(store, session.id)
    assert [(kind, label) for kind, label, _ in events] == [("audit", "unanswered_input"), ("error", "failed_turn")]
    assert events[0][2] == HELLO.text
    assert (closed.label, closed.calls, closed.input, closed.checkpoints) == ("failed_turn", (), HELLO, 0)
    assert (closed.first_sequence, closed.last_sequence) == (1, 2)
    assert store.interrupted_turn(session.id) is None


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_what_was_checkpointed_stays(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt, checkpoints: int
) -> None:
    """95: the messages are retained, `failed_turn_after_checkpoint` stands behind them."""
    interrupt(checkpoints=checkpoints)
    before = told(store, session.id)
    closed = recover(store, session, workspace)
    after = told(store, session.id)
    assert after[: len(before)] == before
    assert [(kind, label) for kind, label, _ in after[len(before) :]] == [("error", "failed_turn_after_checkpoint")]
    assert (closed.checkpoints, closed.calls) == (checkpoints, ())


def test_unknown_effects_need_acceptance(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """96: the calls are listed, the command is named, the Session is free again, and nothing is changed."""
    interrupt(CallState.STARTED, CallState.COMPLETED, CallState.STARTED)
    before = store.interrupted_turn(session.id)
    with pytest.raises(UncertainToolInvocations) as refused:
        recover(store, session, workspace)
    assert refused.value.calls == (("call-1", "shell"), ("call-3", "shell"))
    assert issubclass(UncertainToolInvocations, NeedsAcceptance)
    assert "call-1" in refused.value.message
    assert '{"n":1}' in refused.value.message
    assert f"recover {session.id} --accept-unknown-effects" in str(refused.value.hint)
    assert store.get_session(session.id).held_until is None
    assert store.interrupted_turn(session.id) == before


def test_each_call_is_told_as_it_is_known(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """97: exact 1, uncertain 1, not executed 1; the batch enters whole and the journal goes."""
    interrupt(CallState.COMPLETED, CallState.STARTED, CallState.PLANNED)
    closed = recover(store, session, workspace, accept_unknown_effects=True)
    assert (closed.exact, closed.uncertain, closed.not_executed) == (1, 1, 1)
    assert [call.status for call in closed.calls] == ["completed", "unknown_effect", "not_executed"]
    assert statuses(store, session) == ["completed", "unknown_effect", "not_executed"]
    events = list(store.iterate_events(store.get_session(session.id)))
    assert [event.kind for event in events[:2]] == [EventKind.USER, EventKind.ASSISTANT]
    assert "exactly this" in str(events[2].parts)
    assert (events[-1].kind, events[-1].label) == (EventKind.ERROR, "failed_turn_after_checkpoint")
    assert len({event.turn_id for event in events}) == 1
    assert rows(store.database.path, "SELECT count(*) FROM pending_tools") == [(0,)]
    assert sound(store.database.path)
    assert check(store).findings == ()


def test_a_model_hears_of_every_call(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """The next turn sees results for all calls; a call without one would be a broken protocol."""
    interrupt(CallState.STARTED, CallState.PLANNED, checkpoints=1)
    recover(store, session, workspace, accept_unknown_effects=True)
    with store.claim_session(session.id, workspace) as lease:
        replayed = lease.replay()
        journal = Journal(lease, clock=store.clock)
        journal.begin(HELLO)
        journal.finish((HELLO, Event.assistant("go on")))
    results = [event for event in replayed if event.kind is EventKind.TOOL]
    assert len(results) == 3
    assert "unknown" in str(results[1].parts)
    assert "not executed" in str(results[2].parts)


def test_an_open_approval_is_recorded_as_a_denial(store: MemoryStore, session: Session, workspace: Path) -> None:
    """99: also one that was given as a denial, and none for one that was granted and never used."""
    batch = calls(4)
    with store.claim_session(session.id, workspace) as lease:
        journal = Journal(lease, clock=store.clock)
        journal.begin(HELLO)
        journal.plan((HELLO, proposal(*batch)), batch)
        for call in batch[:3]:
            journal.ask(call, "may it?")
        journal.decide(batch[1], granted=False, reason="no")
        journal.decide(batch[2], granted=True)
    closed = recover(store, session, workspace)
    assert (closed.exact, closed.uncertain, closed.not_executed) == (0, 0, 4)
    denials = [(label, gist) for kind, label, gist in told(store, session.id) if kind == "approval"]
    assert [label for label, _ in denials] == ["approval_decided", "approval_decided"]
    assert all('"granted":false' in gist for _, gist in denials)
    assert ["call-1" in gist for _, gist in denials] == [True, False]


def test_nothing_interrupted_is_told(store: MemoryStore, session: Session, workspace: Path) -> None:
    """100."""
    with pytest.raises(Invalid, match="no interrupted turn"):
        recover(store, session, workspace)
    with pytest.raises(Invalid):
        recover(store, session, workspace, accept_unknown_effects=True)
    assert store.get_session(session.id).held_until is None


DAMAGE = {
    "the input": "UPDATE active_turns SET input = x'7b7b'",
    "the input's form": "UPDATE active_turns SET input = x'7b7d'",
    "the arguments": "UPDATE pending_tools SET arguments = x'7b' WHERE ordinal = 0",
    "the result": "UPDATE pending_tools SET result = x'5b7b7d5d' WHERE ordinal = 1",
    "the result's kind": "UPDATE pending_tools SET result = x'5b5d' WHERE ordinal = 1",
    "the messages": "UPDATE pending_batches SET messages = x'5b226b225d'",
    "a missing call": "DELETE FROM pending_tools WHERE ordinal = 0",
    "a missing batch": "DELETE FROM pending_batches",
    "the checkpoints": "UPDATE active_turns SET checkpoint_count = 3",
}


@pytest.mark.parametrize("sql", DAMAGE.values(), ids=DAMAGE)
def test_a_journal_that_contradicts_itself_is_refused(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt, sql: str
) -> None:
    """101: an error that names Session and turn, the Session free again, the journal and the history untouched."""
    interrupt(CallState.PLANNED, CallState.COMPLETED)
    edit(store.database.path, sql)
    before = rows(store.database.path, "SELECT * FROM pending_tools")
    with pytest.raises(Corrupt, match=session.id):
        recover(store, session, workspace, accept_unknown_effects=True)
    assert store.get_session(session.id).held_until is None
    assert rows(store.database.path, "SELECT * FROM pending_tools") == before
    assert told(store, session.id) == []
    assert [finding.area for finding in check(store).findings if finding.weight is Weight.DAMAGE] == ["journal"]


def test_unknown_effects_are_accepted_all_at_once(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """98: once they are written down no flag is needed any more, wherever the recovery was cut off."""
    interrupt(CallState.STARTED, CallState.STARTED, CallState.PLANNED)
    with store.claim_session(session.id, workspace) as lease:
        lease.prove()
        turn = store.interrupted_turn(session.id)
        assert turn is not None
        recovery._accept(lease, turn)
    half = store.interrupted_turn(session.id)
    assert half is not None
    assert (half.uncertain, half.state) == ((), TurnState.BATCHED)
    closed = recover(store, session, workspace)
    assert [call.status for call in closed.calls] == ["unknown_effect", "unknown_effect", "not_executed"]


def test_a_claim_is_allowed_beside_an_interrupted_turn(
    store: MemoryStore, session: Session, workspace: Path, interrupt: Interrupt
) -> None:
    """A dead owner's Session can be claimed and read; it cannot be written to until the turn is closed."""
    interrupt(CallState.STARTED)
    with store.claim_session(session.id, workspace) as lease:
        assert len(lease.replay()) == 0
        with pytest.raises(TurnUnfinished):
            lease.append_turn([Event.user("x")])
        with pytest.raises(TurnUnfinished):
            Journal(lease, clock=store.clock).begin(HELLO)


def test_a_long_argument_is_shown_in_part(store: MemoryStore, session: Session, workspace: Path) -> None:
    """The list stays readable; the whole call is in the journal."""
    call = Call("call-1", arguments={"command": "x" * 5_000})
    with store.claim_session(session.id, workspace) as lease:
        journal = Journal(lease, clock=store.clock)
        journal.begin(HELLO)
        journal.plan((HELLO, proposal(call)), (call,))
        journal.start(call)
    with pytest.raises(UncertainToolInvocations) as refused:
        recover(store, session, workspace)
    assert len(refused.value.message) < 500
