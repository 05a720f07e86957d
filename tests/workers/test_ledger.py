"""What a killed worker had finished is not done again (issue 8, item 1; behaviours 165, 178): real SIGKILLs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from emelex_core import MemoryStore
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.engine.ports import CancelToken, Generation, Request
from emelex_core.errors import EngineFailure
from emelex_core.jobs import ledger, reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.ledger import Leaf, Progress
from emelex_queue import claims
from emelex_workers import summarise
from emelex_workers.attempt import attempt
from emelex_workers.progress import JobEnded
from scripted import ScriptedEngine, Writer, python, says, turn
from stores import behind, rows

THROUGH = 112
WORKER = """
    import os, sys
    sys.path[:0] = sys.argv[3:]
    from emelex_core import MemoryStore
    from emelex_core.engine.ports import CancelToken, Generation, FinishReason
    from emelex_core.jobs.kinds import JobKind
    from emelex_queue import claims
    from emelex_workers.attempt import attempt
    from scripted import ScriptedEngine
    from test_ledger_writer import shorten

    log = open(sys.argv[2], "a")
    def write(request, cancel):
        log.write("call\\n"); log.flush()
        return shorten(request)

    with MemoryStore.open(sys.argv[1]) as store:
        lease = claims.claim(store.database, JobKind.COMPACTION, clock=store.clock)
        attempt(store, lease, ScriptedEngine(write=write, context=1_024), stop=CancelToken(), chunking=True)
"""
WRITER = """
from emelex_core.engine.ports import FinishReason, Generation
def shorten(request):
    text = request.messages[-1].text.replace("went through the importer and ", "")
    return Generation(text=text, finish_reason=FinishReason.STOP, prompt_tokens=7, output_tokens=3, seconds=0.1)
"""


def shorten(request: Request, cancel: CancelToken) -> Generation:
    made: dict[str, Callable[[Request], Generation]] = {}
    exec(WRITER, made)
    return made["shorten"](request)


def publish(store: MemoryStore, workspace: Path) -> str:
    """Make a Session of many turns, and publish a compaction that reads it in many small windows."""
    session = store.start_session(workspace, title="long")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turns([turn(number) for number in range(1, 31)])
        lease.release()
    plan = CompactionPlan(through_sequence=THROUGH, target_tokens=900, session_tokens=0, kept_tokens=0)
    return store.queue_compaction(session.id, plan).id


@pytest.fixture
def job_id(store: MemoryStore, workspace: Path) -> str:
    """A published compaction."""
    return publish(store, workspace)


def kill(home: Path, tmp_path: Path, fault: str) -> int:
    """Work at the job in a process that dies at a fault point; return how many calls it made."""
    (tmp_path / "test_ledger_writer.py").write_text(WRITER)
    log = tmp_path / "calls"
    support = str(Path(__file__).resolve().parents[1] / "support")
    child = python(WORKER, str(home), str(log), str(tmp_path), support, env={**os.environ, "EMELEX_FAULT": fault})
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -9, errors
    return log.read_text().count("call") if log.exists() else 0


def work(store: MemoryStore, write: Writer, count: list[str]) -> JobEnded:
    """Work at the job here, counting leaves and calls."""
    later = store.clock() + 10 * 60_000
    claims.recover_lost(store.database, clock=store.clock)
    lease = claims.claim(store.database, JobKind.COMPACTION, clock=lambda: later)
    assert lease is not None

    def counted(request: Request, cancel: CancelToken) -> Generation:
        count.append("call")
        return write(request, cancel)

    return attempt(store, lease, ScriptedEngine(write=counted, context=1_024), stop=CancelToken(), chunking=True)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the points that this process reached, one for each leaf and each call."""
    reached: list[str] = []
    monkeypatch.setattr(summarise.faults, "reach", reached.append)
    return reached


@pytest.fixture
def undisturbed(tmp_path: Path, workspace: Path) -> str:
    """The digest of the same Session's Summary, made in another Home without any kill."""
    with MemoryStore.open(tmp_path / "other", create=True) as other:
        job = publish(other, workspace)
        assert work(other, shorten, []).outcome == "completed"
        record = reading.get_job(other.database, job)[1]
    assert record is not None
    return str(record["result_sha256"])


@pytest.mark.parametrize("nth", [1, 3])
def test_finished_leaves_are_not_computed_again(
    store: MemoryStore, home: Path, tmp_path: Path, job_id: str, undisturbed: str, count: list[str], nth: int
) -> None:
    """The next attempt begins behind the last leaf that was written down, and makes the same Summary."""
    assert kill(home, tmp_path, f"fold.leaf:{nth}") == 0
    (kept,) = rows(store.database.path, "SELECT count(*) FROM job_leaves")[0]
    assert 1 <= kept <= nth
    ended = work(store, shorten, count)
    assert (ended.outcome, ended.attempt) == ("completed", 2)
    record = reading.get_job(store.database, job_id)[1]
    assert record is not None
    assert record["window_count"] == count.count("fold.leaf") + kept
    assert record["result_sha256"] == undisturbed
    assert (record["attempt"], record["refusals"]) == (2, 0)


