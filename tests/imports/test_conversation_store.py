"""Conversations in a real store: batches, deaths, company and changes (formats.md, 6; behaviours 36 and 181)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import Cancelled, Invalid
from emelex_core.events import EventKind
from emelex_core.imports.conversations.readers import open_conversations
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.records import TranscriptFile
from emelex_core.imports.report import ImportedSession
from emelex_core.imports.storing.sink import LookingSink
from emelex_core.publish import PublishedJob
from foreign import library, put
from stores import answer, child, rows, sound

IMPORT = """
import json, sys
from pathlib import Path
from emelex_core import MemoryStore
from emelex_core.imports.importer import import_transcripts

home, path, workspace = sys.argv[1:]
said, failed = [], []
with MemoryStore.open(home) as store:
    totals = import_transcripts(
        store, [Path(path)], format="auto", workspace=Path(workspace), dry_run=False, distill=True,
        listen=lambda session: said.append([session.source_id, session.already, session.events]),
        problem=lambda where, error: failed.append(repr(error)),
    )
print(json.dumps({"said": said, "failed": failed, "events": totals.events}))
"""
LARGE = "word " * 300_000
"""1.5 MB: three turns of it are more than one batch."""


def _talk(*words: str) -> list[dict[str, Any]]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(words)]


WORDS = [f"{number} {LARGE if number % 2 == 0 else 'short'}" for number in range(12)]


class Scene:
    """A Home, a workspace, and a conversation of several batches that processes import."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.path = put(folder, "talk.json", {"conversation_id": "talk", "messages": _talk(*WORDS)})
        MemoryStore.open(self.home, create=True).close()

    @property
    def database(self) -> Path:
        return self.home / "memory" / "emelex.sqlite3"

    def start(self, *, fault: str = "", action: str = "") -> subprocess.Popen[str]:
        """Begin an import in a process of its own."""
        env = {"EMELEX_FAULT": fault, "EMELEX_FAULT_ACTION": action}
        return child(IMPORT, self.home, self.path, self.workspace, env=env)

    def texts(self) -> list[list[str]]:
        """What each Session holds."""
        with MemoryStore.open(self.home) as store:
            return [[event.text for event in store.iterate_events(session)] for session in store.list_sessions()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize(
    "fault",
    ["append.before_commit", "append.committed", "import.batch_committed", "import.batch_committed:3"],
)
def test_a_killed_import_leaves_whole_turns_and_goes_on(scene: Scene, fault: str) -> None:
    """Before its first commit nothing; later whole batches. Importing again makes it whole, and no branch of it."""
    with scene.start(fault=fault) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert sound(scene.database)
    assert rows(scene.database, "SELECT count(*) FROM sessions WHERE last_sequence = 0") == [(0,)]
    (left,) = scene.texts() or [[]]
    assert left == WORDS[: len(left)]
    assert len(left) % 2 == 0
    told = answer(scene.start())
    assert (told["failed"], told["events"]) == ([], len(WORDS) - len(left))
    assert scene.texts() == [WORDS]


@pytest.mark.parametrize("point", ["append.before_commit", "import.batch_committed"])
def test_two_imports_at_once(scene: Scene, point: str) -> None:
    """One stands wherever it stands; the other waits for it and finds everything there."""
    with scene.start(fault=point, action="stop") as first:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        second = scene.start()
        os.kill(first.pid, signal.SIGCONT)
        told: list[dict[str, Any]] = [answer(first), answer(second)]
    assert [said["failed"] for said in told] == [[], []]
    assert scene.texts() == [WORDS]
    assert sum(said["events"] for said in told) == len(WORDS)


def test_a_dry_run_counts_the_same_and_touches_nothing(tmp_path: Path) -> None:
    """With a store, without one, and over a store that has some of it."""
    path = put(tmp_path, "talk.json", _talk("q", "a", "q2", "a2"))
    with library(tmp_path) as books:
        dry = books.run(path, dry_run=True)
        assert (dry.totals.events, dry.totals.new_sessions, dry.sessions[0].id) == (4, 1, "")
        assert books.all() == {}
        wet = books.run(put(tmp_path, "talk.json", _talk("q", "a")))
        dry = books.run(put(tmp_path, "talk.json", _talk("q", "a", "q2", "a2")), dry_run=True)
        assert (dry.totals.events, dry.totals.new_sessions) == (2, 0)
        assert dry.sessions[0].id == wet.sessions[0].id
        assert [len(lines) for lines in books.all().values()] == [2]
    told: list[ImportedSession] = []
    totals = import_transcripts(
        None,
        [path],
        format="openai-chat",
        workspace=None,
        dry_run=True,
        distill=False,
        listen=told.append,
        problem=lambda path, error: None,
    )
    assert (totals.events, told[0].id, totals.new_sessions) == (4, "", 1)


def test_each_session_waits_for_one_distillation(tmp_path: Path) -> None:
    """Importing again publishes nothing more."""
    path = put(tmp_path, "talk.json", _talk("q", "a"))
    with library(tmp_path) as books:
        job = books.run(path, distill=True).sessions[0].distillation
        assert job is not None
        assert books.run(path, distill=True).sessions[0].distillation == job
        assert isinstance(books.store.queue_distillation(books.store.list_sessions()[0].id), PublishedJob)
        assert books.store.totals().sessions == 1


def test_imported_conversations_hold_no_authority(tmp_path: Path) -> None:
    """No snapshot is made of them (formats.md, section 6)."""
    with library(tmp_path) as books:
        session = books.run(put(tmp_path, "talk.json", _talk("q", "a"))).sessions[0]
        assert books.store.session_snapshot(session.id) is None
        assert books.store.get_session(session.id).model_reference is None


def test_a_stopped_import_keeps_what_it_stored(tmp_path: Path) -> None:
    rows = [{"session_id": name, "messages": _talk("q", "a")} for name in "abc"]
    path = put(tmp_path, "talks.json", rows)
    stop = CancelToken()
    told: list[ImportedSession] = []

    def listen(session: ImportedSession) -> None:
        told.append(session)
        stop.cancel()

    with library(tmp_path) as books:
        with pytest.raises(Cancelled):
            import_transcripts(
                books.store,
                [path],
                format="auto",
                workspace=tmp_path,
                dry_run=False,
                distill=False,
                listen=listen,
                problem=lambda path, error: None,
                stop=stop,
            )
        assert [session.source_id for session in told] == ["a"]
        assert list(books.all()) == ["a"]
        assert [session.already for session in books.run(path).sessions] == [True, False, False]


def test_a_deleted_session_comes_back_whole_when_asked_for_and_its_branches_stay(tmp_path: Path) -> None:
    path = put(tmp_path, "talk.json", _talk("q", "a"))
    with library(tmp_path) as books:
        first = books.run(path).sessions[0]
        books.run(put(tmp_path, "talk.json", _talk("q", "b")))
        books.store.delete_session(first.id)
        sessions = books.run(put(tmp_path, "talk.json", _talk("q", "a")), again=True).sessions
        assert [session.events for session in sessions] == [2]
        assert len(books.all()) == 2


def test_more_words_than_an_event_or_a_turn_holds(tmp_path: Path) -> None:
    """Split and counted, and known again at the next import."""
    messages = [{"role": "user", "content": "x" * 5_000_000}, {"role": "assistant", "content": "ok"}]
    calls = [
        {"id": f"c{n}", "function": {"name": "f", "arguments": '{"a":"' + "y" * 900_000 + '"}'}} for n in range(24)
    ]
    messages.append({"role": "assistant", "content": "", "tool_calls": calls})  # type: ignore[dict-item]  # calls are a list
    with library(tmp_path) as books:
        path = put(tmp_path, "talk.json", messages)
        run = books.run(path)
        assert run.totals.defects["cut_text"] == 1
        assert run.totals.defects["split_turn"] >= 1
        again = books.run(path)
        assert (again.totals.already, again.totals.events, again.totals.sessions) == (1, 0, 1)


def test_a_redacted_session_is_not_told_again(tmp_path: Path) -> None:
    """What a person had struck out does not come back with the next import."""
    path = put(tmp_path, "talk.json", _talk("my pin is PIN-7731", "noted"))
    with library(tmp_path) as books:
        session = books.run(path).sessions[0]

        def find(text: str) -> list[tuple[int, int]]:
            at = text.find("PIN-7731")
            return [(at, at + len("PIN-7731"))] if at >= 0 else []

        books.store.redact_session(session.id, find, kind="pattern")
        run = books.run(path)
        assert (run.totals.already, run.totals.sessions) == (1, 1)
        assert "PIN-7731" not in str(books.all())


def test_a_title_is_the_sources_own_else_the_first_words(tmp_path: Path) -> None:
    with library(tmp_path) as books:
        first = books.run(put(tmp_path, "a.json", {"title": "Named", "messages": _talk("q", "a")})).sessions[0]
        second = books.run(put(tmp_path, "b.json", _talk("What\nnow? " * 40, "a"))).sessions[0]
        assert first.title == "Named"
        assert second.title.startswith("What now?")
        assert len(second.title) <= 80
        third = books.run(put(tmp_path, "c.json", [{"role": "assistant", "content": "alone"}])).sessions[0]
        assert third.title == third.source_id


def test_a_file_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    put(folder, "a.json", _talk("q", "a"))
    put(folder, "b.json", b'[{"mapping":{"a":{"message":null}}},{"mapping"')
    with library(tmp_path) as books:
        run = books.run(folder)
        assert (run.totals.sessions, run.totals.failed_files) == (1, 1)
        assert isinstance(run.problems[0], Invalid)
        kinds = {event.kind for s in books.store.list_sessions() for event in books.store.iterate_events(s)}
        assert kinds == {EventKind.USER, EventKind.ASSISTANT}


def test_a_stop_is_heard_while_nothing_is_stored_yet(tmp_path: Path) -> None:
    """A large file is looked over first: that can be stopped, too (K8)."""
    nodes = {"u": {"message": None}}
    export = put(tmp_path, "export.json", [{"id": str(number), "mapping": nodes} for number in range(50)])
    log = put(tmp_path, "log.jsonl", b"".join(b'{"role":"user","content":"x"}\n' for _ in range(50)))
    for path, form in ((export, "chatgpt"), (log, "openai-chat")):
        reader = open_conversations(TranscriptFile(path=path, format=form, packed=False), LookingSink())
        beats: list[int] = []

        def stop(beats: list[int] = beats) -> None:
            beats.append(1)
            if len(beats) == 3:
                raise Cancelled("stop")

        reader.pulse = stop
        with pytest.raises(Cancelled):
            list(reader)
        assert len(beats) == 3
