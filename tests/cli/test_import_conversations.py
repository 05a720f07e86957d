"""`emelex import` of the formats without byte offsets, from the outside (contract; issue 2, "Bad input")."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from foreign import put
from program import Program

TALK = [{"role": "user", "content": "Never sort parcels by colour."}, {"role": "assistant", "content": "Noted."}]


def gemini(folder: Path) -> Path:
    messages = [
        {"id": "u", "type": "user", "content": TALK[0]["content"]},
        {"id": "g", "type": "gemini", "content": TALK[1]["content"]},
    ]
    return put(folder, "session.json", {"sessionId": "s", "projectHash": "h", "messages": messages})


def openai_chat(folder: Path) -> Path:
    return put(folder, "talk.json", TALK)


def chatgpt(folder: Path) -> Path:
    nodes = {
        str(at): {
            "parent": str(at - 1) if at else None,
            "children": [],
            "message": {
                "author": {"role": said["role"]},
                "content": {"content_type": "text", "parts": [said["content"]]},
            },
        }
        for at, said in enumerate(TALK)
    }
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w") as export:
        export.writestr("conversations.json", json.dumps([{"id": "c", "mapping": nodes, "current_node": "1"}]))
    return path


def openai_agents(folder: Path) -> Path:
    connection = apsw.Connection(str(folder / "sessions.db"))
    connection.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
    for said in TALK:
        connection.execute(
            "INSERT INTO agent_messages VALUES (NULL, 's', ?, '2026-01-02 03:04:05')", (json.dumps(said),)
        )
    connection.close()
    return folder / "sessions.db"


def langgraph(folder: Path) -> Path:
    connection = apsw.Connection(str(folder / "checkpoints.db"))
    connection.execute(
        "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint)"
    )
    state = json.dumps({"channel_values": {"messages": TALK}})
    connection.execute("INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'json', ?)", (state.encode(),))
    connection.close()
    return folder / "checkpoints.db"


MAKERS: dict[str, Callable[[Path], Path]] = {
    "gemini": gemini,
    "openai-chat": openai_chat,
    "chatgpt": chatgpt,
    "openai-agents": openai_agents,
    "langgraph": langgraph,
}


@pytest.mark.parametrize("form", MAKERS)
def test_import_tells_shows_and_repeats(emelex: Program, tmp_path: Path, form: str) -> None:
    """A dry run, the import, its Session shown and queued, and a second import that changes nothing."""
    path = MAKERS[form](tmp_path)
    dry, _ = emelex("import", form, path, "--dry-run", "--json").lines
    assert (dry["id"], dry["turns"], dry["events"]) == (None, 1, 2)
    assert not emelex.home.exists()
    session, complete = emelex("import", form, path, "--json").lines
    assert (session["source"], session["turns"], session["events"], session["skipped"]) == (form, 1, 2, {})
    assert (complete["files"], complete["sessions"], complete["new_sessions"], complete["defects"]) == (1, 1, 1, {})
    assert "Never sort parcels by colour." in emelex("memory", "sessions", "show", session["id"]).out
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    assert job["id"] == session["distillation"]
    again = emelex("import", "auto", path, "--json").lines
    assert (again[0]["already"], again[1]["already"], again[1]["events"]) == (True, 1, 0)
    assert len(emelex("memory", "jobs", "list", "--json").lines) == 1
    wrong = next(other for other in MAKERS if other != form)
    refused = emelex("import", wrong, path, "--json")
    assert (refused.code, refused.error["kind"]) == (1, "Invalid")
    assert f"it is a {form} transcript, not {wrong}" in refused.error["message"]


@pytest.mark.parametrize("form", MAKERS)
def test_what_was_deleted_comes_back_when_asked_for(emelex: Program, tmp_path: Path, form: str) -> None:
    """Behaviour 157: told and counted, in words with what to do; `--again` is asked for once."""
    path = MAKERS[form](tmp_path)
    first = emelex("import", form, path, "--json").lines[0]
    emelex("memory", "sessions", "delete", first["id"])
    told, complete = emelex("import", form, path, "--json").lines
    assert (told["removed"], told["already"], told["id"], told["workspace"]) == (True, False, None, None)
    assert (told["source_id"], told["turns"]) == (first["source_id"], 0)
    assert (complete["removed"], complete["sessions"], complete["already"], complete["events"]) == (1, 0, 0, 0)
    text = emelex("import", form, path).out
    assert "stays away" in text
    assert "1 Session stayed away, removed here before; import with --again to bring back" in text
    assert emelex("memory", "sessions", "list", "--json").lines == []
    back, complete = emelex("import", form, path, "--again", "--json").lines
    assert (back["source_id"], back["events"], back["removed"]) == (first["source_id"], first["events"], False)
    assert (complete["removed"], complete["new_sessions"]) == (0, 1)
    assert emelex("import", form, path, "--json").lines[1]["already"] == 1


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("damage", ["empty", "binary", "cut"])
def test_bad_input_is_one_error_that_names_the_file(emelex: Program, tmp_path: Path, form: str, damage: str) -> None:
    """And no Home is made for it."""
    path = MAKERS[form](tmp_path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "binary": bytes(range(256)) * 16, "cut": whole[: len(whole) // 2]}[damage])
    result = emelex("import", form, path, "--json")
    assert result.code in (1, 75)
    assert str(path) in result.error["message"]
    assert "Traceback" not in result.err
    assert not emelex.home.exists() or emelex("memory", "sessions", "list", "--json").lines == []


def test_a_branch_is_told_with_its_parent(emelex: Program, tmp_path: Path) -> None:
    first: dict[str, Any] = emelex("import", "openai-chat", put(tmp_path, "talk.json", TALK), "--json").lines[0]
    other = [TALK[0], {"role": "assistant", "content": "By weight, then."}]
    main, branch, complete = emelex("import", "openai-chat", put(tmp_path, "talk.json", other), "--json").lines
    assert (main["id"], main["already"], main["defects"]) == (first["id"], True, {"no_longer_in_source": 1})
    assert (branch["parent"], branch["title"]) == (first["id"], "Never sort parcels by colour. (branch)")
    assert complete["defects"] == {"no_longer_in_source": 1}


def test_the_help_names_every_format(emelex: Program) -> None:
    text = " ".join(emelex("import", "--help").out.split())
    assert all(form in text for form in MAKERS)
