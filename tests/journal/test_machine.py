"""The journal beside a plain model (house habit 14): verbs in any order, crashes and recoveries among them.

Whatever the model allows, the journal does; whatever it forbids is refused and changes nothing. After every step the
journal's rows and the Session's history are what the model says (behaviours 67 to 77 and 94 to 100 as they meet).
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from emelex_core import Event, MemoryStore, SessionLease
from emelex_core.errors import Corrupt, EmelexError, Invalid, TurnUnfinished, UncertainToolInvocations
from emelex_core.journal.turns import Journal
from journals import HELLO, Call, calls, proposal, result, told
from stores import sound


@dataclass
class ModelCall:
    """A call: its state, whether it ran, its approval and the status of its result."""

    call: Call
    state: str = "planned"
    ran: bool = False
    approval: str | None = None
    status: str | None = None


@dataclass
class ModelTurn:
    """A turn: how many batches were published, and the batch that is open."""

    checkpoints: int = 0
    batch: list[ModelCall] = field(default_factory=list)

    def settle(self, mark: ModelCall, status: str) -> None:
        mark.state, mark.status = "completed", status

    def published(self) -> list[str]:
        """What the open batch looks like in the history."""
        first = [] if self.checkpoints else ["user"]
        statuses = [f"tool:{mark.status}" for mark in self.batch]
        return [*first, "assistant", *statuses, *["audit"] * len(self.batch)]


def shown(store: MemoryStore, session_id: str) -> list[str]:
    """The history, as the model writes it. Denials are left out: the model does not count them."""
    return [
        f"tool:{gist}" if kind == "tool" else f"error:{label}" if kind == "error" else kind
        for kind, label, gist in told(store, session_id)
        if kind != "approval"
    ]


ALL = [
    "begin", "plan", "ask", "decide", "start", "complete", "settle_all", "checkpoint", "finish", "fail", "append",
    "crash", "recover",
]  # fmt: skip


class JournalMachine(RuleBasedStateMachine):
    """One Session, its journal, and what both must be."""

    @initialize()
    def make(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="emelex-journal-"))
        self.workspace = self.root / "workspace"
        self.workspace.mkdir()
        self.store = MemoryStore.open(self.root / "home", create=True)
        self.session_id = self.store.start_session(self.workspace, title="machine").id
        self.turn: ModelTurn | None = None
        self.history: list[str] = []
        self.count = 0
        self.claim()

    def claim(self) -> None:
        self.lease: SessionLease = self.store.claim_session(self.session_id, self.workspace)
        self.lease.prove()
        self.journal = Journal(self.lease, clock=self.store.clock)

    def mark(self, data: st.DataObject) -> ModelCall | None:
        """Some call of the open batch; None when there is none."""
        batch = [] if self.turn is None else self.turn.batch
        return data.draw(st.sampled_from(batch)) if batch else None

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One rule for everything: Hypothesis switches rules off at random, and what is rare would never meet."""
        likely = self.likely()
        getattr(self, data.draw(st.sampled_from(likely * 3 + ALL)))(data)

    def likely(self) -> list[str]:
        """What leads on from here; anything else is tried, too, but less often."""
        if self.turn is None:
            return ["begin", "begin", "append", "crash"]
        if not self.turn.batch:
            return ["plan", "plan", "plan", "finish", "fail", "crash", "recover"]
        return [
            "ask",
            "decide",
            "start",
            "start",
            "complete",
            "complete",
            "settle_all",
            "checkpoint",
            "crash",
            "recover",
        ]

    def begin(self, data: st.DataObject) -> None:
        if self.turn is not None:
            with pytest.raises(TurnUnfinished):
                self.journal.begin(HELLO)
            return
        self.journal.begin(HELLO)
        self.turn = ModelTurn()

    def plan(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, 4))
        batch = calls(number, first=self.count + 1)
        first = (HELLO,) if self.turn is None or not self.turn.checkpoints else ()
        if self.turn is None or self.turn.batch:
            with pytest.raises(Corrupt):
                self.journal.plan((*first, proposal(*batch)), batch)
            return
        self.journal.plan((*first, proposal(*batch)), batch)
        self.count += number
        self.turn.batch = [ModelCall(call) for call in batch]

    def ask(self, data: st.DataObject) -> None:
        mark = self.mark(data)
        if mark is None or mark.state != "planned" or mark.approval is not None:
            with pytest.raises(Corrupt):
                self.journal.ask(mark.call if mark else calls(1)[0], "may it?")
            return
        self.journal.ask(mark.call, "may it?")
        mark.approval = "asked"

    def decide(self, data: st.DataObject) -> None:
        granted = data.draw(st.booleans())
        mark = self.mark(data)
        if mark is None or mark.state != "planned" or mark.approval != "asked":
            with pytest.raises(Corrupt):
                self.journal.decide(mark.call if mark else calls(1)[0], granted=granted)
            return
        self.journal.decide(mark.call, granted=granted)
        mark.approval = "granted" if granted else "denied"

    def start(self, data: st.DataObject) -> None:
        mark = self.mark(data)
        if mark is None or mark.state != "planned" or mark.approval in ("asked", "denied"):
            with pytest.raises(Corrupt):
                self.journal.start(mark.call if mark else calls(1)[0])
            return
        self.journal.start(mark.call)
        mark.state, mark.ran = "started", True

    def complete(self, data: st.DataObject) -> None:
        status = data.draw(st.sampled_from(["completed", "unknown_effect", "not_executed"]))
        mark = self.mark(data)
        wanted = "planned" if status == "not_executed" else "started"
        if mark is None or mark.state != wanted:
            call = mark.call if mark else calls(1)[0]
            with pytest.raises(Corrupt):
                self.journal.complete(call, *result(call, status=status))
            return
        self.journal.complete(mark.call, *result(mark.call, status=status))
        assert self.turn is not None
        self.turn.settle(mark, status)

    def settle_all(self, data: st.DataObject) -> None:
        """Complete whatever is open, so that checkpoints are not rare."""
        for mark in [] if self.turn is None else self.turn.batch:
            if mark.state != "completed":
                status = "completed" if mark.state == "started" else "not_executed"
                self.journal.complete(mark.call, *result(mark.call, status=status))
                assert self.turn is not None
                self.turn.settle(mark, status)

    def checkpoint(self, data: st.DataObject) -> None:
        turn = self.turn
        if turn is None or not turn.batch or any(mark.state != "completed" for mark in turn.batch):
            with pytest.raises(Corrupt):
                self.journal.checkpoint()
            return
        self.journal.checkpoint()
        self.history += turn.published()
        turn.checkpoints += 1
        turn.batch = []

    def finish(self, data: st.DataObject) -> None:
        turn = self.turn
        first = (HELLO,) if turn is None or not turn.checkpoints else ()
        if turn is None or turn.batch:
            with pytest.raises(Corrupt):
                self.journal.finish((*first, Event.assistant("done")))
            return
        self.journal.finish((*first, Event.assistant("done")))
        self.history += ["user"] * len(first) + ["assistant"]
        self.turn = None

    def fail(self, data: st.DataObject) -> None:
        if self.turn is None or any(mark.ran for mark in self.turn.batch):
            with pytest.raises(Corrupt):
                self.journal.fail("why")
            return
        self.journal.fail("why")
        self.history += self.closing(self.turn)
        self.turn = None

    def append(self, data: st.DataObject) -> None:
        if self.turn is not None:
            with pytest.raises(TurnUnfinished):
                self.lease.append_turn([Event.user("beside")])
            return
        self.lease.append_turn([Event.user("beside")])
        self.history.append("user")

    def crash(self, data: st.DataObject) -> None:
        """The process is gone with all it held; another one opens the store and claims the Session."""
        del self.journal, self.lease
        gc.collect()
        self.store.close()
        self.store = MemoryStore.open(self.root / "home")
        self.claim()

    def recover(self, data: st.DataObject) -> None:
        accept = data.draw(st.booleans())
        self.lease.release()
        try:
            self.recover_released(accept)
        finally:
            self.claim()

    def recover_released(self, accept: bool) -> None:
        turn = self.turn
        expected: type[EmelexError] | None = None
        if turn is None:
            expected = Invalid
        elif not accept and any(mark.state == "started" for mark in turn.batch):
            expected = UncertainToolInvocations
        if turn is None or expected is not None:
            with pytest.raises(expected or Invalid):
                self.store.recover_session(self.session_id, self.workspace, accept_unknown_effects=accept)
            return
        closed = self.store.recover_session(self.session_id, self.workspace, accept_unknown_effects=accept)
        for mark in turn.batch:
            if mark.state != "completed":
                turn.settle(mark, "unknown_effect" if mark.state == "started" else "not_executed")
        statuses = [mark.status for mark in turn.batch]
        assert [call.status for call in closed.calls] == statuses
        assert closed.uncertain == statuses.count("unknown_effect")
        if turn.batch:
            self.history += [*turn.published(), "error:failed_turn_after_checkpoint"]
        else:
            self.history += self.closing(turn)
        self.turn = None

    def closing(self, turn: ModelTurn) -> list[str]:
        return ["error:failed_turn_after_checkpoint"] if turn.checkpoints else ["audit", "error:failed_turn"]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        found = self.store.interrupted_turn(self.session_id)
        assert (found is None) == (self.turn is None)
        if found is not None and self.turn is not None:
            batch = () if found.batch is None else found.batch.calls
            assert found.checkpoints == self.turn.checkpoints
            assert [(call.call_id, str(call.state), call.approval) for call in batch] == [
                (mark.call.call_id, mark.state, mark.approval) for mark in self.turn.batch
            ]
        assert shown(self.store, self.session_id) == self.history

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        path = self.store.database.path
        assert sound(path)
        self.lease.release()
        self.store.close()
        shutil.rmtree(self.root)


JournalMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJournalMachine = JournalMachine.TestCase
