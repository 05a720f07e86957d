"""The journal of a turn, verb by verb (behaviours 67 to 77)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import AssetRef, Event, MemoryStore, Session, SessionLease, limits
from emelex_core.errors import (
    Corrupt,
    Invalid,
    StaleReplay,
    StaleSessionLease,
    TurnUnfinished,
    WorkspaceMismatch,
)
from emelex_core.events import EventKind, MediaPart, TextPart, ToolResultPart
from emelex_core.journal.states import CallState, TurnState
from emelex_core.journal.turns import Journal
from journals import HELLO, Call, calls, finished, proposal, result, told
from pictures import picture
from stores import MINUTE, ManualClock, edit, rows, sound


def test_the_input_is_durable_before_anything_else(journal: Journal, store: MemoryStore, session: Session) -> None:
    """67: the input is in the journal, and not in the history."""
    turn_id = journal.begin(HELLO)
    turn = store.interrupted_turn(session.id)
    assert turn is not None
    assert (turn.turn_id, turn.input, turn.state, turn.checkpoints) == (turn_id, HELLO, TurnState.OPEN, 0)
    assert told(store, session.id) == []


@pytest.mark.parametrize(
    "message",
    [
        Event.assistant("I am not a user."),
        Event.context("notes", label="recall"),
        Event.user(""),
        Event.user(" \n\t "),
        Event.user("x" * (limits.AGENT_INPUT_BYTES_MAX + 1)),
        # Within the bound as text; a line break takes two bytes as JSON.
        Event.user("\n" * (limits.AGENT_INPUT_BYTES_MAX - 8) + "x"),
        Event.user("\ud800"),
    ],
    ids=["assistant", "context", "empty", "blank", "raw", "encoded", "surrogate"],
)
def test_an_input_that_cannot_open_a_turn_is_not_journalled(
    journal: Journal, store: MemoryStore, session: Session, message: Event
) -> None:
    """68."""
    with pytest.raises(Invalid):
        journal.begin(message)
    with pytest.raises(Invalid):
        journal.check_input(message)
    assert store.interrupted_turn(session.id) is None
    journal.begin(HELLO)


def test_an_input_names_stored_media_only(journal: Journal, store: MemoryStore, session: Session) -> None:
    """105: what the batch could not link later is refused at once; what is stored enters with the turn."""
    unknown = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=1)
    with pytest.raises(Invalid, match="not stored"):
        journal.begin(Event.user("look", unknown))
    ref = store.store_asset(picture())
    message = Event.user("look", ref)
    journal.begin(message)
    journal.finish((message, Event.assistant("I see.")))
    assert [linked.sha256 for linked in store.list_session_assets(session.id)] == [ref.sha256]


def test_one_turn_at_a_time(journal: Journal) -> None:
    """A turn that has begun ends before another begins."""
    journal.begin(HELLO)
    with pytest.raises(TurnUnfinished):
        journal.begin(HELLO)


def test_a_turn_with_two_batches_reads_as_one_history(
    journal: Journal, store: MemoryStore, session: Session, lease: SessionLease
) -> None:
    """74 and 75: each batch enters whole at its checkpoint, the answer closes the turn; no journal stays."""
    journal.begin(HELLO)
    first, second = calls(2)
    journal.plan((HELLO, proposal(first, second)), (first, second))
    for call in (first, second):
        journal.start(call)
        journal.complete(call, *result(call))
    assert told(store, session.id) == []
    appended = journal.checkpoint()
    assert (appended.first_sequence, appended.last_sequence) == (1, 6)
    turn = journal.current()
    assert turn is not None
    assert (turn.checkpoints, turn.spent_events, turn.batch) == (1, 6, None)
    (third,) = calls(1, first=3)
    journal.plan((proposal(third),), (third,))
    journal.start(third)
    journal.complete(third, *result(third, "42"))
    journal.checkpoint()
    closing = Event.audit("{}", label="turn_completed")
    journal.finish((Event.assistant("All weighed."),), (closing,))
    assert [kind for kind, _, _ in told(store, session.id)] == [
        "user", "assistant", "tool", "tool", "audit", "audit",
        "assistant", "tool", "audit",
        "assistant", "audit",
    ]  # fmt: skip
    assert journal.current() is None
    tables = ("active_turns", "pending_batches", "pending_tools", "pending_approvals", "turn_checkpoints")
    assert all(rows(store.database.path, f"SELECT count(*) FROM {table}") == [(0,)] for table in tables)
    assert lease.replay().tail.sequence == 11
    assert sound(store.database.path)


def test_the_first_batch_holds_the_input_and_later_ones_do_not(journal: Journal) -> None:
    """70: any other messages are Corrupt, before and after a checkpoint."""
    journal.begin(HELLO)
    (call,) = calls(1)
    answer = proposal(call)
    for messages in ((answer,), (HELLO,), (answer, HELLO), (HELLO, HELLO, answer), (Event.user("other"), answer)):
        with pytest.raises(Corrupt):
            journal.plan(messages, (call,))
    journal.plan((HELLO, answer), (call,))
    journal.complete(call, *result(call, status="not_executed"))
    journal.checkpoint()
    (second,) = calls(1, first=2)
    with pytest.raises(Corrupt):
        journal.plan((HELLO, proposal(second)), (second,))
    with pytest.raises(Corrupt):
        journal.finish((HELLO, Event.assistant("done")))
    journal.plan((proposal(second),), (second,))


def test_a_batch_is_what_its_message_proposes(journal: Journal) -> None:
    """72: names, arguments, ids and order are those of the assistant's message."""
    journal.begin(HELLO)
    first, second = calls(2)
    for planned in ((second, first), (first,), (first, Call("call-2", "other")), (first, Call("call-9"))):
        with pytest.raises(Corrupt):
            journal.plan((HELLO, proposal(first, second)), planned)