def test_finished_calls_are_not_made_again(
    store: MemoryStore, home: Path, tmp_path: Path, job_id: str, undisturbed: str, count: list[str]
) -> None:
    """Calls of the model are what a job's time goes to: those that ended before the kill are taken from the ledger."""
    before = kill(home, tmp_path, "call.kept:2")
    assert before == 2
    work(store, shorten, count)
    record = reading.get_job(store.database, job_id)[1]
    assert record is not None
    assert record["wording"]["calls"] == before + count.count("call") > before
    assert count.count("fold.leaf") < record["window_count"]
    assert record["result_sha256"] == undisturbed


def test_each_event_is_in_exactly_one_leaf(store: MemoryStore, home: Path, tmp_path: Path, job_id: str) -> None:
    """The schema refuses a gap, an overlap, a second first leaf, and a leaf behind one that has a follower."""
    kill(home, tmp_path, "fold.leaf:3")
    kept = rows(store.database.path, "SELECT first_sequence, last_sequence FROM job_leaves ORDER BY 1")
    assert [first for first, _ in kept[1:]] == [last + 1 for _, last in kept[:-1]]
    end = kept[-1][1]
    wrong = [
        (end + 2, end + 3, end),
        (end, end + 3, end - 1),
        (end + 1, end + 1, None),
        (kept[1][0], end + 5, kept[0][1]),
        (end + 5, end + 6, end + 4),
    ]
    with behind(store.database.path) as raw:
        raw.pragma("foreign_keys", "ON")
        for first, last, previous in wrong:
            with pytest.raises(apsw.ConstraintError):
                raw.execute("INSERT INTO job_leaves VALUES (?, ?, ?, ?, 1, 1)", (job_id, first, last, previous))


@pytest.mark.parametrize("ending", ["completed", "failed"])
def test_the_ledger_goes_with_the_settlement(
    store: MemoryStore, home: Path, tmp_path: Path, job_id: str, ending: str
) -> None:
    """What the provenance states stays; a failed job that is retried begins anew."""
    kill(home, tmp_path, "call.kept:1")

    def fails(request: Request, cancel: CancelToken) -> Generation:
        raise EngineFailure("the library gave up")

    write = shorten if ending == "completed" else fails
    while work(store, write, []).outcome == "retry":
        assert ledger.find_call(store.database, job_id, "0" * 64) is None
        with store.database.write() as transaction:
            transaction.run("UPDATE jobs SET run_at = 0, retry_after = NULL WHERE state = 'pending'")
    assert reading.get_job(store.database, job_id)[0].state is JobState(ending)
    for table in ("job_ledgers", "job_leaves", "job_calls"):
        assert rows(store.database.path, f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_worker_that_lost_its_job_writes_nothing(store: MemoryStore, job_id: str) -> None:
    """A pending, completed or missing job has no ledger to write to."""
    for job in (job_id, "no such job"):
        ledger.keep_call(store.database, job, "0" * 64, b"{}")
        ledger.count_refusal(store.database, job)
        leaf = Leaf(first_sequence=1, last_sequence=2, events=2, tokens=5)
        ledger.keep(store.database, job, "0" * 64, Progress(leaves=(leaf,), state=b"x", chain=b"0" * 32), known=0)
    assert rows(store.database.path, "SELECT count(*) FROM job_ledgers") == [(0,)]


def test_a_state_of_other_bytes_or_settings_is_not_taken_up(
    store: MemoryStore, home: Path, tmp_path: Path, job_id: str, undisturbed: str, count: list[str]
) -> None:
    kill(home, tmp_path, "fold.leaf:3")
    with behind(store.database.path) as raw:
        raw.execute("UPDATE job_ledgers SET chain = zeroblob(32)")
    assert work(store, shorten, count).outcome == "completed"
    record = reading.get_job(store.database, job_id)[1]
    assert record is not None
    assert record["window_count"] == count.count("fold.leaf")
    assert record["result_sha256"] == undisturbed


def test_a_refusal_changes_the_next_attempt_and_a_kill_does_not(
    store: MemoryStore, home: Path, tmp_path: Path, job_id: str
) -> None:
    """Behaviour 178, ADR 0021: smaller windows and another grammar after a refusal; the third says what it is."""
    kill(home, tmp_path, "fold.leaf:1")
    ended = work(store, says(""), [])
    assert (ended.outcome, ended.attempt) == ("retry", 2)
    assert ledger.refusals(store.database, job_id) == 1
    with store.database.write() as transaction:
        transaction.run("UPDATE jobs SET run_at = 0, retry_after = NULL WHERE state = 'pending'")
    ended = work(store, says(""), [])
    assert (ended.outcome, ended.attempt) == ("completed", 3)
    record = reading.get_job(store.database, job_id)[1]
    assert record is not None
    assert (record["attempt"], record["refusals"], record["form"]) == (3, 1, "anchors-only")
    assert json.dumps(record)
