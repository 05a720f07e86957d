"""What a growing transcript may change in the store, and what it may not (ADR 0012)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.archive.check import check
from emelex_core.errors import Invalid
from emelex_core.events import Event, TextPart, ToolCallPart
from emelex_core.imports.records import CLAUDE_CODE, CODEX
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind, JobState
from emelex_queue import claims
from foreign_rows import CLAUDE_ID, CODEX_ID, growing_claude_code, growing_codex
from stores import edit, rows
from transcripts import holdings, import_into

NAMES = {CLAUDE_CODE: f"{CLAUDE_ID}.jsonl", CODEX: f"rollout-2026-01-01T00-00-00-{CODEX_ID}.jsonl"}
LINES = {CLAUDE_CODE: growing_claude_code(), CODEX: growing_codex()}


class Place:
    """One store, one transcript, and the Session that it becomes."""

    def __init__(self, folder: Path, form: str) -> None:
        self.form = form
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.path = folder / NAMES[form]
        self.store = MemoryStore.open(folder / "home", create=True)

    def take(self, lines: int | None = None, *, distill: bool = True) -> Any:
        """Import the transcript as it is after so many lines; return what was said of its main Session."""
        self.path.write_bytes(b"".join(line + b"\n" for line in LINES[self.form][:lines]))
        return import_into(self.store, self.path, workspace=self.workspace, distill=distill).sessions[0]

    @property
    def session(self) -> Session:
        """The main Session."""
        session = self.store.find_imported(self.form, CLAUDE_ID if self.form == CLAUDE_CODE else CODEX_ID)
        assert session is not None
        return session

    def words(self, *, through: int | None = None) -> Counter[str]:
        """How often each text and call stands in the main Session."""
        events = [e for e in self.store.iterate_events(self.session) if through is None or e.sequence <= through]
        texts = [(e.kind, part) for e in events for part in e.parts if isinstance(part, TextPart | ToolCallPart)]
        return Counter(f"{kind}:{part}" for kind, part in texts)

    def stored(self) -> list[tuple[Any, ...]]:
        """Every event of the store, byte for byte."""
        return rows(self.store.database.path, "SELECT * FROM events ORDER BY row")


@pytest.fixture(params=[CLAUDE_CODE, CODEX])
def form(request: pytest.FixtureRequest) -> str:
    """Both formats."""
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path, form: str) -> Iterator[Place]:
    """A store and a transcript."""
    made = Place(tmp_path, form)
    yield made
    assert check(made.store).findings == ()
    made.store.close()


def _work(place: Place) -> None:
    """A worker distils all that is there, and finds nothing of use."""
    while lease := claims.claim(place.store.database, JobKind.DISTILLATION, clock=place.store.clock):
        lease.complete(lambda transaction: None, record={"kind": "distillation"})


def test_what_was_distilled_stays_and_the_rest_follows(place: Place) -> None:
    """47 and 177: at every cut, a tail on which a job rests is never changed; nothing is lost or said twice."""
    for cut in range(5, len(LINES[place.form])):
        with place.store.database.write() as transaction:
            transaction.run("DELETE FROM sessions")
        place.take(cut)
        before = place.stored()
        _work(place)
        place.take()
        assert place.stored()[: len(before)] == before
        assert place.words() == _expected(place)
        assert place.take().already
        _work(place)


def _expected(place: Place) -> Counter[str]:
    """The words of one import of the whole."""
    key = f"{place.form}"
    if key not in _KNOWN:
        folder = place.path.parent / "other"
        folder.mkdir()
        other = Place(folder, place.form)
        other.take()
        _KNOWN[key] = other.words()
        other.store.close()
    return _KNOWN[key]


_KNOWN: dict[str, Counter[str]] = {}


def test_growth_behind_a_kept_tail_is_exact_again(place: Place) -> None:
    """Only the turn that was built upon stays as it was; line by line, every word that follows is there once."""
    half = len(LINES[place.form]) // 2
    place.take(half)
    kept = place.session.last_sequence
    _work(place)
    for number in range(half + 1, len(LINES[place.form]) + 1):
        place.take(number)
    assert place.session.last_sequence >= kept
    assert place.words() == _expected(place)


def test_one_distillation_waits_however_often_a_file_grows(place: Place) -> None:
    """136: the job that nobody tried follows the transcript; its source is always what the Session holds."""
    jobs = set[str]()
    for number in range(5, len(LINES[place.form]) + 1):
        said = place.take(number)
        jobs.add(said.distillation)
    mine = [job for job in reading.list_jobs(place.store.database) if job.session_id == place.session.id]
    assert [job.id for job in mine] == list(jobs)
    assert mine[0].source.through_sequence == place.session.last_sequence
    _work(place)


def test_a_waiting_job_follows_also_without_publishing(place: Place) -> None:
    """What is taken back is no job's source any more, in the same transaction, whatever `--no-distill` says."""
    half = len(LINES[place.form]) // 2
    first = place.take(half)
    place.take(distill=False)
    _work(place)
    job, _ = reading.get_job(place.store.database, first.distillation)
    assert job.state is JobState.COMPLETED