@pytest.mark.parametrize(
    "planned",
    [
        (Call("same"), Call("same")),
        (),
        calls(limits.AGENT_CALLS_PER_ROUND_MAX + 1),
        (Call(""),),
        (Call("x" * 257),),
        (Call("a", "n" * 257),),
        (Call("a", arguments={"x": "y" * limits.TURN_ARGUMENT_BYTES_MAX}),),
        (Call("a", arguments={"x": float("nan")}),),
    ],
    ids=["twice", "none", "17", "no id", "long id", "long name", "arguments", "nan"],
)
def test_calls_out_of_bounds_are_refused(journal: Journal, planned: tuple[Call, ...]) -> None:
    """71, K10 and the limits table; the turn goes on."""
    journal.begin(HELLO)
    with pytest.raises(Invalid):
        journal.plan((HELLO, proposal(*planned)), planned)
    journal.finish((HELLO, Event.assistant("no tools then")))


def test_a_batch_without_room_for_its_worst_case_is_refused(journal: Journal, store: MemoryStore) -> None:
    """69: 15 MiB and 2,048 events a turn, counted with what is checkpointed, before anything runs."""
    big = Event.user("y" * (limits.AGENT_INPUT_BYTES_MAX - 100))
    journal.begin(big)
    (call,) = calls(1)
    fits = proposal(call, text="z" * (3 * limits.MIB))
    journal.plan((big, fits), (call,))
    (reserved,) = rows(store.database.path, "SELECT reserved_bytes, reserved_events FROM pending_batches")
    assert reserved[0] < limits.AGENT_TURN_BYTES_MAX
    assert reserved[1] == 2 + limits.BATCH_EVENTS_PER_CALL
    journal.complete(call, *result(call, status="not_executed"))
    journal.checkpoint()
    (second,) = calls(1, first=2)
    with pytest.raises(Invalid, match="bytes"):
        journal.plan((proposal(second, text="z" * limits.MIB),), (second,))
    journal.plan((proposal(second),), (second,))


