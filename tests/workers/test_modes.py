"""What becomes of what a distillation finds: applied, or kept for a person (issue 8, item 6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore
from emelex_core.engine.ports import CancelToken
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_core.knowledge.records import Mode
from emelex_core.sessions.records import Session
from emelex_workers.distillation import mode_for
from emelex_workers.drain import DrainOptions, drain
from emelex_workers.rerun import rerun
from scripted import ScriptedEngine, ScriptedSource, says
from stores import rows

Talk = Callable[[int], Session]
REVIEW = '[distillation]\nmode = "review"\n'


def words() -> ScriptedSource:
    return ScriptedSource(ScriptedEngine(write=says("The importer read whole files, so the machine swapped.")))


def work(store: MemoryStore) -> None:
    drain(store, DrainOptions(), engines=words(), listen=lambda event: None, stop=CancelToken())


def proposals(store: MemoryStore) -> list[object]:
    return list(rows(store.database.path, "SELECT DISTINCT state, reason FROM knowledge_proposals"))


def test_without_a_word_everything_is_applied(store: MemoryStore, talk: Talk) -> None:
    talk(3)
    work(store)
    assert store.list_knowledge(None)
    assert proposals(store) == []


@pytest.mark.parametrize("whose", ["user", "project"])
def test_in_review_everything_becomes_a_proposal(
    store: MemoryStore, home: Path, workspace: Path, talk: Talk, whose: str
) -> None:
    """The workspace of the job decides, whoever runs the worker; the record says so, and a repeated run agrees."""
    session = talk(3)
    if whose == "user":
        Home(home).config.write_text(REVIEW)
        Home(home).config.chmod(0o600)
    else:
        (workspace / ".git").mkdir(exist_ok=True)
        (workspace / ".emelex.toml").write_text(REVIEW)
    work(store)
    assert store.list_knowledge(None) == []
    assert proposals(store) == [("pending", "review")]
    (job,) = reading.list_jobs(store.database, kind=JobKind.DISTILLATION, session_id=session.id)
    _, record = reading.get_job(store.database, job.id)
    assert record is not None
    assert record["mode"] == "review"
    found = rerun(store, job.id, words())
    assert (found.same, found.changed, found.then == found.now) == (True, (), True)


@pytest.mark.parametrize("text", ["[distillation\n", '[distillation]\nmode = "later"\n', "[models]\nendpoint = {}\n"])
def test_a_project_file_that_is_not_understood_has_asked_for_review(
    store: MemoryStore, home: Path, workspace: Path, text: str
) -> None:
    (workspace / ".git").mkdir(exist_ok=True)
    (workspace / ".emelex.toml").write_text(text)
    assert mode_for(Home(home), workspace) is Mode.REVIEW


def test_a_store_without_its_home_has_no_configuration(workspace: Path) -> None:
    assert mode_for(None, workspace) is Mode.AUTO
