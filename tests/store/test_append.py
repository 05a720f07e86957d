"""Appending (behaviours 33 to 41, 183; reports K1, K2, K10): a turn is stored whole, or nothing of it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, Session, limits
from emelex_core.errors import Corrupt, Invalid, ReplayRequired, StaleReplay
from emelex_core.events import AssetRef, EventKind, MediaPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.sessions.lease import SessionLease
from stores import ManualClock, edit, rows


def _call(arguments: dict[str, Any]) -> Event:
    return Event.assistant("", ToolCallPart(call_id="c", name="n", arguments=arguments))


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def _part(part: Any) -> Event:
    return Event(kind=EventKind.ASSISTANT, parts=(part,))


@pytest.fixture
def lease(store: MemoryStore, session: Session, workspace: Path) -> SessionLease:
    taken = store.claim_session(session.id, workspace)
    taken.replay()
    return taken


def _count(store: MemoryStore) -> int:
    return int(rows(store.database.path, "SELECT count(*) FROM events")[0][0])


def test_history_is_replayed_before_the_first_append(store: MemoryStore, session: Session, workspace: Path) -> None:
    """33."""
    with store.claim_session(session.id, workspace) as lease:
        with pytest.raises(ReplayRequired):
            lease.append_turn([Event.user("x")])
        lease.replay()
        lease.append_turn([Event.user("x")])
    assert _count(store) == 5


def test_proving_is_enough_to_go_on(store: MemoryStore, session: Session, workspace: Path) -> None:
    """33: an importer needs no copy of what it goes on from."""
    with store.claim_session(session.id, workspace) as lease:
        lease.prove()
        assert lease.append_turn([Event.user("x")]).first_sequence == 5


def test_an_empty_session_needs_no_replay(store: MemoryStore, workspace: Path) -> None:
    """34."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("x")])


