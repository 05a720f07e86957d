"""The state machine (behaviours 125 to 135; house habits 3 and 4): table, CHECKs, diagram and reality agree."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from emelex_core import MemoryStore, limits
from emelex_core.errors import EmelexError, Invalid, NotFound, StaleJobLease
from emelex_core.jobs.kinds import JobState
from emelex_core.jobs.records import Job
from emelex_queue import claims, states
from emelex_queue.lease import JobLease
from emelex_queue.states import COUNTED, TRANSITIONS, Verb
from stores import ROOT, ManualClock, edit, rows

Take = Callable[[], JobLease | None]
Look = Callable[[str], Job]


class Rig:
    """One job, the lease that its last claim gave, and every verb as a caller would use it."""

    def __init__(
        self, store: MemoryStore, clock: ManualClock, publish: Callable[[], str], take: Take, look: Look
    ) -> None:
        self.store, self.clock, self.take = store, clock, take
        self.id = publish()
        self.look = lambda: look(self.id)
        lease = take()
        assert lease is not None
        self.lease = lease

    def bring_to(self, state: JobState) -> None:
        """Bring the job to a state; `lease` is then the one that was settled, or holds it."""
        if state is JobState.PENDING:
            self.lease.fail("first")
        elif state is JobState.COMPLETED:
            self.lease.complete(lambda transaction: None, record={})
        elif state is JobState.FAILED:
            self.lease.fail("last", permanent=True)
        assert self.look().state is state

    def make_last(self) -> None:
        """Count two failures, so that the next one is the third; the job runs again."""
        edit(self.store.database.path, "UPDATE jobs SET failure_count = 2, last_error = 'x'")
        self.lease.job = dataclasses.replace(self.lease.job, failure_count=2)

    def do(self, verb: Verb) -> None:
        """Try a verb; whoever is refused raises, or finds nothing to do."""
        if verb is Verb.CLAIM:
            self.clock.turn(limits.BACKOFF_MAX_MS - 1)
            taken = self.take()
            if taken is None:
                raise NotFound("nothing to claim")
            self.lease = taken
        elif verb is Verb.COMPLETE:
            self.lease.complete(lambda transaction: None, record={})
        elif verb is Verb.FAIL:
            self.lease.fail("again")
        elif verb is Verb.FAIL_LAST:
            if self.look().state is JobState.RUNNING:
                self.make_last()
            self.lease.fail("last", permanent=self.look().state is not JobState.RUNNING)
        elif verb in (Verb.EXPIRE, Verb.EXPIRE_LAST):
            if verb is Verb.EXPIRE_LAST and self.look().state is JobState.RUNNING:
                edit(self.store.database.path, "UPDATE jobs SET failure_count = 2, last_error = 'x'")
            self.clock.turn(limits.LEASE_MS)
            if claims.recover_lost(self.store.database, clock=self.clock) == []:
                raise NotFound("nothing has expired")
        elif verb is Verb.RELEASE:
            if self.lease.settled:
                raise StaleJobLease("a settled lease has nothing to give back")
            self.lease.release()
        elif verb is Verb.RETRY:
            self.store.retry_failed_job(self.id)


@pytest.fixture
def rig(store: MemoryStore, clock: ManualClock, publish: Callable[[], str], take: Take, look: Look) -> Rig:
    return Rig(store, clock, publish, take, look)


@pytest.mark.parametrize(("move", "end"), TRANSITIONS.items(), ids=lambda value: str(value))
def test_every_legal_move_moves(rig: Rig, move: tuple[JobState, Verb], end: JobState) -> None:
    """The table against the statements; fail and expire count, release does not."""
    state, verb = move
    rig.bring_to(state)
    before = 2 if verb in (Verb.FAIL_LAST, Verb.EXPIRE_LAST) else rig.look().failure_count
    rig.do(verb)
    found = rig.look()
    assert found.state is end
    expected = 0 if verb is Verb.RETRY else before + (verb in COUNTED)
    assert found.failure_count == expected


@pytest.mark.parametrize(
    "move",
    [pair for pair in itertools.product(JobState, Verb) if pair not in TRANSITIONS],
    ids=lambda value: str(value),
)
def test_every_other_move_is_refused_and_changes_nothing(rig: Rig, move: tuple[JobState, Verb]) -> None:
    """Guards stand in the WHERE: an error of the tree, and a row as before."""
    state, verb = move
    rig.bring_to(state)
    before = rig.look()
    with pytest.raises(EmelexError):
        rig.do(verb)
    assert rig.look() == before


def test_the_diagram_is_the_table() -> None:
    """House habit 4: ARCHITECTURE.md carries exactly what `mermaid()` draws."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    life = text.partition("\n## The life of one job\n")[2].partition("\n## ")[0]
    (drawn,) = re.findall(r"```mermaid\n(stateDiagram-v2\n.*?)\n```", life, re.DOTALL)
    assert drawn == states.mermaid()


