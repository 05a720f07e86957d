"""Sessions that were removed here: an import leaves them away, says so, and brings them back when asked (150, 157)."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from emelex_core.events import Event
from emelex_core.imports.records import CLAUDE_CODE, Position, SessionHeader
from emelex_core.imports.report import ImportTotals
from emelex_core.imports.storing.appender import Appender, Overtaken
from emelex_core.imports.storing.marks import Mark
from emelex_core.sessions import append
from emelex_core.sessions.records import ImportSource
from foreign import library, put, put_lines
from foreign_rows import CLAUDE_ID, growing_claude_code, growing_codex
from pictures import picture

TALK = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
OTHER = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]


def counts(totals: ImportTotals) -> tuple[int, int, int]:
    return totals.sessions, totals.removed, totals.events


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_deleted_session_stays_away_however_its_file_grows(tmp_path: Path, dry_run: bool) -> None:
    """Nothing is stored or queued, and the totals say why; a dry run says the same."""
    lines = growing_codex()
    with library(tmp_path) as books:
        path = put_lines(tmp_path, "rollout-1.jsonl", lines[:-2])
        (session,) = books.run(path).sessions
        books.store.delete_session(session.id)
        put_lines(tmp_path, "rollout-1.jsonl", lines)
        run = books.run(path, distill=True, dry_run=dry_run)
        assert counts(run.totals) == (0, 1, 0)
        (told,) = run.sessions
        assert (told.removed, told.already, told.id, told.workspace, told.distillation) == (True, False, "", None, None)
        assert told.source_id == session.source_id
        assert books.store.list_sessions() == []


def test_asked_for_again_it_is_as_if_it_had_never_gone(tmp_path: Path) -> None:
    """Whole, with its parts; from then on it grows like any other."""
    lines = growing_claude_code()
    with library(tmp_path) as books:
        path = put_lines(tmp_path, f"{CLAUDE_ID}.jsonl", lines)
        books.run(path)
        expected = books.all()
        for session in books.store.list_sessions():
            books.store.delete_session(session.id)
        assert counts(books.run(path).totals) == (0, len(expected), 0)
        assert books.run(path, again=True).totals.new_sessions == len(expected)
        assert books.all() == expected
        assert counts(books.run(path).totals) == (1, 0, 0)


def test_a_part_grows_on_without_what_it_was_a_part_of(tmp_path: Path) -> None:
    """A sidechain that was not deleted stays; one that was never stored stays away with its Session."""
    with library(tmp_path) as books:
        path = put_lines(tmp_path, f"{CLAUDE_ID}.jsonl", growing_claude_code())
        main, part = books.run(path).sessions
        held = books.lines(part.id)
        books.store.delete_session(main.id)
        run = books.run(path)
        assert [(told.source_id, told.removed) for told in run.sessions] == [
            (main.source_id, True),
            (part.source_id, False),
        ]
        assert books.lines(part.id) == held
    (tmp_path / "other").mkdir()
    with library(tmp_path / "other") as books:
        short = put_lines(tmp_path / "other", f"{CLAUDE_ID}.jsonl", growing_claude_code()[:3])
        (main,) = books.run(short).sessions
        books.store.delete_session(main.id)
        assert counts(books.run(path).totals) == (0, 2, 0)
        assert books.store.list_sessions() == []


def test_a_part_that_was_deleted_comes_back_by_itself(tmp_path: Path) -> None:
    """Also from before what was read of its file; its Session, which stayed, is as it was."""
    with library(tmp_path) as books:
        path = put_lines(tmp_path, f"{CLAUDE_ID}.jsonl", growing_claude_code())
        _, part = books.run(path).sessions
        expected = books.all()
        books.store.delete_session(part.id)
        assert books.run(path).totals.events == 0
        assert set(books.all()) == {CLAUDE_ID}
        run = books.run(path, again=True)
        assert [(told.source_id, told.already) for told in run.sessions] == [(CLAUDE_ID, True), (part.source_id, False)]
        assert books.all() == expected
        assert books.run(path, again=True).totals.events == 0


@pytest.mark.parametrize("form", ["claude-code", "openai-chat"])
def test_its_media_stay_away_too(tmp_path: Path, form: str) -> None:
    """What was erased must not lie in the asset store again because its transcript was looked at."""
    data = base64.b64encode(picture()).decode()
    with library(tmp_path) as books:
        if form == "claude-code":
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
            row = {"type": "user", "uuid": "u", "sessionId": CLAUDE_ID, "message": {"role": "user", "content": [image]}}
            path = put_lines(tmp_path, f"{CLAUDE_ID}.jsonl", [row])
        else:
            url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
            path = put(
                tmp_path, "talk.json", {"conversation_id": "t", "messages": [{"role": "user", "content": [url]}]}
            )
        (session,) = books.run(path).sessions
        assert len(books.store.list_assets()) == 1
        books.store.erase_session(session.id)
        assert books.run(path).totals.removed == 1
        assert books.store.list_assets() == []
        assert [path for path in books.store.assets_directory.rglob("*") if path.is_file() and path.suffix == ""] == []
        assert books.run(path, again=True).totals.assets == 1
        assert len(books.store.list_assets()) == 1


def test_a_branch_stays_away_and_its_conversation_grows(tmp_path: Path) -> None:
    """And what parts from that branch, unless it is stored; the main one's removal leaves the conversation unread."""
    with library(tmp_path) as books:
        path = put(tmp_path, "talk.json", {"conversation_id": "t", "messages": TALK})
        main = books.run(path).sessions[0]
        put(tmp_path, "talk.json", {"conversation_id": "t", "messages": OTHER})
        branch = books.run(path).sessions[1]
        books.store.delete_session(branch.id)
        run = books.run(path)
        assert [(told.source_id, told.removed) for told in run.sessions] == [
            (main.source_id, False),
            (branch.source_id, True),
        ]
        assert counts(run.totals) == (1, 1, 0)
        put(tmp_path, "talk.json", {"conversation_id": "t", "messages": [*TALK, {"role": "user", "content": "more"}]})
        assert counts(books.run(path).totals) == (1, 0, 1)
        books.store.delete_session(main.id)
        put(tmp_path, "talk.json", {"conversation_id": "t", "messages": OTHER})
        assert counts(books.run(path).totals) == (0, 1, 0)
        assert books.all() == {}