def test_a_turn_has_consecutive_sequences_and_positions(store: MemoryStore, workspace: Path) -> None:
    """35."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        appended = lease.append_turn([Event.user("x"), Event.assistant("y")])
    events = store.read_events(session.id)
    assert (appended.first_sequence, appended.last_sequence) == (1, 2)
    assert appended.event_ids == tuple(event.id for event in events)
    assert [(event.sequence, event.turn_id, event.turn_position, event.turn_size) for event in events] == [
        (1, appended.turn_id, 0, 2),
        (2, appended.turn_id, 1, 2),
    ]


def test_a_failing_insert_takes_the_whole_turn_back(store: MemoryStore, lease: SessionLease) -> None:
    """36: the second event cannot be stored, so the first is not there either; the lease goes on."""
    edit(
        store.database.path,
        "CREATE TRIGGER broken BEFORE INSERT ON events WHEN NEW.turn_position = 1 BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    before = store.get_session(lease.session_id)
    with pytest.raises(Corrupt):
        lease.append_turn([Event.user("x"), Event.assistant("y")])
    edit(store.database.path, "DROP TRIGGER broken")
    assert store.get_session(lease.session_id) == before
    assert lease.append_turn([Event.user("x"), Event.assistant("y")]).first_sequence == 5


WIDE = "x" * (limits.EVENT_BYTES_MAX - 200)

REFUSED: dict[str, Callable[[], list[Event]]] = {
    "no event": list,
    "too many events": lambda: [Event.user("x")] * (limits.TURN_EVENTS_MAX + 1),
    "a large event": lambda: [Event.user("x" * limits.EVENT_BYTES_MAX)],
    "a large event of escapes": lambda: [Event.user("\n" * (limits.EVENT_BYTES_MAX // 2))],
    "a large turn": lambda: [Event.user(WIDE)] * 5,
    "no parts": lambda: [Event(kind=EventKind.USER, parts=())],
    "depth": lambda: [_call(_nested(65))],
    "depth beyond the stack": lambda: [_call(_nested(200_000))],
    "nodes": lambda: [_call({"a": [0] * 65_537})],
    "a cycle": lambda: [_call(_cycle())],
    "nan": lambda: [_call({"a": math.nan})],
    "infinity": lambda: [_call({"a": [math.inf]})],
    "a large integer": lambda: [_call({"a": 2**64})],
    "a small integer": lambda: [_call({"a": -(2**63) - 1})],
    "a surrogate": lambda: [Event.user("\ud83d")],
    "a surrogate key": lambda: [_call({"\ud83d": 1})],
    "a number key": lambda: [_call({1: 1})],  # type: ignore[dict-item]  # what an unchecked caller passes
    "bytes": lambda: [_call({"a": b"x"})],
    "a set": lambda: [_call({"a": {1}})],
    "an object": lambda: [_call({"a": object()})],
    "text that is none": lambda: [_part(TextPart(text=5))],  # type: ignore[arg-type]  # what an unchecked caller passes
    "arguments that are none": lambda: [_part(ToolCallPart(call_id="c", name="n", arguments=[1]))],  # type: ignore[arg-type]  # what an unchecked caller passes
    "an exit code that is none": lambda: [Event.tool("c", "t", exit_code="0")],  # type: ignore[arg-type]  # what an unchecked caller passes
    "a label that is none": lambda: [Event.context("x", label=["y"])],  # type: ignore[arg-type]  # what an unchecked caller passes
    "a part that is none": lambda: [_part("text")],
    "a summary": lambda: [Event(kind=EventKind.SUMMARY, parts=(TextPart(text="x"),), provenance={})],
    "an instant": lambda: [Event(kind=EventKind.USER, parts=(TextPart(text="x"),), occurred_at=2**60)],
    "a blank record": lambda: [Event(kind=EventKind.USER, parts=(TextPart(text="x"),), source_record=" ")],
    "an asset of no kind": lambda: [
        Event.user("x", AssetRef(sha256="0" * 64, kind="video", media_type="video/mp4", size=1))
    ],
}


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_not_be_stored_is_invalid_and_nothing_is_written(
    store: MemoryStore, lease: SessionLease, what: str
) -> None:
    """37, 38, 39, 183 and K10: refused before a byte is written; the turn after it is accepted."""
    before = store.get_session(lease.session_id)
    with pytest.raises(Invalid):
        lease.append_turn(REFUSED[what]())
    assert store.get_session(lease.session_id) == before
    assert lease.append_turn([Event.user("x")]).first_sequence == 5


ACCEPTED: dict[str, Callable[[], list[Event]]] = {
    "many events": lambda: [Event.user("x")] * limits.TURN_EVENTS_MAX,
    "an event at its bound": lambda: [Event.user("x" * (limits.EVENT_BYTES_MAX - 45))],
    # The payload, its parts and the part are three levels above the arguments.
    "depth": lambda: [_call(_nested(61))],
    "integers": lambda: [_call({"a": 2**64 - 1, "b": -(2**63), "c": 1e308})],
    "text": lambda: [Event.user("a\r\nb\rc\n\0 naïve 😀 \u202e \x1b[31m")],
    "a result": lambda: [Event.tool("c", "t", is_error=True, exit_code=0, status="unknown_effect")],
    "an empty answer": lambda: [Event.tool("c", "")],
    "an instant before the epoch": lambda: [
        Event(kind=EventKind.USER, parts=(TextPart(text="x"),), occurred_at=-1, source_record="r")
    ],
    "notes": lambda: [Event.context("x", label="hook"), Event.audit("y", label="failed_turn")],
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_is_accepted_comes_back_as_it_was(
    store: MemoryStore, workspace: Path, lease: SessionLease, what: str
) -> None:
    """35, 38, 183: code points unchanged, numbers exact."""
    turn = ACCEPTED[what]()
    lease.append_turn(turn)
    lease.release()
    with store.claim_session(lease.session_id, workspace) as again:
        stored = again.replay()[4:]
    assert [(event.kind, event.parts, event.label, event.source_record, event.occurred_at) for event in stored] == [
        (event.kind, event.parts, event.label, event.source_record, event.occurred_at) for event in turn
    ]


def test_stored_bytes_are_canonical(store: MemoryStore, lease: SessionLease) -> None:
    """The codec's invariant: sorted keys, no white space, defaults left out."""
    lease.append_turn([_call({"b": 1, "a": "é"}), Event.tool("c", "t")])
    stored = rows(store.database.path, "SELECT payload FROM events WHERE sequence > 4 ORDER BY sequence")
    assert [payload.decode() for (payload,) in stored] == [
        '{"parts":[{"arguments":{"a":"é","b":1},"call_id":"c","name":"n","type":"tool_call"}]}',
        '{"parts":[{"call_id":"c","text":"t","type":"tool_result"}]}',
    ]


