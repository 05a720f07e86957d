"""The store beside a plain model (house habit 14): Sessions, leases, turns, jobs and time, in any order; close and
reopen among them. Covers behaviours 19, 20, 24 to 26, 33 to 35, 40, 41, 46, 117 to 136 as they meet each other."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from emelex_core import Event, MemoryStore, limits
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.errors import (
    Invalid,
    NotFound,
    ReplayRequired,
    SessionBusy,
    StaleJobLease,
    StaleReplay,
    StaleSessionLease,
)
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_core.sessions.lease import SessionLease
from emelex_queue import claims
from emelex_queue.backoff import backoff_ms
from emelex_queue.lease import JobLease
from emelex_workers import compaction
from stores import SECOND, ManualClock, rows, sound


@dataclass
class ModelSession:
    """What a Session must hold: words in order, where turns end, what the newest Summary covers, who holds it."""

    id: str
    words: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    summary: int = 0
    covered: int = 0
    holder: object = None
    until: int = 0

    def live(self, now: int) -> bool:
        return self.holder is not None and self.until > now

    def shown(self) -> list[str]:
        """What replay must return."""
        tail = [word for index, word in enumerate(self.words, 1) if index > self.covered and index != self.summary]
        return [self.words[self.summary - 1], *tail] if self.summary else tail

    def append(self, kind: str, *words: str) -> None:
        self.words += words
        self.kinds += [kind] * len(words)
        self.ends.add(len(self.words))


@dataclass
class ModelJob:
    """What a job's row must say."""

    id: str
    kind: JobKind
    session: ModelSession
    through: int
    state: str = "pending"
    failures: int = 0
    retry_after: int | None = None
    holder: object = None
    until: int = 0
    published_at: int = 0
    run_at: int = 0

    @property
    def follows(self) -> bool:
        """Whether a publishing moves it on: a distillation that nobody has tried."""
        untried = self.state == "pending" and not self.failures and self.run_at == self.published_at
        return self.kind is JobKind.DISTILLATION and untried

    def fail(self, now: int, *, permanent: bool = False) -> None:
        self.failures += 1
        self.holder = None
        if permanent or self.failures == limits.FAILURES_TERMINAL:
            self.state, self.retry_after = "failed", None
        else:
            self.state, self.retry_after = "pending", now + backoff_ms(self.failures)


@dataclass(eq=False)
class HeldSession:
    """A lease of the store, where its holder believes the tail to be, and the model's Session."""

    lease: SessionLease
    session: ModelSession
    tail: int | None


@dataclass(eq=False)
class HeldJob:
    """A lease of the queue and the model's job."""

    lease: JobLease
    job: ModelJob


Action = Callable[["StoreMachine", st.DataObject], None]
ACTIONS: list[tuple[Callable[[StoreMachine], object], Action]] = []


def action(*, when: Callable[[StoreMachine], object], often: int = 1) -> Callable[[Action], Action]:
    """Register what the one rule may do. Hypothesis switches rules off at random; the rare would never come to pass."""

    def register(method: Action) -> Action:
        ACTIONS.extend([(when, method)] * often)
        return method

    return register