def test_a_turn_of_too_many_events_is_refused(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """69: the bound on events, with a small one so that the test is quick."""
    monkeypatch.setattr(limits, "AGENT_TURN_EVENTS_MAX", 12)
    journal.begin(HELLO)
    two = calls(2)
    journal.plan((HELLO, proposal(*two)), two)
    for call in two:
        journal.complete(call, *result(call, status="not_executed"))
    journal.checkpoint()
    more = calls(2, first=3)
    with pytest.raises(Invalid, match="events"):
        journal.plan((proposal(*more),), more)


def test_a_call_starts_once_and_as_it_was_planned(journal: Journal) -> None:
    """72: another name, other arguments, an unknown id, or a second start are Corrupt, and nothing is changed."""
    journal.begin(HELLO)
    (call,) = calls(1)
    with pytest.raises(Corrupt, match="not planned"):
        journal.start(call)
    journal.plan((HELLO, proposal(call)), (call,))
    for changed in (
        Call(call.call_id, "other", call.arguments),
        Call(call.call_id, call.name, {"n": 2}),
        Call(call.call_id, call.name, {"n": 1, "x": None}),
    ):
        with pytest.raises(Corrupt, match="another name or other arguments"):
            journal.start(changed)
    journal.start(call)
    with pytest.raises(Corrupt, match="started, not planned"):
        journal.start(call)
    journal.complete(call, *result(call))
    with pytest.raises(Corrupt, match="completed, not planned"):
        journal.start(call)
    with pytest.raises(Corrupt, match="completed, not started"):
        journal.complete(call, *result(call, "another"))


def test_what_was_asked_runs_only_when_it_was_granted(journal: Journal) -> None:
    """An approval that is open or denied stands in the way of a start; it is asked once, and answered once."""
    journal.begin(HELLO)
    granted, denied = calls(2)
    journal.plan((HELLO, proposal(granted, denied)), (granted, denied))
    for call in (granted, denied):
        with pytest.raises(Corrupt, match="not asked"):
            journal.decide(call, granted=True)
        journal.ask(call, f"run {call.call_id}?")
        with pytest.raises(Corrupt):
            journal.ask(call, "again?")
        with pytest.raises(Corrupt, match="asked"):
            journal.start(call)
    journal.decide(granted, granted=True)
    journal.decide(denied, granted=False, reason="not today")
    with pytest.raises(Corrupt):
        journal.decide(denied, granted=True)
    with pytest.raises(Corrupt, match="denied"):
        journal.start(denied)
    journal.start(granted)
    turn = journal.current()
    assert turn is not None
    assert turn.batch is not None
    assert [call.approval for call in turn.batch.calls] == ["granted", "denied"]


@pytest.mark.parametrize("text", ["", "   ", "x" * 4097])
def test_an_approval_request_is_a_short_text(journal: Journal, text: str) -> None:
    """The limits table: approval text of 4 KiB."""
    journal.begin(HELLO)
    (call,) = calls(1)
    journal.plan((HELLO, proposal(call)), (call,))
    with pytest.raises(Invalid):
        journal.ask(call, text)


CALL = Call("call-1", arguments={"n": 1})
IMAGE = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=1)