@pytest.mark.parametrize("together", [True, False])
def test_a_source_record_is_stored_once(store: MemoryStore, lease: SessionLease, together: bool) -> None:
    """183: the caller's repetition, named; not corruption."""
    event = Event(kind=EventKind.USER, parts=(TextPart(text="x"),), source_record="r-1")
    if together:
        turns = [[event], [Event.user("y"), event]]
    else:
        lease.append_turn([event])
        turns = [[Event.user("y"), event]]
    before = _count(store)
    with pytest.raises(Invalid, match="r-1"):
        lease.append_turns(turns)
    assert _count(store) == before
    lease.append_turn([Event.user("z")])


def test_several_turns_are_one_transaction(store: MemoryStore, lease: SessionLease) -> None:
    """35: with a turn that is refused, none of them is stored."""
    with pytest.raises(Invalid):
        lease.append_turns([[Event.user("x")], []])
    with pytest.raises(Invalid):
        lease.append_turns([])
    appended = lease.append_turns([[Event.user("x")], [Event.user("y"), Event.assistant("z")]])
    assert [(turn.first_sequence, turn.last_sequence) for turn in appended] == [(5, 5), (6, 7)]
    assert len({turn.turn_id for turn in appended}) == 2


def test_what_else_is_written_with_a_turn_goes_with_it(store: MemoryStore, lease: SessionLease) -> None:
    """36: an importer notes its place in the file in the same transaction."""

    def fails(transaction: object) -> None:
        raise ZeroDivisionError

    from emelex_core.sessions import append

    with pytest.raises(ZeroDivisionError):
        lease.append_prepared([append.prepare([Event.user("x")])], also=fails)
    assert _count(store) == 4


def test_a_tail_that_moved_is_replayed_again(store: MemoryStore, lease: SessionLease) -> None:
    """40."""
    path = store.database.path
    edit(path, "UPDATE sessions SET last_sequence = 5")
    with pytest.raises(StaleReplay):
        lease.append_turn([Event.user("x")])
    with pytest.raises(ReplayRequired):
        lease.append_turn([Event.user("x")])
    edit(path, "UPDATE sessions SET last_sequence = 4")
    lease.replay()
    lease.append_turn([Event.user("x")])


def test_an_append_extends_the_lease(store: MemoryStore, lease: SessionLease, clock: ManualClock) -> None:
    """41."""
    clock.turn(limits.LEASE_MS - 1)
    lease.append_turn([Event.user("x")])
    assert store.get_session(lease.session_id).held_until == clock.now + limits.LEASE_MS


def test_media_must_be_stored_before_they_are_named(store: MemoryStore, lease: SessionLease) -> None:
    """105: an unknown asset, or one of another size, takes the whole turn back."""
    stored = store.store_asset(b"GIF89a....")
    unknown = AssetRef(sha256="0" * 64, kind="image", media_type="image/gif", size=10)
    wrong = AssetRef(sha256=stored.sha256, kind="image", media_type="image/gif", size=11)
    for ref in (unknown, wrong):
        with pytest.raises(Invalid, match=ref.sha256):
            lease.append_turn([Event.user("x", stored), Event.user("y", ref)])
    with pytest.raises(Invalid, match="1025 media"):
        lease.append_turn([Event(kind=EventKind.USER, parts=tuple(MediaPart(ref=stored) for _ in range(1_025)))])
    assert _count(store) == 4
    assert rows(store.database.path, "SELECT count(*) FROM event_assets") == [(0,)]
    lease.append_turn([Event.user("x", stored, stored)])
    assert rows(store.database.path, "SELECT sequence, ordinal, kind FROM event_assets") == [
        (5, 0, "image"),
        (5, 1, "image"),
    ]


def test_a_tool_result_keeps_its_defaults(store: MemoryStore, lease: SessionLease) -> None:
    """What is left out of the stored form reads back as the default."""
    lease.append_turn([Event.tool("c", "t")])
    assert store.read_events(lease.session_id, after=4)[0].parts == (
        ToolResultPart(call_id="c", text="t", is_error=False, exit_code=None, status="completed"),
    )
