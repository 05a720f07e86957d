"""`memory jobs`, its aliases, and publishing by hand (behaviours 127, 128, 136, 159, 162)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.errors import StaleJobLease
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from program import TRICKY, Program

Talk = Callable[..., Session]


@pytest.fixture
def fail(store: MemoryStore) -> Callable[[str], str]:
    """Make the oldest distillation terminal, as a worker does; return its id."""

    def make(reason: str) -> str:
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        lease.fail(reason, permanent=True)
        return lease.job.id

    return make


def test_jobs_are_listed_and_shown(emelex: Program, talk: Talk) -> None:
    """With their source; filters narrow the list."""
    session = talk(2)
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert (job["kind"], job["session"], job["state"]) == ("distillation", session.id, "pending")
    assert job["source"]["through_sequence"] == 8
    assert emelex("memory", "jobs", "show", job["id"][:8], "--json").json == job | {"record": None}
    assert job["id"] in emelex("memory", "jobs", "show", job["id"]).out
    for nothing in (["--state", "failed"], ["--kind", "compaction"]):
        assert emelex("memory", "jobs", "list", *nothing, "--json").lines == []
    assert len(emelex("memory", "jobs", "list", "--session", session.id[:8], "--state", "pending", "--json").lines) == 1


@pytest.mark.parametrize(("option", "word"), [("--state", "broken"), ("--kind", "Compaction"), ("--limit", "0")])
def test_unknown_words_are_usage_errors(emelex: Program, talk: Talk, option: str, word: str) -> None:
    """They name what there is."""
    talk(1)
    result = emelex("memory", "jobs", "list", option, word, "--json")
    assert (result.code, result.error["kind"]) == (2, "UsageError")


def test_a_failed_job_gets_another_chance(emelex: Program, talk: Talk, fail: Callable[[str], str]) -> None:
    """Same id, same source, no failures; the result is the documented shape (128, 162)."""
    talk(1)
    job_id = fail("the source is over the budget")
    (failed,) = emelex("memory", "failures", "--json").lines
    assert (failed["id"], failed["state"], failed["error"]) == (job_id, "failed", "the source is over the budget")
    assert emelex("memory", "status", "--json").json["queues"]["distillation"]["failed"] == 1
    (retried,) = emelex("memory", "retry", job_id[:8], "--json").lines
    assert (retried["type"], retried["id"], retried["state"]) == ("retried_memory_job", job_id, "pending")
    assert (retried["failure_count"], retried["source"]) == (0, failed["source"])
    again = emelex("memory", "jobs", "retry", job_id, "--json")
    assert (again.code, again.error["kind"]) == (3, "NotFound")


def test_retry_all(emelex: Program, talk: Talk, fail: Callable[[str], str]) -> None:
    """Every failed job; with none it says so and succeeds."""
    ids = []
    for _ in range(2):
        talk(1)
        ids.append(fail("no"))
    assert [line["id"] for line in emelex("memory", "jobs", "retry", "--all", "--json").lines] == ids
    result = emelex("memory", "jobs", "retry", "--all")
    assert (result.code, result.out, result.err) == (0, "", "emelex: no failed jobs\n")


def test_a_running_job_is_taken_back_uncounted(emelex: Program, talk: Talk, store: MemoryStore) -> None:
    """Seed: cancellation releases authority without consuming an attempt; the worker can settle nothing any more."""
    session = talk(1)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    cancelled = emelex("memory", "jobs", "cancel", lease.job.id[:8], "--json").json
    assert (cancelled["id"], cancelled["state"], cancelled["failure_count"]) == (lease.job.id, "pending", 0)
    with pytest.raises(StaleJobLease):
        lease.complete(lambda transaction: None, record={})
    again = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock, session_id=session.id)
    assert again is not None
    assert (again.job.id, again.job.attempt) == (lease.job.id, 1)
    again.release()


@pytest.mark.parametrize("state", ["pending", "completed", "failed"])
def test_what_does_not_run_cannot_be_cancelled(
    emelex: Program, talk: Talk, fail: Callable[[str], str], learn: Callable[..., None], state: str
) -> None:
    """Exit 3; the error says how the job stands, and it stays so."""
    talk(1)
    if state == "failed":
        fail("no")
    if state == "completed":
        learn("rule.parcels")
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    result = emelex("memory", "jobs", "cancel", job["id"], "--json")
    assert (result.code, result.error["kind"]) == (3, "NotFound")
    assert f"is {state}" in result.error["message"]
    assert emelex("memory", "jobs", "list", "--json").lines == [job]
    assert emelex("memory", "jobs", "cancel", "00000000").code == 3


def test_a_misspelt_id_changes_nothing(
    emelex: Program, talk: Talk, fail: Callable[[str], str], store: MemoryStore
) -> None:
    """All ids are resolved before the first job is touched."""
    talk(1)
    job_id = fail("no")
    assert emelex("memory", "retry", job_id, "00000000").code == 3
    assert [job.id for job in reading.failed_jobs(store.database)] == [job_id]


@pytest.mark.parametrize("arguments", [[], ["--all", "0123456789ab"]])
def test_retry_needs_jobs_or_all(emelex: Program, talk: Talk, arguments: list[str]) -> None:
    """Neither, and both, are usage errors."""
    talk(1)
    assert emelex("memory", "retry", *arguments).code == 2


def test_diagnostics_are_harmless(emelex: Program, talk: Talk, fail: Callable[[str], str]) -> None:
    """What an engine answered cannot steer a terminal (159)."""
    talk(1)
    job_id = fail(TRICKY)
    for command in (("memory", "failures"), ("memory", "jobs", "show", job_id)):
        out = emelex(*command).out
        assert "\\x1b[31mred" in out
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(out)


def test_distill_publishes_once(emelex: Program, talk: Talk, store: MemoryStore) -> None:
    """The same source is the same job (136); an empty Session has nothing to distil."""
    session = talk(1)
    published = emelex("memory", "distill", session.id[:8], "--json").json
    assert (published["type"], published["kind"], published["created"]) == ("published_job", "distillation", False)
    assert emelex("memory", "distill", session.id).code == 0
    empty = store.start_session(emelex.workspace, title="empty")
    assert emelex("memory", "distill", empty.id, "--json").json["type"] == "nothing_to_distill"


def test_distill_obeys_the_workspace_and_the_configuration(emelex: Program, talk: Talk, elsewhere: Path) -> None:
    """Another workspace's Session needs `--all`; a project that turned distillation off is obeyed, by name."""
    foreign, own = talk(1, place=elsewhere), talk(1)
    assert emelex("memory", "distill", foreign.id).code == 6
    assert emelex("memory", "distill", foreign.id, "--all").code == 0
    (emelex.workspace / ".git").mkdir()
    project = emelex.workspace / ".emelex.toml"
    project.write_text("[distillation]\nenabled = false\n", "utf-8")
    refused = emelex("memory", "distill", own.id, "--json")
    assert (refused.code, refused.error["kind"]) == (6, "Refused")
    assert str(project) in refused.error["message"]


@pytest.mark.model
def test_compact_says_when_there_is_nothing_to_gain(emelex: Program, talk: Talk) -> None:
    """Measured with the model's own tokenizer: exit 0, no job."""
    session = talk(2)
    result = emelex("memory", "compact", session.id[:8], "--json")
    assert result.code == 0, result.err
    assert (result.json["type"], result.json["session"]) == ("nothing_to_compact", session.id)
    assert result.json["tokens"] > 0
    assert emelex("memory", "jobs", "list", "--kind", "compaction", "--json").lines == []


@pytest.mark.model
def test_compact_publishes_what_is_due(emelex: Program, talk: Talk) -> None:
    """With a small context of the user's own a Session of some turns is due; twice is the same job."""
    session = talk(12)
    (emelex.home / "config.toml").write_text("[compaction]\ncontext_tokens = 4000\n", "utf-8")
    published = emelex("memory", "compact", session.id, "--json").json
    assert (published["type"], published.get("kind"), published.get("created")) == (
        "published_job",
        "compaction",
        True,
    ), published
    again = emelex("memory", "compact", session.id, "--json").json
    assert again["type"] == "nothing_to_compact"
    assert published["job"] in again["reason"]
