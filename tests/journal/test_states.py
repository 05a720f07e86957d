"""Tables, diagrams and CHECKs of the two state machines agree (house habits 3 and 4)."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import apsw
import pytest

from emelex_core import Event, MemoryStore, Session, SessionLease
from emelex_core.errors import EmelexError
from emelex_core.journal import recovery
from emelex_core.journal.states import (
    CALL_TRANSITIONS,
    RESULT_STATUSES,
    TURN_TRANSITIONS,
    CallState,
    CallVerb,
    TurnState,
    TurnVerb,
)
from emelex_core.journal.turns import Journal
from journals import HELLO, calls, proposal, result
from stores import edit, rows

COLUMNS = {
    CallState.PLANNED: ("NULL", "NULL"),
    CallState.STARTED: ("7", "NULL"),
    CallState.COMPLETED: ("7", "x'7b7d'"),
}
"""`started_at` and `result` in each state."""


@pytest.mark.parametrize(
    ("state", "started_at", "result"), list(itertools.product(CallState, ("NULL", "7"), ("NULL", "x'7b7d'")))
)
def test_the_schema_accepts_exactly_the_states(
    store: MemoryStore, session: Session, journal: Journal, state: CallState, started_at: str, result: str
) -> None:
    """A call's columns are those of its state; a completed one may never have been started."""
    journal.begin(HELLO)
    sql = f"INSERT INTO pending_tools VALUES (?, 0, 'c', 'n', x'7b7d', '{state}', {started_at}, {result})"
    legal = {COLUMNS[state], ("NULL", "x'7b7d'")} if state is CallState.COMPLETED else {COLUMNS[state]}
    if (started_at, result) in legal:
        edit(store.database.path, sql, (session.id,))
        return
    with pytest.raises(apsw.ConstraintError):
        edit(store.database.path, sql, (session.id,))


@pytest.mark.parametrize(("state", "verb"), list(itertools.product(CallState, CallVerb)))
def test_every_move_of_a_call_is_in_the_table(
    store: MemoryStore, journal: Journal, state: CallState, verb: CallVerb
) -> None:
    """A legal move leads where the table says; an illegal one changes nothing."""
    (call,) = calls(1)
    journal.begin(HELLO)
    journal.plan((HELLO, proposal(call)), (call,))
    if state is not CallState.PLANNED:
        journal.start(call)
    if state is CallState.COMPLETED:
        journal.complete(call, *result(call))
    acts = {
        CallVerb.START: lambda: journal.start(call),
        CallVerb.COMPLETE: lambda: journal.complete(call, *result(call, "x")),
        CallVerb.REFUSE: lambda: journal.complete(call, *result(call, status="not_executed")),
    }
    after = CALL_TRANSITIONS.get((state, verb))
    if after is None:
        with pytest.raises(EmelexError):
            acts[verb]()
        after = state
    else:
        acts[verb]()
    assert rows(store.database.path, "SELECT state FROM pending_tools") == [(after.value,)]


@pytest.mark.parametrize(("state", "verb"), list(itertools.product(TurnState, TurnVerb)))
def test_every_move_of_a_turn_is_in_the_table(
    store: MemoryStore,
    session: Session,
    lease: SessionLease,
    journal: Journal,
    state: TurnState,
    verb: TurnVerb,
) -> None:
    """As above; the batch has one call that was refused, so that it may be published as well as dropped."""
    (call,) = calls(1)
    other = calls(1, first=2)
    if state is not TurnState.IDLE:
        journal.begin(HELLO)
    if state is TurnState.BATCHED:
        journal.plan((HELLO, proposal(call)), (call,))
        journal.complete(call, *result(call, status="not_executed"))
    acts = {
        TurnVerb.BEGIN: lambda: journal.begin(HELLO),
        TurnVerb.PLAN: lambda: journal.plan((HELLO, proposal(*other)), other),
        TurnVerb.CHECKPOINT: journal.checkpoint,
        TurnVerb.FINISH: lambda: journal.finish((HELLO, Event.assistant("x"))),
        TurnVerb.FAIL: lambda: journal.fail("x"),
        TurnVerb.RECOVER: lambda: recovery.recover(lease, clock=store.clock),
    }
    after = TURN_TRANSITIONS.get((state, verb))
    if after is None:
        with pytest.raises(EmelexError):
            acts[verb]()
        after = state
    else:
        acts[verb]()
    turn = store.interrupted_turn(session.id)
    assert (TurnState.IDLE if turn is None else turn.state) is after


def test_the_diagrams_are_the_tables() -> None:
    """House habit 4: ARCHITECTURE.md draws each move of the two tables, and no other."""
    text = (Path(__file__).resolve().parents[2] / "ARCHITECTURE.md").read_text("utf-8")
    life = text.partition("\n## The life of one turn\n")[2].partition("\n## ")[0]
    drawn = [
        {(found[1], found[3]): found[2] for found in re.finditer(r"(\w+) --> (\w+): (\w+)", block)}
        for block in re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)\n```", life, re.DOTALL)
    ]
    turns = {(state.value, verb.value): after.value for (state, verb), after in TURN_TRANSITIONS.items()}
    calls = {(state.value, verb.value): after.value for (state, verb), after in CALL_TRANSITIONS.items()}
    assert drawn == [turns, calls]


def test_every_state_is_left_and_reached() -> None:
    """No state is a trap, and none is out of reach."""
    assert {state for state, _ in TURN_TRANSITIONS} == set(TurnState) == set(TURN_TRANSITIONS.values())
    assert {state for state, _ in CALL_TRANSITIONS} == {CallState.PLANNED, CallState.STARTED}
    assert set(CALL_TRANSITIONS.values()) == {CallState.STARTED, CallState.COMPLETED}
    assert set(RESULT_STATUSES.values()) == {state for state, _ in CALL_TRANSITIONS}


def test_a_snapshot_cannot_be_changed_by_sql(store: MemoryStore, session: Session) -> None:
    """The invariant stands in the database: only the root's path may be spelled anew."""
    path = store.database.path
    edit(
        path,
        "INSERT INTO session_snapshots VALUES (?, 1, x'7b7d', ?, 1)",
        (session.id, b'{"root":{"path":"/a"},"tools":{}}'),
    )
    for change in ("config = x'7b2261223a317d'", "created_at = 2", "authority = ?", "session_id = 'x'"):
        values = (b'{"root":{"path":"/a"},"tools":{"shell":{}}}',) if "?" in change else ()
        with pytest.raises(apsw.ConstraintError, match="immutable"):
            edit(path, f"UPDATE session_snapshots SET {change}", values)
    edit(path, "UPDATE session_snapshots SET authority = ?", (b'{"root":{"path":"/b"},"tools":{}}',))