class StoreMachine(RuleBasedStateMachine):
    """Every action does one thing to the store and to the model; where the model says no, the store must say why."""

    @initialize()
    def make(self) -> None:
        self.place = tempfile.TemporaryDirectory(prefix="emelex-state-")
        self.root = Path(self.place.name)
        self.workspace = self.root / "workspace"
        self.workspace.mkdir()
        self.clock = ManualClock()
        self.store = MemoryStore.open(self.root / "home", create=True, clock=self.clock)
        self.sessions: list[ModelSession] = []
        self.jobs: list[ModelJob] = []
        self.held: list[HeldSession] = []
        self.work: list[HeldJob] = []
        self.count = 0

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        possible = [method for when, method in ACTIONS if when(self)]
        data.draw(st.sampled_from(possible))(self, data)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        with self.place:
            path = self.store.database.path
            try:
                self.prove()
                self.held.clear()
                self.work.clear()
                gc.collect()
            finally:
                self.store.close()
            assert sound(path)

    def word(self) -> str:
        self.count += 1
        return f"word {self.count}"

    # --- Sessions -----------------------------------------------------------------------------------------------------

    @action(when=lambda self: len(self.sessions) < 2)
    def start(self, data: st.DataObject) -> None:
        del data
        self.sessions.append(ModelSession(id=self.store.start_session(self.workspace, title="t").id))

    @action(when=lambda self: any(not session.live(self.clock.now) for session in self.sessions), often=3)
    def converse(self, data: st.DataObject) -> None:
        """The usual life, in one step, so that what is rare comes to pass between two of them."""
        session = data.draw(st.sampled_from([found for found in self.sessions if not found.live(self.clock.now)]))
        lease = self.store.claim_session(session.id, self.workspace)
        held = HeldSession(lease, session, None)
        session.holder, session.until = held, self.clock.now + limits.LEASE_MS
        assert [event.text for event in lease.replay()] == session.shown()
        for _ in range(data.draw(st.integers(1, 3))):
            words = [self.word(), self.word()]
            lease.append_turn([Event.user(word) for word in words])
            session.append("user", *words)
        held.tail = len(session.words)
        if data.draw(st.booleans()):
            self.expect_distillation(session, lease.release(distill=True))
            session.holder = None
        else:
            self.held.append(held)

    @action(when=lambda self: self.sessions)
    def claim(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        if session.live(self.clock.now):
            with pytest.raises(SessionBusy) as busy:
                self.store.claim_session(session.id, self.workspace)
            assert busy.value.held_until == session.until
            return
        lease = self.store.claim_session(session.id, self.workspace)
        held = HeldSession(lease, session, None if session.words else 0)
        session.holder, session.until = held, self.clock.now + limits.LEASE_MS
        self.held.append(held)

    @action(when=lambda self: self.held, often=2)
    def append(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        session = held.session
        events = data.draw(st.integers(1, 3))
        words = [self.word() for _ in range(events)]
        turn = [Event.user(word) for word in words]
        if held.tail is None:
            expected: type[Exception] | None = ReplayRequired
        elif session.holder is not held:
            expected = StaleSessionLease
        elif held.tail != len(session.words):
            expected, held.tail = StaleReplay, None
        elif session.until <= self.clock.now:
            expected = StaleSessionLease
        else:
            expected = None
        if expected is not None:
            with pytest.raises(expected):
                held.lease.append_turn(turn)
            return
        appended = held.lease.append_turn(turn)
        session.append("user", *words)
        assert (appended.first_sequence, appended.last_sequence) == (
            len(session.words) - events + 1,
            len(session.words),
        )
        held.tail = len(session.words)
        session.until = self.clock.now + limits.LEASE_MS

    @action(when=lambda self: self.held)
    def replay(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.session.holder is not held:
            with pytest.raises(StaleSessionLease):
                held.lease.replay()
            return
        assert [event.text for event in held.lease.replay()] == held.session.shown()
        held.tail = len(held.session.words)

    @action(when=lambda self: self.held, often=2)
    def renew(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.session.holder is not held:
            with pytest.raises(StaleSessionLease):
                held.lease.renew()
            return
        held.lease.renew()
        held.session.until = self.clock.now + limits.LEASE_MS

    @action(when=lambda self: self.held)
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        distill = data.draw(st.booleans())
        self.held.remove(held)
        if held.session.holder is not held:
            with pytest.raises(StaleSessionLease):
                held.lease.release(distill=distill)
            return
        published = held.lease.release(distill=distill)
        held.session.holder = None
        if distill:
            self.expect_distillation(held.session, published)
        else:
            assert published is None
        assert held.lease.release() is None

    @action(when=lambda self: self.held)
    def drop(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        if held.session.holder is held:
            held.session.holder = None
        del held.lease
        gc.collect()

    # --- publishing ---------------------------------------------------------------------------------------------------

    def published(self, kind: JobKind, session: ModelSession, through: int, found: Any) -> None:
        known = [job for job in self.jobs if (job.kind, job.session, job.through) == (kind, session, through)]
        untried = [job for job in self.jobs if job.session is session and job.follows and job.kind is kind]
        if not known and untried:
            known = untried[:1]
            known[0].through = through
        assert found.created is not bool(known)
        if kind is JobKind.DISTILLATION and known and known[0].state != "failed":
            self.jobs = [job for job in self.jobs if job is known[0] or job not in untried]
        if known:
            assert (found.id, found.state) == (known[0].id, known[0].state)
        else:
            assert found.state == "pending"
            now = self.clock.now
            job = ModelJob(id=found.id, kind=kind, session=session, through=through, published_at=now, run_at=now)
            self.jobs.append(job)

    def expect_distillation(self, session: ModelSession, found: Any) -> None:
        said = [index for index, kind in enumerate(session.kinds, 1) if kind != "summary"]
        if not said:
            assert found is None
        else:
            self.published(JobKind.DISTILLATION, session, said[-1], found)

    @action(when=lambda self: self.sessions)
    def publish_distillation(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        self.expect_distillation(session, self.store.queue_distillation(session.id))

    @action(when=lambda self: any(session.words for session in self.sessions), often=2)
    def publish_compaction(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([session for session in self.sessions if session.words]))
        through = data.draw(st.sampled_from([*sorted(session.ends), 1, len(session.words) + 1]))
        plan = CompactionPlan(through_sequence=through, target_tokens=64, session_tokens=0, kept_tokens=0)
        if through <= session.summary or through not in session.ends:
            with pytest.raises(Invalid):
                self.store.queue_compaction(session.id, plan)
            return
        self.published(JobKind.COMPACTION, session, through, self.store.queue_compaction(session.id, plan))

    # --- working ------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        for job in self.jobs:
            if job.state == "running" and job.until <= self.clock.now:
                job.fail(self.clock.now)

    @action(when=lambda self: True, often=5)
    def claim_job(self, data: st.DataObject) -> None:
        # Mostly what there is; a kind of which there is none is worth a try too.
        kind = data.draw(st.sampled_from([*(job.kind for job in self.jobs if job.state == "pending"), *JobKind]))
        self.expire()
        now = self.clock.now
        runnable = [
            job
            for job in self.jobs
            if job.state == "pending"
            and job.kind is kind
            and (job.retry_after is None or job.retry_after <= now)
            and not job.session.live(now)
            and not any(
                other.state == "running" and other.kind is kind and other.session is job.session for other in self.jobs
            )
        ]
        lease = claims.claim(self.store.database, kind, clock=self.clock)
        assert (lease and lease.job.id) == (runnable[0].id if runnable else None)
        if lease is None:
            return
        job = runnable[0]
        job.run_at = min(job.run_at, now)
        held = HeldJob(lease, job)
        job.state, job.holder, job.until, job.retry_after = "running", held, now + limits.LEASE_MS, None
        assert (lease.job.attempt, lease.job.source.through_sequence) == (job.failures + 1, job.through)
        self.work.append(held)

    def draw_work(self, data: st.DataObject) -> tuple[HeldJob, bool]:
        """A claimed job, and whether its lease still holds it."""
        held = data.draw(st.sampled_from(self.work))
        return held, held.job.holder is held

    @action(when=lambda self: self.work, often=2)
    def renew_job(self, data: st.DataObject) -> None:
        held, holds = self.draw_work(data)
        if not holds:
            with pytest.raises(StaleJobLease):
                held.lease.renew_on(self.store.database)
            self.work.remove(held)
            return
        held.lease.renew_on(self.store.database)
        held.job.until = self.clock.now + limits.LEASE_MS

    @action(when=lambda self: self.work, often=4)
    def complete(self, data: st.DataObject) -> None:
        held, holds = self.draw_work(data)
        session, job = held.job.session, held.job
        word = self.word()

        def apply(transaction: Any) -> None:
            if job.kind is JobKind.COMPACTION:
                source = held.lease.job.source
                stated = {name: getattr(source, name) for name in type(source).__dataclass_fields__}
                stated["job_id"] = job.id
                compaction._append_summary(transaction, held.lease.job, word, stated, now=self.clock.now)

        overtaken = job.kind is JobKind.COMPACTION and job.through <= session.summary
        if session.live(self.clock.now) or (holds and overtaken):
            with pytest.raises(SessionBusy):
                held.lease.complete(apply, record={})
            return
        self.work.remove(held)
        if not holds:
            with pytest.raises(StaleJobLease):
                held.lease.complete(apply, record={})
            return
        held.lease.complete(apply, record={})
        job.state, job.holder = "completed", None
        if job.kind is JobKind.COMPACTION:
            session.append("summary", word)
            session.summary, session.covered = len(session.words), job.through

    @action(when=lambda self: self.work, often=2)
    def fail(self, data: st.DataObject) -> None:
        held, holds = self.draw_work(data)
        permanent = data.draw(st.booleans())
        self.work.remove(held)
        if not holds:
            with pytest.raises(StaleJobLease):
                held.lease.fail("no", permanent=permanent)
            return
        retry_at = held.lease.fail("no", permanent=permanent)
        held.job.fail(self.clock.now, permanent=permanent)
        assert retry_at == held.job.retry_after

    @action(when=lambda self: self.work, often=2)
    def release_job(self, data: st.DataObject) -> None:
        held, holds = self.draw_work(data)
        self.work.remove(held)
        if not holds:
            with pytest.raises(StaleJobLease):
                held.lease.release()
            return
        held.lease.release()
        held.job.state, held.job.holder = "pending", None

    @action(when=lambda self: self.work, often=1)
    def drop_job(self, data: st.DataObject) -> None:
        held, holds = self.draw_work(data)
        self.work.remove(held)
        if holds:
            held.job.fail(self.clock.now)
        del held.lease
        gc.collect()

    @action(when=lambda self: any(job.state != "pending" for job in self.jobs))
    def retry(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        if job.state != "failed":
            with pytest.raises(NotFound):
                self.store.retry_failed_job(job.id)
            return
        assert self.store.retry_failed_job(job.id).failure_count == 0
        job.state, job.failures, job.retry_after, job.run_at = "pending", 0, None, self.clock.now

    # --- time and place -----------------------------------------------------------------------------------------------

    @action(when=lambda self: True, often=2)
    def turn_the_clock(self, data: st.DataObject) -> None:
        milliseconds = data.draw(st.sampled_from([1, 30 * SECOND, limits.LEASE_MS - 1, limits.LEASE_MS]))
        self.clock.turn(milliseconds)

    @action(when=lambda self: self.sessions)
    def reopen(self, data: st.DataObject) -> None:
        """The owner is gone: its Sessions are free, and its jobs are lost at the next look."""
        del data
        self.store.close()
        self.held.clear()
        self.work.clear()
        gc.collect()
        for session in self.sessions:
            session.holder = None
        for job in self.jobs:
            if job.state == "running":
                job.holder, job.until = None, 0
        self.store = MemoryStore.open(self.root / "home", clock=self.clock)

    @invariant()
    def rows_say_what_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        stored = {job.id: job for job in reading.list_jobs(self.store.database)}
        assert {job.id: (job.kind, job.state, job.failures, job.retry_after, job.through) for job in self.jobs} == {
            job.id: (job.kind, job.state, job.failure_count, job.retry_after, job.source.through_sequence)
            for job in stored.values()
        }
        for session in self.sessions:
            found = self.store.get_session(session.id)
            assert (found.last_sequence, found.summary_sequence, found.covered_sequence) == (
                len(session.words),
                session.summary,
                session.covered,
            )
            assert found.held_until == (session.until if session.live(self.clock.now) else None)
        totals = self.store.totals()
        assert (totals.sessions, totals.events) == (len(self.sessions), sum(len(s.words) for s in self.sessions))
        depths = reading.queue_depths(self.store.database, now=self.clock.now)
        assert sum(
            depth.pending + depth.running + depth.waiting + depth.blocked + depth.failed + depth.completed
            for depth in depths.values()
        ) == len(self.jobs)

    @action(when=lambda self: self.sessions)
    def every_history_proves(self, data: st.DataObject) -> None:
        del data
        self.prove()

    def prove(self) -> None:
        for session in self.sessions:
            events = list(self.store.iterate_events(self.store.get_session(session.id)))
            assert [event.text for event in events] == session.words
            assert [event.sequence for event in events] == list(range(1, len(session.words) + 1))
        assert rows(self.store.database.path, "PRAGMA foreign_key_check") == []


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=30,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