@pytest.mark.parametrize(
    ("event", "audits"),
    [
        (Event.user("done"), (finished(CALL),)),
        (Event.assistant("done"), (finished(CALL),)),
        (Event.tool("call-2", "done"), (finished(CALL),)),
        (
            Event(
                kind=EventKind.TOOL,
                parts=(ToolResultPart(call_id="call-1", text="a"), ToolResultPart(call_id="call-1", text="b")),
            ),
            (finished(CALL),),
        ),
        (
            Event(kind=EventKind.TOOL, parts=(ToolResultPart(call_id="call-1", text="a"), MediaPart(ref=IMAGE))),
            (finished(CALL),),
        ),
        (Event(kind=EventKind.TOOL, parts=(TextPart(text="a"),)), (finished(CALL),)),
        (Event.tool("call-1", "done", status="maybe"), (finished(CALL),)),
        (Event.tool("call-1", "done"), ()),
        (Event.tool("call-1", "done"), (finished(CALL),) * 5),
        (Event.tool("call-1", "done"), (finished(CALL), Event.audit("{}", label="later"))),
        (Event.tool("call-1", "done"), (finished(Call("call-2")),)),
        (Event.tool("call-1", "done"), (finished(CALL, "unknown_effect"),)),
        (Event.tool("call-1", "done"), (Event.audit("no JSON", label="tool_finished"),)),
        (Event.tool("call-1", "done"), (Event.audit("[]", label="tool_finished"),)),
        (Event.tool("call-1", "done"), (Event.user("x"), finished(CALL))),
    ],
    ids=[
        "user", "assistant", "another call", "two texts", "media", "a bare text", "status", "no audit", "five audits",
        "a later audit", "audit of another call", "audit of another status", "no JSON", "no object", "words",
    ],
)  # fmt: skip
def test_a_completion_is_one_text_with_its_audit(journal: Journal, event: Event, audits: tuple[Event, ...]) -> None:
    """73: and what is refused leaves the call started, so that its result can still be told."""
    journal.begin(HELLO)
    journal.plan((HELLO, proposal(CALL)), (CALL,))
    journal.start(CALL)
    with pytest.raises(Invalid):
        journal.complete(CALL, event, audits)
    turn = journal.current()
    assert turn is not None
    assert [call.state for call in turn.uncertain] == [CallState.STARTED]
    journal.complete(CALL, *result(CALL))


def test_a_result_says_whether_its_call_ran(journal: Journal) -> None:
    """Only what started is completed or of unknown effect; only what did not start is not executed."""
    journal.begin(HELLO)
    planned, started = calls(2)
    journal.plan((HELLO, proposal(planned, started)), (planned, started))
    journal.start(started)
    for status in ("completed", "unknown_effect"):
        with pytest.raises(Corrupt, match="planned, not started"):
            journal.complete(planned, *result(planned, status=status))
    with pytest.raises(Corrupt, match="started, not planned"):
        journal.complete(started, *result(started, status="not_executed"))
    journal.complete(started, *result(started, status="unknown_effect"))
    journal.complete(planned, *result(planned, status="not_executed"))


def test_a_result_keeps_to_the_room_of_its_batch(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, store: MemoryStore
) -> None:
    """69: what was reserved is what is accepted; the refused result is not half there."""
    monkeypatch.setattr(limits, "BATCH_BYTES_FIXED", 2_000)
    monkeypatch.setattr(limits, "BATCH_BYTES_PER_CALL", 100)
    journal.begin(HELLO)
    (call,) = calls(1)
    journal.plan((HELLO, proposal(call)), (call,))
    journal.start(call)
    with pytest.raises(Invalid, match="room"):
        journal.complete(call, *result(call, "x" * 3_000))
    assert rows(store.database.path, "SELECT state FROM pending_tools") == [("started",)]
    journal.complete(call, *result(call, "x" * 1_000))


def test_a_batch_without_all_results_is_not_published(journal: Journal, store: MemoryStore, session: Session) -> None:
    """74: and neither is a batch that is not there."""
    journal.begin(HELLO)
    with pytest.raises(Corrupt):
        journal.checkpoint()
    first, second = calls(2)
    journal.plan((HELLO, proposal(first, second)), (first, second))
    journal.start(first)
    journal.complete(first, *result(first))
    with pytest.raises(Corrupt, match="no result"):
        journal.checkpoint()
    with pytest.raises(Corrupt):
        journal.finish((HELLO, Event.assistant("done")))
    assert told(store, session.id) == []


