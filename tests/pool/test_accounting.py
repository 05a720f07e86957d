"""Every way in which a job can end, in a drain, in a pool, and among several in flight (issue 7, "Proof").

One table says what each costs: the attempts that were begun, what was told of them and in which order, what the metrics
count, and the row with its record (behaviours 120 to 135, 166 to 168, 190; reports K3).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import pytest

from emelex_core import MemoryStore
from emelex_core.errors import StaleJobLease, StorageBusy
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_queue import claims, pausing
from emelex_queue.cancel import cancel
from emelex_workers.observe.metrics import OUTCOMES, Counters
from emelex_workers.pool.events import JobLost
from emelex_workers.progress import JobEnded
from pools import Pool, job_of, kill, named, publish, until
from stores import edit, rows

Pools = Callable[..., Pool]
MODES: Final = ("drain", "pool", "in flight")
SHORT: Final = {"BACKOFF_FIRST_MS": 20, "BACKOFF_MAX_MS": 40}
"""Back-off of a few milliseconds, where the third attempt is waited for."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """One job under way in the process that `mode` names, and what a disturbance needs to reach it."""

    store: MemoryStore
    workspace: Path
    gate: Path
    session: str
    mode: str
    running: Pool

    @property
    def worker(self) -> int:
        """The process that holds the job."""
        return self.running.process.pid if self.mode == "drain" else self.running.pid_of("Worker-1")


Disturb = Callable[[Scene], AbstractContextManager[object]]
"""Does something to a job that has begun; the block is left when the ending has been looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What one way to end costs. `told` is attempt and outcome of each end; `error` is a part of the row's diagnostic.

    `by_others` says that who held the job cannot tell its end: whoever counts the loss does. The fields that begin with
    `drain_` stand where a drain differs: it is nobody's child, so that nobody knows what killed it, and it ends itself
    with an error where a worker of a pool is replaced. `drain_code` is the exit code of its first process.
    """

    title: str
    told: tuple[tuple[int, str], ...]
    state: JobState
    counted: int
    error: str | None = None
    by_others: bool = False
    limits: dict[str, int] = field(default_factory=dict[str, int])
    disturb: Disturb | None = None
    drain_told: tuple[tuple[int, str], ...] | None = None
    drain_error: str | None = None
    drain_code: int = 0


def stop(scene: Scene) -> AbstractContextManager[object]:
    scene.running.signal(signal.SIGTERM)
    return nullcontext()


def chat(scene: Scene) -> AbstractContextManager[object]:
    return scene.store.claim_session(scene.session, scene.workspace)


def take_away(scene: Scene) -> AbstractContextManager[object]:
    cancel(scene.store.database, job_of(scene.store, scene.session).id)
    return nullcontext()


def outlast_the_lease(scene: Scene) -> AbstractContextManager[object]:
    """The holder is stopped until its lease has run out and another has counted it; then it goes on."""
    kill(scene.worker, signal.SIGSTOP)
    edit(scene.store.database.path, "UPDATE jobs SET lease_until = 1 WHERE state = 'running'")
    (loss,) = claims.recover_lost(scene.store.database, clock=scene.store.clock)
    assert (loss.attempt, loss.diagnostic) == (1, claims.LEASE_EXPIRED)
    kill(scene.worker, signal.SIGCONT)
    return nullcontext()


def open_gate(scene: Scene) -> AbstractContextManager[object]:
    scene.gate.touch()
    return nullcontext()


DIED: Final = claims.OWNER_DIED
THRICE: Final = ((1, "retry"), (2, "retry"), (3, "failed"))
ENDINGS: Final = {
    "done": Ending(title="quick", told=((1, "completed"),), state=JobState.COMPLETED, counted=0),
    "failed once": Ending(
        title="fail", told=((1, "retry"),), state=JobState.PENDING, counted=1, error="attempt 1: the scripted engine"
    ),
    "failed three times": Ending(
        title="fail",
        limits=SHORT,
        told=THRICE,
        state=JobState.FAILED,
        counted=3,
        error="attempt 3: the scripted engine failed",
    ),
    "failed for good": Ending(
        title="permanent", told=((1, "failed"),), state=JobState.FAILED, counted=1, error="the scripted source never"
    ),
    "a fault in its code": Ending(
        title="fault", told=((1, "retry"),), state=JobState.PENDING, counted=1, error="ValueError: a fault in the"
    ),
    "stopped": Ending(title="hold 30", disturb=stop, told=((1, "released"),), state=JobState.PENDING, counted=0),
    "its Session became live": Ending(
        title="hold 30", disturb=chat, told=((1, "released"),), state=JobState.PENDING, counted=0
    ),
    "taken away by an operator": Ending(
        title="hold 30", disturb=take_away, told=((1, "released"),), state=JobState.PENDING, counted=0
    ),
    "its lease was lost": Ending(
        title="hold 30",
        limits={"RENEW_EVERY_MS": 1},
        disturb=outlast_the_lease,
        told=((1, "lost"),),
        drain_told=(),
        drain_code=StaleJobLease.exit_code,
        state=JobState.PENDING,
        counted=1,
        error=claims.LEASE_EXPIRED,
    ),
    "the database failed": Ending(
        title="locked",
        disturb=open_gate,
        told=(),
        drain_code=StorageBusy.exit_code,
        state=JobState.PENDING,
        counted=0,
    ),
    "its process was killed": Ending(
        title="die SIGKILL",
        told=((1, "retry"),),
        by_others=True,
        state=JobState.PENDING,
        counted=1,
        error="was killed by SIGKILL while the model computed (call 1)",
        drain_error=DIED,
        drain_code=-signal.SIGKILL,
    ),
    "its process was killed three times": Ending(
        title="die SIGSEGV",
        limits=SHORT,
        told=THRICE,
        by_others=True,
        state=JobState.FAILED,
        counted=3,
        error="attempt 3: the worker's process was killed by SIGSEGV",
        drain_error=DIED,
        drain_code=-signal.SIGSEGV,
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_costs_what_the_table_says(
    pool: Pools, store: MemoryStore, workspace: Path, tmp_path: Path, name: str, mode: str
) -> None:
    ending = ENDINGS[name]
    drains = mode == "drain"
    told = ending.drain_told if drains and ending.drain_told is not None else ending.told
    (session,) = publish(store, workspace, ending.title)
    gate = tmp_path / "gate"

    def start() -> Pool:
        options = {"in_flight": 3 if mode == "in flight" else 1}
        spec = {"drain": True} if drains else {"options": options}
        return pool(1, grace=0.0, limits=ending.limits, gate=str(gate), **spec)

    with ExitStack() as stack:
        one = start()
        runs = [one]
        if ending.disturb is not None:
            one.wait_for(named("JobStarted"))
            # What runs is not touched by a pause; nothing is claimed again until the ending has been looked at.
            pausing.pause(store.database, reason="one ending at a time", clock=store.clock)
            stack.enter_context(
                ending.disturb(
                    Scene(store=store, workspace=workspace, gate=gate, session=session, mode=mode, running=one)
                )
            )
        if drains:
            assert one.exit_code() == ending.drain_code
            until(lambda: len(_ends(runs)) >= len(told) or _again(runs, start))
        elif told:
            one.wait_for(lambda event: event["event"] in ("JobEnded", "JobLost"), count=len(told))
        else:
            one.wait_for(named("WorkerFault", kind="StorageBusy"))
        _check_told(_ends(runs), ending, told)
        _check_row(store, session, ending, ending.drain_error if drains else None)
        begun = [event["attempt"] for run in runs for event in run.of("JobStarted")]
        assert begun == list(range(1, len(begun) + 1))
        assert len(begun) == max(1, ending.counted)


def test_the_table_knows_every_outcome_and_every_state_that_an_attempt_can_leave() -> None:
    """A new outcome needs a row here, before it can be told."""
    assert {outcome for ending in ENDINGS.values() for _, outcome in ending.told} == set(OUTCOMES)
    assert {ending.state for ending in ENDINGS.values()} == set(JobState) - {JobState.RUNNING}


def _again(runs: list[Pool], start: Callable[[], Pool]) -> bool:
    """Run one more drain to its end, and ask again."""
    runs.append(start())
    runs[-1].exit_code()
    return False


def _ends(runs: list[Pool]) -> list[JobEnded | JobLost]:
    found: list[JobEnded | JobLost] = []
    for run in runs:
        found += [_typed(JobEnded, event) for event in run.of("JobEnded")]
        found += [_typed(JobLost, event) for event in run.of("JobLost")]
    return found


def _typed(kind: type[Any], event: dict[str, Any]) -> Any:
    return kind(**{one.name: event[one.name] for one in fields(kind)})


def _check_told(ends: list[JobEnded | JobLost], ending: Ending, told: tuple[tuple[int, str], ...]) -> None:
    """The events, and what metrics make of them."""
    assert [(end.attempt, end.outcome if isinstance(end, JobEnded) else "lost") for end in ends] == list(told)
    assert all(end.lost is ending.by_others for end in ends if isinstance(end, JobEnded))
    counters = Counters()
    for end in ends:
        counters.hear(end)
    counted = Counter(outcome for _, outcome in told)
    assert counters.attempts == {(kind, outcome): 0 for kind in JobKind for outcome in OUTCOMES} | {
        (JobKind.DISTILLATION, outcome): number for outcome, number in counted.items()
    }
    assert counters.expirations == (len(told) if ending.by_others else 0)
    ran = 0 if ending.by_others else len(told) - counted["lost"]
    assert sum(counters.run.counts) == ran


def _check_row(store: MemoryStore, session: str, ending: Ending, error: str | None) -> None:
    """The row, its diagnostic, and that exactly a completed job has a record."""
    expected = error or ending.error

    def as_told() -> bool:
        last = job_of(store, session).last_error
        return (last is None) if expected is None else (last is not None and expected in last)

    # A pool adds what killed a worker to a loss that somebody else was faster to count.
    until(as_told)
    job = job_of(store, session)
    assert (job.state, job.failure_count) == (ending.state, ending.counted)
    assert (job.retry_after is not None) == (ending.state is JobState.PENDING and ending.counted > 0)
    records = rows(store.database.path, "SELECT count(*) FROM job_records")
    assert records == [(int(ending.state is JobState.COMPLETED),)]