def test_a_file_of_several_keeps_the_others(tmp_path: Path) -> None:
    """A file that somebody put together: the one that was removed stays away, the other is stored."""
    first = growing_claude_code()
    other = "7d1f2a30-9999-4e0b-9a41-000000000002"
    renamed = [line.replace(CLAUDE_ID.encode(), other.encode()) for line in first]
    second = [line.replace(b"00000000-0000-4000", b"00000000-0000-4001") for line in renamed]
    with library(tmp_path) as books:
        for session in books.run(put_lines(tmp_path, f"{CLAUDE_ID}.jsonl", first)).sessions:
            books.store.delete_session(session.id)
        run = books.run(put_lines(tmp_path, "everything.jsonl", [*first, *second]))
        stored = {told.source_id for told in run.sessions if not told.removed}
        assert CLAUDE_ID not in stored
        assert other in stored
        assert set(books.all()) == stored


def test_one_that_was_removed_meanwhile_is_not_begun(tmp_path: Path) -> None:
    """The transaction that begins a Session asks: between a look and a commit another process may import and remove."""
    source = ImportSource(source=CLAUDE_CODE, source_id="s", cwd=None)
    mark = Mark(read=Position(offset=0, sha256=bytes(32)), settled_offset=0, settled_sequence=0)
    with library(tmp_path) as books:
        workspace = str(tmp_path / "workspace")
        writers = [
            Appender(books.store, SessionHeader(source=source, title="t"), None, None, workspace, again=again)
            for again in (False, True)
        ]
        books.store.delete_session(books.store.start_session(workspace, title="t", source=source).id)
        for writer in writers:
            writer.batch.append(append.prepare([Event.user("q")]))
        with pytest.raises(Overtaken):
            writers[0].commit(mark)
        assert books.store.list_sessions() == []
        writers[1].commit(mark)
        writers[1].let_go(distill=False)
        assert [session.source_id for session in books.store.list_sessions()] == ["s"]
        assert books.store.find_removed(CLAUDE_CODE, "s") is None


def test_two_files_of_one_session_are_one_session(tmp_path: Path) -> None:
    """Totals count Sessions, not files: what one file began and another passed by is one new Session."""
    lines = growing_claude_code()
    with library(tmp_path) as books:
        paths = [put_lines(tmp_path / name, f"{CLAUDE_ID}.jsonl", lines) for name in ("one", "two")]
        run = books.run(*paths)
        names = {told.source_id for told in run.sessions}
        assert len(run.sessions) > len(names)
        assert (run.totals.files, run.totals.sessions, run.totals.new_sessions) == (2, len(names), len(names))
        assert run.totals.already == 0
        later = books.run(*paths)
        assert [told.source_id for told in later.sessions] == [CLAUDE_ID, CLAUDE_ID]
        assert (later.totals.sessions, later.totals.already) == (1, 1)