def test_a_failure_before_a_checkpoint_leaves_no_message(
    journal: Journal, store: MemoryStore, session: Session, lease: SessionLease
) -> None:
    """76 and K1: the history is unchanged; what the person wrote stands in an audit event."""
    journal.begin(HELLO)
    journal.fail("the model failed")
    assert told(store, session.id) == [
        ("audit", "unanswered_input", HELLO.text),
        ("error", "failed_turn", "the model failed"),
    ]
    assert journal.current() is None
    assert [event for event in lease.replay() if event.kind is EventKind.USER] == []


def test_a_batch_of_which_nothing_ran_leaves_no_trace(journal: Journal, store: MemoryStore, session: Session) -> None:
    """78 and 82: planned, asked and refused calls go with the batch."""
    journal.begin(HELLO)
    planned, asked, refused = calls(3)
    journal.plan((HELLO, proposal(planned, asked, refused)), (planned, asked, refused))
    journal.ask(asked, "may it run?")
    journal.complete(refused, *result(refused, status="not_executed"))
    journal.fail("cancelled")
    assert [label for _, label, _ in told(store, session.id)] == ["unanswered_input", "failed_turn"]
    assert sound(store.database.path)


@pytest.mark.parametrize("complete", [False, True], ids=["started", "completed"])
def test_a_batch_of_which_something_ran_is_never_dropped(
    journal: Journal, store: MemoryStore, session: Session, complete: bool
) -> None:
    """79: a failure waits for its checkpoint."""
    journal.begin(HELLO)
    call, other = calls(2)
    journal.plan((HELLO, proposal(call, other)), (call, other))
    journal.start(call)
    if complete:
        journal.complete(call, *result(call))
    with pytest.raises(Corrupt, match="ran"):
        journal.fail("stop")
    assert told(store, session.id) == []
    turn = journal.current()
    assert turn is not None
    assert turn.batch is not None
    assert len(turn.batch.calls) == 2


def test_a_failure_after_a_checkpoint_keeps_it(journal: Journal, store: MemoryStore, session: Session) -> None:
    """77: the batch stays, the diagnostic comes behind it."""
    journal.begin(HELLO)
    (call,) = calls(1)
    journal.plan((HELLO, proposal(call)), (call,))
    journal.start(call)
    journal.complete(call, *result(call))
    journal.checkpoint()
    journal.fail("the model failed")
    assert [kind for kind, _, _ in told(store, session.id)] == ["user", "assistant", "tool", "audit", "error"]
    assert told(store, session.id)[-1] == ("error", "failed_turn_after_checkpoint", "the model failed")


@pytest.mark.parametrize("diagnostic", ["", "  ", "x" * 4097])
def test_a_diagnostic_is_a_short_text(journal: Journal, diagnostic: str) -> None:
    """134's bounds hold here, too; the turn can then be failed properly."""
    journal.begin(HELLO)
    with pytest.raises(Invalid):
        journal.fail(diagnostic)
    journal.fail("why")


def test_an_answer_that_does_not_fit_can_still_be_failed(journal: Journal, store: MemoryStore) -> None:
    """88: too large an answer is refused with nothing written, and the turn closed with a diagnostic."""
    journal.begin(HELLO)
    with pytest.raises(Invalid):
        journal.finish((HELLO, Event.assistant("x" * limits.EVENT_BYTES_MAX)))
    with pytest.raises(Invalid):
        journal.finish((HELLO, Event.assistant("fine")), (Event.user("no audit"),))
    journal.fail("the answer was too large")
    assert journal.current() is None
    journal.begin(HELLO)


@pytest.mark.parametrize("verb", ["plan", "checkpoint", "finish", "fail"])
def test_nothing_goes_on_without_a_turn(journal: Journal, verb: str) -> None:
    """The states of a turn: only `begin` leads out of idle."""
    (call,) = calls(1)
    acts: dict[str, Callable[[], object]] = {
        "plan": lambda: journal.plan((HELLO, proposal(call)), (call,)),
        "checkpoint": journal.checkpoint,
        "finish": lambda: journal.finish((HELLO, Event.assistant("x"))),
        "fail": lambda: journal.fail("x"),
    }
    with pytest.raises(Corrupt, match="no turn under way"):
        acts[verb]()