COLUMNS = {
    "failure_count": (0, 1, 3),
    "lease_token": (None, b"0" * 16),
    "lease_until": (None, 5),
    "lease_owner": (None, 7),
    "retry_after": (None, 5),
    "last_error": (None, "no"),
    "failed_at": (None, 5),
    "completed_at": (None, 5),
}


def _is_consistent(state: str, row: dict[str, Any]) -> bool:
    """What each state fills, said a second time and in another way than the schema does."""
    held = {row["lease_token"] is None, row["lease_until"] is None, row["lease_owner"] is None}
    if len(held) != 1 or (row["failure_count"] == 0) != (row["last_error"] is None):
        return False
    allowed = {
        "pending": {"last_error", "retry_after"},
        "running": {"last_error", "lease_token", "lease_until", "lease_owner"},
        "completed": {"last_error", "completed_at"},
        "failed": {"last_error", "failed_at"},
    }[state]
    needed = {
        "pending": set(),
        "running": {"lease_token"},
        "completed": {"completed_at"},
        "failed": {"failed_at", "last_error"},
    }[state]
    filled = {name for name, value in row.items() if name != "failure_count" and value is not None}
    if state in ("pending", "running") and row["failure_count"] == 3:
        return False
    if row["retry_after"] is not None and row["failure_count"] == 0:
        return False
    return needed <= filled <= allowed


@pytest.mark.parametrize("state", list(JobState))
def test_inconsistent_columns_are_rejected(publish: Callable[[], str], path: Path, state: JobState) -> None:
    """135: every combination of the state's columns, by raw SQL; exactly the consistent ones are let in."""
    publish()
    assignments = ", ".join(f"{name} = :{name}" for name in COLUMNS)
    sql = f"UPDATE jobs SET state = :state, run_at = 5, {assignments}"
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    wrong: list[dict[str, Any]] = []
    accepted = 0
    try:
        for values in itertools.product(*COLUMNS.values()):
            row = dict(zip(COLUMNS, values, strict=True))
            raw.execute("BEGIN")
            try:
                raw.execute(sql, {"state": state.value, **row})
                let_in = True
            except apsw.ConstraintError:
                let_in = False
            raw.execute("ROLLBACK")
            accepted += let_in
            if let_in != _is_consistent(state.value, row):
                wrong.append(row)
    finally:
        raw.close()
    assert wrong == []
    assert accepted > 0


@pytest.mark.parametrize(
    "change",
    [
        "state = 'odd'",
        "kind = 'odd'",
        "failure_count = -1",
        "failure_count = 4",
        "lease_token = x'00'",
        "retry_after = run_at + 1",
        "through_sequence = 0, source_event_count = 0",
        "source_event_count = source_event_count + 1",
        "source_sha256 = 'short'",
        "target_tokens = 5",
        "kind = 'compaction'",
        "last_error = ''",
        "session_id = NULL",
        "failure_count = 'many'",
    ],
)
def test_other_nonsense_is_rejected_too(publish: Callable[[], str], path: Path, change: str) -> None:
    """135: values out of range, of another type, or without what belongs to them."""
    publish()
    with pytest.raises((apsw.ConstraintError, apsw.MismatchError)):
        edit(path, f"UPDATE jobs SET {change}")
    assert rows(path, "SELECT state, failure_count FROM jobs") == [("pending", 0)]


@pytest.mark.parametrize("diagnostic", ["", " \n", "x" * 4_097, "é" * 2_049, "\ud800"])
def test_a_diagnostic_says_something_and_is_bounded(rig: Rig, diagnostic: str) -> None:
    """134: refused, and the job is still this worker's to settle."""
    with pytest.raises(Invalid):
        rig.lease.fail(diagnostic)
    assert rig.look().state is JobState.RUNNING
    rig.lease.fail("x" * 4_096)
    assert len(rig.look().last_error or "") == 4_096
