"""The crash matrix: kill -9 at each step of a turn, of a resume and of a recovery; nothing is ever run twice.

Behaviours 67 to 101 as they meet in real processes; reports K1. The life is tests/support/agent_life.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.archive.check import check
from emelex_core.errors import Invalid, UncertainToolInvocations
from emelex_core.events import EventKind, ToolCallPart, ToolResultPart
from emelex_core.home import Home
from emelex_core.journal.states import CallState
from emelex_core.journal.turns import Journal
from journals import HELLO, Call, proposal, result
from nursery import Ended, Nursery
from stores import sound

KINDS = ("read", "write", "shell")
STEPS = (
    "session.started", "session.claimed", "snapshot.stored",
    "turn.begun", "turn.planned", "turn.asked", "turn.asked:2", "turn.decided", "turn.decided:3",
    "tool.started", "tool.started:2", "tool.completed", "tool.completed:2", "tool.completed:3", "tool.completed:4",
    "append.before_commit", "append.committed", "turn.checkpointed", "turn.checkpointed:2",
    "append.before_commit:3", "append.committed:3", "turn.finished",
    "turn.begun:2", "append.before_commit:4", "turn.failed", "turn.begun:3", "turn.finished:2",
)  # fmt: skip
"""Where a life dies."""

STATES = (
    "turn.planned", "turn.asked", "turn.decided", "turn.decided:3", "tool.started", "tool.started:2", "tool.completed",
    "tool.completed:3", "append.before_commit", "turn.checkpointed",
)  # fmt: skip
"""Those among them at which the journal of a call stands in another state: every kind of tool meets them."""

MATRIX = [("write", step) for step in STEPS] + [(kind, step) for kind in ("read", "shell") for step in STATES]

INSIDE = tuple(f"journal.before_commit:{nth}" for nth in range(1, 21))
"""In the middle of each small transaction of the first turn."""


class Place:
    """A Home and a workspace, and processes that live in them."""

    def __init__(self, root: Path, kind: str, nursery: Nursery) -> None:
        self.home = root / "home"
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        (self.workspace / "notes.txt").write_text("some notes", "utf-8")
        self.kind = kind
        self.counted = root / "read.txt" if kind == "read" else self.workspace / "out.txt"
        self._nursery = nursery

    def run(self, session_id: str = "-", *, fault: str = "", **environment: str) -> Ended:
        """Live once, to the end or to the kill."""
        arguments = (self.home, self.workspace, self.kind, session_id)
        return self._nursery.run("life", *arguments, cwd=self.workspace, fault=fault, env=environment)

    def recover(self, session_id: str, *flags: str, fault: str = "") -> Ended:
        """Run the command."""
        arguments = ("memory", "sessions", "recover", session_id, *flags, "--home", str(self.home))
        return self._nursery.run("emelex", *arguments, cwd=self.workspace, fault=fault)

    def effects(self) -> list[int]:
        """The numbers of the calls whose effect happened, in order."""
        return [int(line) for line in self.counted.read_text("utf-8").split()] if self.counted.exists() else []


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    running = Nursery(tmp_path_factory.mktemp("nursery"))
    yield running
    running.close()


@pytest.fixture
def place(tmp_path: Path, nursery: Nursery) -> Callable[[str], Place]:
    return lambda kind: Place(tmp_path, kind, nursery)


def results(store: MemoryStore, session_id: str) -> Iterator[tuple[int, str]]:
    """The number and the status of each call in the history; a call without exactly one result fails the test."""
    numbers: dict[str, int] = {}
    statuses: dict[str, str] = {}
    for event in store.iterate_events(store.get_session(session_id)):
        for part in event.parts:
            if isinstance(part, ToolCallPart):
                numbers[part.call_id] = part.arguments["number"]
            elif isinstance(part, ToolResultPart):
                assert part.call_id not in statuses
                statuses[part.call_id] = part.status
    assert numbers.keys() == statuses.keys()
    return ((numbers[call_id], status) for call_id, status in statuses.items())


def require_exact(place: Place, store: MemoryStore, session_id: str) -> None:
    """Every effect happened at most once, and the history says of it what is true."""
    effects = place.effects()
    assert len(effects) == len(set(effects)), f"a call ran twice: {effects}"
    told = dict(results(store, session_id))
    for number, status in told.items():
        if status == "completed":
            assert number in effects
        elif status == "not_executed":
            assert number not in effects
    assert set(effects) <= set(told), "a call ran of which the history knows nothing"
    with store.claim_session(session_id, place.workspace) as lease:
        lease.prove()
    assert [finding for finding in check(store).findings if finding.area != "owner"] == []


def recovered(place: Place) -> None:
    """From wherever a life died: resume and recover to the end, then say one thing more."""
    if not Home(place.home).database.exists():
        return
    with MemoryStore.open(place.home, create=True) as store:
        assert sound(store.database.path)
        for found in store.list_sessions():
            turn = store.interrupted_turn(found.id)
            uncertain = () if turn is None else turn.uncertain
            if uncertain:
                with pytest.raises(UncertainToolInvocations):
                    store.recover_session(found.id, place.workspace)
            if turn is None:
                with pytest.raises(Invalid):
                    store.recover_session(found.id, place.workspace, accept_unknown_effects=True)
            else:
                closed = store.recover_session(found.id, place.workspace, accept_unknown_effects=bool(uncertain))
                assert closed.uncertain == len(uncertain)
            require_exact(place, store, found.id)
            snapshot = store.session_snapshot(found.id)
        effects = place.effects()
        for found in store.list_sessions():
            done = place.run(found.id)
            if snapshot is None and found.last_sequence:
                assert "SnapshotMismatch" in done.err
                continue
            assert done.code == 0, done.err
            require_exact(place, store, found.id)
            assert store.get_session(found.id).held_until is None
        assert place.effects() == effects, "a resume ran a tool"


def test_the_life_runs_to_its_end(place: Callable[[str], Place]) -> None:
    """Nothing below would mean anything otherwise: four calls, one denied, one failed turn, one distillation."""
    here = place("write")
    done = here.run()
    assert done.code == 0, done.err
    assert here.effects() == [1, 2, 4]
    with MemoryStore.open(here.home) as store:
        (found,) = store.list_sessions()
        assert sorted(results(store, found.id)) == [
            (1, "completed"), (2, "completed"), (3, "not_executed"), (4, "completed"),
        ]  # fmt: skip
        labels = [event.label for event in store.iterate_events(found) if event.kind is EventKind.ERROR]
        assert labels == ["failed_turn"]
    recovered(here)


@pytest.mark.parametrize(("kind", "step"), MATRIX)
def test_a_kill_at_any_step_runs_nothing_twice(place: Callable[[str], Place], kind: str, step: str) -> None:
    """Dies, is recovered, goes on."""
    here = place(kind)
    died = here.run(fault=step)
    assert died.code == -9, f"{step} was not reached: {died.err}"
    recovered(here)


@pytest.mark.parametrize("step", INSIDE)
def test_a_kill_inside_a_transaction_leaves_the_step_before(place: Callable[[str], Place], step: str) -> None:
    """Before COMMIT: the step was not taken, and what it would have allowed has not happened."""
    here = place("write")
    died = here.run(fault=step)
    assert died.code == -9, f"{step} was not reached: {died.err}"
    recovered(here)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", ["1", "4"])
def test_a_kill_between_effect_and_result_is_an_unknown_effect(
    place: Callable[[str], Place], kind: str, number: str
) -> None:
    """K1: a resume refuses and names the command, the flag closes the turn, a second recovery finds nothing."""
    here = place(kind)
    assert here.run(DIE_IN=number).code == -9
    effects = here.effects()
    assert effects[-1] == int(number)
    with MemoryStore.open(here.home) as store:
        (found,) = store.list_sessions()
    refused = here.run(found.id)
    assert "UncertainToolInvocations" in refused.err
    assert here.recover(found.id).code == 5
    accepted = here.recover(found.id, "--accept-unknown-effects")
    assert accepted.code == 0, accepted.err
    again = here.recover(found.id, "--accept-unknown-effects")
    assert (again.code, "no interrupted turn" in again.err) == (1, True)
    with MemoryStore.open(here.home) as store:
        assert dict(results(store, found.id))[int(number)] == "unknown_effect"
    recovered(here)
    assert here.effects() == effects


RESUME = (
    "session.claimed", "journal.before_commit", "recover.settled", "append.before_commit", "append.committed",
    "recover.published", "turn.begun", "turn.finished",
)  # fmt: skip


@pytest.mark.parametrize("fault", RESUME)
def test_a_resume_that_reconciles_may_be_killed(place: Callable[[str], Place], fault: str) -> None:
    """Two exact results and a call that never started: a resume closes that by itself, or the next one does."""
    here = place("write")
    assert here.run(fault="turn.decided:3").code == -9
    with MemoryStore.open(here.home) as store:
        (found,) = store.list_sessions()
    assert here.run(found.id, fault=fault).code == -9
    # The second has less left to do, and may get to its end before it meets the point.
    assert here.run(found.id, fault=fault).code in (-9, 0)
    done = here.run(found.id)
    assert done.code == 0, done.err
    with MemoryStore.open(here.home) as store:
        assert [status for _, status in sorted(results(store, found.id))] == ["completed", "completed", "not_executed"]
        closed = [event.label for event in store.iterate_events(store.get_session(found.id)) if event.label]
        assert closed.count("failed_turn_after_checkpoint") == 1
        require_exact(here, store, found.id)
    assert here.effects() == [1, 2]


RECOVERY = (
    "session.claimed", "journal.before_commit", "recover.accepted", "journal.before_commit:2", "recover.settled",
    "journal.before_commit:3", "recover.settled:2", "append.before_commit", "append.committed", "recover.published",
)  # fmt: skip
TWICE = [
    (first, second)
    for number, first in enumerate(RECOVERY)
    for second in dict.fromkeys((first, RECOVERY[(number + 1) % len(RECOVERY)], "append.before_commit"))
]


@pytest.mark.parametrize(("first", "second"), TWICE)
def test_a_recovery_may_be_killed_twice(place: Callable[[str], Place], first: str, second: str) -> None:
    """Restart-idempotent at every step: 97 and 98. The third one finishes, and once accepted needs no flag."""
    here = place("write")
    with MemoryStore.open(here.home, create=True) as store:
        session_id = _interrupted(store, here.workspace)
    for fault in (first, second):
        died = here.recover(session_id, "--accept-unknown-effects", fault=fault)
        if died.code != -9:
            break
    with MemoryStore.open(here.home) as store:
        turn = store.interrupted_turn(session_id)
        if turn is not None:
            flag = bool(turn.uncertain)
            assert flag or turn.batch is None or any(call.state is CallState.COMPLETED for call in turn.batch.calls)
            store.recover_session(session_id, here.workspace, accept_unknown_effects=flag)
        assert sorted(results(store, session_id)) == [
            (1, "completed"), (2, "unknown_effect"), (3, "not_executed"), (4, "not_executed"),
        ]  # fmt: skip
        closing = [event for event in store.iterate_events(store.get_session(session_id)) if event.label]
        assert [event.label for event in closing if event.kind is EventKind.ERROR] == ["failed_turn_after_checkpoint"]
        assert [finding for finding in check(store).findings if finding.area != "owner"] == []


def _interrupted(store: MemoryStore, workspace: Path) -> str:
    """A Session whose batch has a completed, a started and two planned calls."""
    session = store.start_session(workspace, title="interrupted")
    batch = tuple(Call(f"call-{number}", "write", {"number": number}) for number in range(1, 5))
    with store.claim_session(session.id, workspace) as lease:
        journal = Journal(lease, clock=store.clock)
        journal.begin(HELLO)
        journal.plan((HELLO, proposal(*batch)), batch)
        journal.start(batch[0])
        journal.complete(batch[0], *result(batch[0]))
        journal.start(batch[1])
    return session.id