def test_an_ordinary_append_waits_for_the_turn(journal: Journal, lease: SessionLease) -> None:
    """While a turn is under way only its journal appends; afterwards everybody may again."""
    journal.begin(HELLO)
    with pytest.raises(TurnUnfinished) as refused:
        lease.append_turn([Event.user("between")])
    assert "sessions recover" in str(refused.value.hint)
    journal.finish((HELLO, Event.assistant("done")))
    lease.append_turn([Event.user("after")])


@pytest.mark.parametrize("verb", ["begin", "plan", "start", "complete", "checkpoint", "finish", "fail"])
def test_each_verb_proves_the_lease(
    journal: Journal, store: MemoryStore, session: Session, workspace: Path, clock: ManualClock, verb: str
) -> None:
    """23 and 40: a lease that was taken over writes nothing into the journal, whatever the verb."""
    acts = _up_to(journal, verb)
    clock.turn(6 * MINUTE)
    other = store.claim_session(session.id, workspace)
    before = _everything(store)
    with pytest.raises(StaleSessionLease):
        acts()
    assert _everything(store) == before
    other.release()


@pytest.mark.parametrize("verb", ["begin", "plan", "start", "complete", "checkpoint", "finish", "fail"])
def test_each_verb_proves_the_workspace(journal: Journal, store: MemoryStore, workspace: Path, verb: str) -> None:
    """23: a directory that was replaced is not worked in."""
    acts = _up_to(journal, verb)
    workspace.rename(workspace.with_name("moved"))
    workspace.mkdir()
    before = _everything(store)
    with pytest.raises(WorkspaceMismatch):
        acts()
    assert _everything(store) == before


def test_each_step_extends_the_lease(
    journal: Journal, store: MemoryStore, session: Session, clock: ManualClock
) -> None:
    """41: a turn that makes progress keeps its Session."""
    journal.begin(HELLO)
    (call,) = calls(1)
    clock.turn(3 * MINUTE)
    journal.plan((HELLO, proposal(call)), (call,))
    clock.turn(3 * MINUTE)
    journal.start(call)
    assert store.get_session(session.id).held_until == clock.now + limits.LEASE_MS


def test_a_tail_that_grew_behind_the_lease_stops_the_journal(
    journal: Journal, store: MemoryStore, session: Session, lease: SessionLease
) -> None:
    """40: the cursor stands in every step."""
    journal.begin(HELLO)
    edit(store.database.path, "UPDATE sessions SET last_sequence = 7 WHERE id = ?", (session.id,))
    with pytest.raises(StaleReplay):
        journal.fail("x")


def _up_to(journal: Journal, verb: str) -> Callable[[], object]:
    """Bring a turn to where a verb comes next, and return that verb."""
    (call,) = calls(1)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("begin", lambda: journal.begin(HELLO)),
        ("plan", lambda: journal.plan((HELLO, proposal(call)), (call,))),
        ("start", lambda: journal.start(call)),
        ("complete", lambda: journal.complete(call, *result(call))),
        ("checkpoint", journal.checkpoint),
        ("finish", lambda: journal.finish((Event.assistant("x"),))),
        ("fail", lambda: journal.fail("x")),
    ]
    for name, act in steps:
        if name == verb:
            return act
        if name != "finish":
            act()
    raise AssertionError(verb)


def _everything(store: MemoryStore) -> list[list[tuple[object, ...]]]:
    tables = ("active_turns", "pending_batches", "pending_tools", "turn_checkpoints", "events")
    return [rows(store.database.path, f"SELECT * FROM {table}") for table in tables]