def test_a_failed_job_is_kept_too(place: Place) -> None:
    """A retry must find the source that the job names."""
    place.take(len(LINES[place.form]) // 2)
    while lease := claims.claim(place.store.database, JobKind.DISTILLATION, clock=place.store.clock):
        lease.fail("no", permanent=True)
    before = place.stored()
    place.take()
    assert place.stored()[: len(before)] == before
    assert place.words() == _expected(place)


def test_an_older_copy_changes_nothing(place: Place) -> None:
    """Neither a copy from before nor a torn one adds the way in which it ends."""
    place.take()
    whole, before = place.stored(), holdings(place.store)
    for cut in range(5, len(LINES[place.form])):
        assert place.take(cut).already
        assert place.stored() == whole
    assert place.take().already
    assert holdings(place.store) == before


def test_a_rewritten_file_takes_nothing_back(place: Place) -> None:
    """Lines that are gone from a file stay in the Session; what is new in it is added under its own records."""
    place.take()
    before = place.stored()
    changed = [line for number, line in enumerate(LINES[place.form]) if number != 3]
    place.path.write_bytes(b"".join(line + b"\n" for line in changed))
    import_into(place.store, place.path, workspace=place.workspace)
    assert place.stored()[: len(before)] == before


def test_what_was_struck_out_does_not_come_back(place: Place) -> None:
    """187: a transcript that was redacted is never made whole again from its file."""
    half = len(LINES[place.form]) // 2
    place.take(half)
    session = place.session
    edit(
        place.store.database.path,
        "INSERT INTO redactions (session_id, kind, first_sequence, events, places, chain_before, chain_after,"
        " redacted_at) VALUES (?, 'pattern', 1, 1, 1, zeroblob(32), zeroblob(32), 0)",
        (session.id,),
    )
    before = place.stored()
    place.take()
    assert place.stored()[: len(before)] == before
    assert place.take().already


def test_words_of_others_are_never_taken_back(place: Place) -> None:
    """An event that no transcript said stays, and so does everything before it."""
    place.take(len(LINES[place.form]) // 2, distill=False)
    with place.store.claim_session(place.session.id, place.workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("a note of my own")])
    before = place.stored()
    place.take()
    assert place.stored()[: len(before)] == before
    assert place.words() - _expected(place) == Counter({"user:" + str(TextPart(text="a note of my own")): 1})


@pytest.mark.parametrize("through", ["inside a turn", "under a job"])
def test_the_lease_refuses_to_take_back(place: Place, through: str) -> None:
    """The guard is in the transaction: whoever asks for more gets an error, and nothing is written."""
    place.take()
    if through == "under a job":
        _work(place)
    before = place.stored()
    inside = next(row for row in rows(place.store.database.path, _INSIDE, (place.session.id,)))[0]
    with place.store.claim_session(place.session.id, place.workspace) as lease:
        lease.prove()
        with pytest.raises(Invalid):
            lease.replace_tail(0 if through == "under a job" else inside, [])
    assert place.stored() == before


_INSIDE = "SELECT sequence FROM events WHERE session_id = ? AND turn_position < turn_size - 1 ORDER BY sequence"
