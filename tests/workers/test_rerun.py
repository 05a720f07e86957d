"""What made a result, and making it again: the same record gives the same bytes (issue 4, item 6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken, Generation, Request
from emelex_core.errors import Invalid, NotFound, StorageReadOnly
from emelex_core.events import Event
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_core.jobs.records import Job
from emelex_core.sessions.records import Session
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.engines import ConfiguredEngines, EngineSource
from emelex_workers.overrides import PolicyOverrides
from emelex_workers.rerun import Difference, reference_of, rerun
from scripted import ScriptedEngine, ScriptedSource, says, turn
from stores import edit, rows

Talk = Callable[[int], Session]
DATABASE = ("jobs", "events", "sessions", "knowledge", "knowledge_versions", "knowledge_proposals", "job_records")


def work(store: MemoryStore, engines: EngineSource) -> None:
    options = DrainOptions(policy=PolicyOverrides(context_tokens=3_072))
    drain(store, options, engines=engines, listen=lambda event: None, stop=CancelToken())


def job_of(store: MemoryStore, kind: JobKind) -> tuple[Job, dict[str, Any]]:
    (found,) = reading.list_jobs(store.database, kind=kind, state=JobState.COMPLETED)
    job, record = reading.get_job(store.database, found.id)
    assert record is not None
    return job, record


def contents(store: MemoryStore) -> list[object]:
    return [rows(store.database.path, f"SELECT * FROM {table} ORDER BY rowid") for table in DATABASE]


def words(text: str = "The importer read whole files, so large transcripts made the machine swap.") -> ScriptedSource:
    return ScriptedSource(ScriptedEngine(write=says(text)))


@pytest.fixture
def worked(store: MemoryStore, talk: Talk) -> MemoryStore:
    """A store with one compaction and one distillation, both done by a scripted model."""
    talk(12)
    work(store, words())
    return store


@pytest.mark.parametrize("kind", JobKind)
def test_a_record_says_everything_that_made_the_result(worked: MemoryStore, kind: JobKind) -> None:
    """Model snapshot, prompt version and hash, grammar hash, sampling, seed, engine version."""
    _, record = job_of(worked, kind)
    assert (record["model"], record["model_snapshot"], record["engine"]) == ("scripted", "scripted@1", "scripted")
    assert record["context_tokens"] == 3_072
    assert record["rules_version"]
    assert record["attempt"] == 1
    wording = record["wording"]
    assert {"prompt_version", "temperature", "seed", "calls_max"} <= wording.keys()
    assert len(wording["prompt_sha256"]) == len(wording["grammar_sha256"]) == len(record["result_sha256"]) == 64


def test_a_summary_carries_the_same_record(worked: MemoryStore) -> None:
    job, record = job_of(worked, JobKind.COMPACTION)
    session = worked.get_session(job.session_id)
    (summary,) = worked.read_events(session.id, after=session.summary_sequence - 1, limit=1)
    assert summary.provenance is not None
    assert summary.provenance["made_by"] == record
    assert record["result_sha256"] == hashlib.sha256(summary.text.encode()).hexdigest()


def test_each_version_of_an_entry_leads_to_its_record(worked: MemoryStore) -> None:
    job, _ = job_of(worked, JobKind.DISTILLATION)
    entries = worked.list_knowledge(None)
    assert entries
    assert {entry.job_id for entry in entries} == {job.id}


@pytest.mark.parametrize("kind", JobKind)
def test_the_same_model_gives_the_same_bytes_and_nothing_is_written(
    worked: MemoryStore, home: Path, kind: JobKind
) -> None:
    job, _ = job_of(worked, kind)
    before = contents(worked)
    with MemoryStore.open(home, read_only=True) as reading_only:
        found = rerun(reading_only, job.id[:8], words())
        with pytest.raises(StorageReadOnly):
            reading_only.retry_failed_job(job.id)
    assert (found.same, found.changed, found.lines, found.kind) == (True, (), (), kind)
    assert found.then == found.now
    assert found.then_sha256 == found.now_sha256
    assert contents(worked) == before


def shortening(request: Request, cancel: CancelToken) -> Generation:
    """A model that leaves a few words out of the sample's long sentences, and copies everything else."""
    text = request.messages[-1].text
    text = text.replace(" now, and the report is written", ", written").replace("and it is restored", "restored")
    return says(text)(request, cancel)


@pytest.mark.parametrize("kind", JobKind)
def test_another_model_shows_its_difference(worked: MemoryStore, kind: JobKind) -> None:
    """Both as the job was run: without a certificate, so that Knowledge stands in its speakers' words whoever runs."""
    job, record = job_of(worked, kind)
    assert record["wording"]["worded_by_model"] == 0
    before = contents(worked)
    found = rerun(worked, job.id, ScriptedSource(ScriptedEngine(write=shortening, context=2_048)))
    changed = {change.field: (change.then, change.now) for change in found.changed}
    assert changed["context_tokens"] == (3_072, 2_048)
    assert changed["wording.worded_by_model"][1] > 0
    assert found.same is (kind is JobKind.DISTILLATION)
    if kind is JobKind.DISTILLATION:
        return
    assert found.lines[:2] == ("--- then", "+++ now")
    assert changed["result_sha256"] == (found.then_sha256, found.now_sha256)
    assert contents(worked) == before


def test_a_second_summary_is_repeated_on_top_of_the_first(worked: MemoryStore, workspace: Path) -> None:
    """The source then began behind the first Summary, and does so again."""
    first, _ = job_of(worked, JobKind.COMPACTION)
    with worked.claim_session(first.session_id, workspace) as lease:
        lease.replay()
        lease.append_turns([turn(number) for number in range(20, 32)])
    work(worked, words())
    jobs = reading.list_jobs(worked.database, kind=JobKind.COMPACTION, state=JobState.COMPLETED)
    assert len(jobs) == 2
    assert [rerun(worked, job.id, words()).same for job in jobs] == [True, True]
    _, record = reading.get_job(worked.database, jobs[0].id)
    assert record is not None
    assert record["folds_prior"]
    assert record["prior_summary_sequence"] > 0


def test_a_later_distillation_does_not_change_what_an_earlier_one_was_shown(worked: MemoryStore, talk: Talk) -> None:
    """Knowledge is taken as it stood: the second Session says much of the same."""
    first, _ = job_of(worked, JobKind.DISTILLATION)
    edit(worked.database.path, "UPDATE job_records SET created_at = created_at - 10")
    session = talk(14)
    work(worked, words())
    second = next(
        job for job in reading.list_jobs(worked.database, kind=JobKind.DISTILLATION) if job.session_id == session.id
    )
    for job in (first, second):
        found = rerun(worked, job.id, words())
        assert (found.same, found.changed) == (True, ())


def test_knowledge_that_is_not_as_it_was_is_named(worked: MemoryStore) -> None:
    """What was shown to the job cannot be had again: the record's digest of it tells."""
    job, _ = job_of(worked, JobKind.DISTILLATION)
    edit(worked.database.path, "UPDATE knowledge_versions SET job_id = 'another', created_at = 1")
    edit(worked.database.path, "UPDATE knowledge_changes SET job_id = 'another', changed_at = 1")
    found = rerun(worked, job.id, words())
    assert "existing_sha256" in {change.field for change in found.changed}
    assert found.then is None
    assert found.then_sha256 != found.now_sha256


def test_a_tombstone_is_compared_with_its_quote(store: MemoryStore, workspace: Path) -> None:
    """A job that hid an entry was shown it, and its record says where the words stand that hid it (behaviour 139)."""
    for said in ("We use pnpm for the whole project, never npm.", "Hello there.\n\nWe no longer use pnpm."):
        session = store.start_session(workspace, title="tools")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turns([[Event.user(said), Event.assistant("I have read it.")]])
            lease.release(distill=True)
        work(store, words())
    (job,) = reading.list_jobs(store.database, kind=JobKind.DISTILLATION, session_id=session.id)
    assert store.list_knowledge(None) == []
    found = rerun(store, job.id, words())
    assert (found.same, found.changed) == (True, ())
    assert found.then == found.now
    assert '"operation":"tombstone","quote":"We no longer use pnpm."' in found.now
    _, record = reading.get_job(store.database, job.id)
    assert "pnpm" not in str(record), "nobody redacts a record"


def test_only_completed_jobs_are_compared(store: MemoryStore, talk: Talk) -> None:
    talk(2)
    (job,) = reading.list_jobs(store.database)
    source = words()
    with pytest.raises(Invalid, match="is pending"):
        rerun(store, job.id, source)
    with pytest.raises(Invalid, match="is pending"):
        reference_of(store, job.id)
    with pytest.raises(NotFound):
        rerun(store, "0" * 8, source)
    assert source.loads == 0


def test_a_record_that_does_not_say_enough_is_refused_by_field(worked: MemoryStore) -> None:
    job, _ = job_of(worked, JobKind.COMPACTION)
    edit(worked.database.path, """UPDATE job_records SET record = CAST('{"attempt":1}' AS BLOB)""")
    with pytest.raises(Invalid, match="result_sha256"):
        rerun(worked, job.id, words())


@pytest.mark.model
def test_the_builtin_model_gives_the_same_bytes_in_another_process_of_thought(
    store: MemoryStore, home: Path, talk: Talk
) -> None:
    """Fixed threads, one prompt cache cold and one warm: Summary and Knowledge come out byte for byte."""
    talk(20)
    engines = ConfiguredEngines(
        reference="builtin:smollm2-135m", models_directory=Home(home).models, endpoints={}, threads=1
    )
    work(store, engines)
    found: list[Difference] = []
    for kind in JobKind:
        job, record = job_of(store, kind)
        assert record["engine"].endswith("threads 1")
        assert reference_of(store, job.id) == engines.reference
        found.append(rerun(store, job.id, engines))
    assert [(difference.same, difference.changed) for difference in found] == [(True, ())] * 2
    _, record = job_of(store, JobKind.COMPACTION)
    assert record["wording"]["calls"] > 0, "the model was asked"
