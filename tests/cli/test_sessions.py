"""`memory sessions list`, `show`, `export` and `delete` (behaviours 29, 108, 149, 157, 159, 160, 161)."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

from emelex_core import MemoryStore, Session, identity
from emelex_core.archive import shapes
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from pictures import picture
from program import TRICKY, Program
from stores import edit

Talk = Callable[..., Session]


def test_list_pages_without_gaps_or_repeats(emelex: Program, talk: Talk) -> None:
    """Three Sessions, two a page: the cursor of the last line yields the third (149)."""
    made = [talk(1).id for _ in range(3)]
    first = emelex("memory", "sessions", "list", "--limit", "2", "--json").lines
    rest = emelex("memory", "sessions", "list", "--limit", "2", "--cursor", first[-1]["cursor"], "--json").lines
    assert [line["id"] for line in (*first, *rest)] == made[::-1]
    assert "--cursor" in emelex("memory", "sessions", "list", "--limit", "2").err


def test_a_foreign_cursor_is_a_usage_error(emelex: Program, talk: Talk) -> None:
    """Also one that is almost right."""
    talk(1)
    for cursor in ("", "x", "1.2", "9" * 40 + "." + "a" * 36):
        result = emelex("memory", "sessions", "list", "--cursor", cursor, "--json")
        assert (result.code, result.error["kind"]) == (2, "UsageError")


def test_another_workspace_needs_the_flag(emelex: Program, talk: Talk, elsewhere: Path) -> None:
    """The error names it; with it, or from there, the Session is shown (157)."""
    session = talk(1, place=elsewhere)
    assert emelex("memory", "sessions", "list", "--json").lines == []
    assert [line["id"] for line in emelex("memory", "sessions", "list", "--all", "--json").lines] == [session.id]
    for command in ("show", "export"):
        refused = emelex("memory", "sessions", command, session.id, "--json")
        assert (refused.code, refused.error["kind"]) == (6, "WorkspaceMismatch")
        assert "--all" in refused.error["hint"]
        assert emelex("memory", "sessions", command, session.id, "--all").code == 0
        assert emelex("-C", elsewhere, "memory", "sessions", command, session.id).code == 0


def test_ids_may_be_shortened(emelex: Program, talk: Talk) -> None:
    """Eight characters do; seven are refused, unknown ones are not found, capitals do not matter."""
    session = talk(1)
    assert emelex("memory", "sessions", "show", session.id[:8].upper(), "--json").json["session"]["id"] == session.id
    assert emelex("memory", "sessions", "show", session.id[:7]).code == 2
    assert emelex("memory", "sessions", "show", "00000000").code == 3
    assert emelex("memory", "sessions", "show", "a" * 10_000, "--json").error["kind"] == "UsageError"


def test_an_ambiguous_prefix_names_the_candidates(emelex: Program, talk: Talk, store: MemoryStore) -> None:
    """Exit 2, with the full ids."""
    twins = [f"abcdef01-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    for twin in twins:
        session = store.start_session(emelex.workspace, title="twin")
        edit(emelex.database, "UPDATE sessions SET id = ? WHERE id = ?", (twin, session.id))
    result = emelex("memory", "sessions", "show", "abcdef01", "--json")
    assert (result.code, result.error["kind"]) == (2, "AmbiguousId")
    assert result.error["candidates"] == twins


def test_show_is_a_readable_transcript(emelex: Program, talk: Talk) -> None:
    """Who speaks, calls and results in brief; `--raw` leaves nothing out."""
    session = talk(2)
    brief, raw = (emelex("memory", "sessions", "show", session.id[:8], *flags).out for flags in ((), ("--raw",)))
    for told in (
        "Sort the parcels",
        "[1] You",
        "[2] Assistant",
        "(reasoning)",
        "→ shell",
        "← result, exit code 0",
        "😀",
    ):
        assert told in brief
    assert "more characters" in brief
    assert "parcel-39" not in brief
    assert "parcel-39" in raw


def test_show_as_json_holds_the_events(emelex: Program, talk: Talk) -> None:
    """One document: Session, Summary, events."""
    session = talk(2)
    found = emelex("memory", "sessions", "show", session.id, "--json").json
    assert (found["session"]["id"], found["summary"]) == (session.id, None)
    assert [event["sequence"] for event in found["events"]] == list(range(1, 9))
    assert found["events"][1]["parts"][2] == {
        "type": "tool_call",
        "call_id": "call-1",
        "name": "shell",
        "arguments": {"command": "ls depot-1"},
    }


def test_titles_are_one_harmless_line(emelex: Program, talk: Talk) -> None:
    """Control and bidi characters are visible escapes, in tables, transcripts and errors; JSON loses nothing (159)."""
    session = talk(1, title=TRICKY)
    listed, shown = emelex("memory", "sessions", "list"), emelex("memory", "sessions", "show", session.id)
    for result in (listed, shown):
        assert "\\x1b[31mred\\x07 \\u202egnp.exe\\u2066" in result.out
        assert not {"\x1b", "\x07", "\u202e", "\u2066", "\x9b"} & set(result.out)
    assert len(listed.out.splitlines()) == 2
    as_json = emelex("memory", "sessions", "list", "--json")
    assert not {"\x1b", "\x07", "\u202e", "\u2066", "\x9b"} & set(as_json.out)
    assert as_json.lines[0]["title"] == TRICKY


def test_export_is_whole_private_and_synced(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """The shape of behaviour 161 for one Session, in a file of mode 0600, the same bytes as on stdout."""
    session = talk(3)
    target = tmp_path / "out.json"
    result = emelex("memory", "sessions", "export", session.id[:8], "--output", target, "--json")
    assert result.json == {"type": "exported_session", "session": session.id, "path": str(target)}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text("utf-8") == emelex("memory", "sessions", "export", session.id).out
    found = json.loads(target.read_bytes())
    assert list(found) == ["schema_version", "workspace", "sessions", "knowledge"]
    assert (found["schema_version"], found["workspace"], found["knowledge"]) == (
        1,
        shapes.workspace(str(emelex.workspace), identity.inspect(emelex.workspace).identity),
        [],
    )
    (only,) = found["sessions"]
    assert list(only) == ["session", "snapshot", "coverage", "events", "assets"]
    assert (only["snapshot"], only["coverage"], only["assets"]) == (None, None, [])
    assert len(only["events"]) == 12
    assert [path.name for path in tmp_path.iterdir() if ".part-" in path.name] == []


def test_export_never_touches_an_existing_file(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """Files, links, dangling links and directories: refused, the original intact, nothing left beside it (160)."""
    session = talk(1)
    file, link, dangling = (tmp_path / name for name in ("file.json", "link.json", "dangling.json"))
    file.write_text("mine", "utf-8")
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "nowhere")
    before = sorted(path.name for path in tmp_path.iterdir())
    for target in (file, link, dangling, tmp_path):
        for command in (("sessions", "export", session.id), ("export",)):
            result = emelex("memory", *command, "-o", target, "--json")
            assert (result.code, result.error["kind"]) == (6, "Refused")
            assert str(target) in result.error["message"]
    assert file.read_text("utf-8") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_export_into_no_directory_is_one_clear_error(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """A missing folder, a file in a folder's place, an empty name."""
    session = talk(1)
    for target in (tmp_path / "missing" / "x.json", emelex.database / "x.json"):
        result = emelex("memory", "sessions", "export", session.id, "-o", target, "--json")
        assert (result.code, result.error["kind"]) == (3, "NotFound")
        assert str(target.parent) in result.error["message"]
    for nothing in ("", "here/"):
        assert emelex("memory", "sessions", "export", session.id, "--output", nothing).code == 1


def test_export_of_a_damaged_session_leaves_no_file(emelex: Program, talk: Talk, tmp_path: Path) -> None:
    """An event that was changed behind the store's back is named; no half file is left."""
    session = talk(2)
    edit(
        emelex.database,
        "UPDATE events SET payload = CAST(replace(payload, 'weigh', 'count') AS BLOB) WHERE sequence = 5",
    )
    target = tmp_path / "out.json"
    result = emelex("memory", "sessions", "export", session.id, "-o", target, "--json")
    assert (result.code, result.error["kind"]) == (7, "Corrupt")
    assert "event 5" in result.error["message"]
    assert not target.exists()
    assert [path for path in tmp_path.iterdir() if ".part-" in path.name] == []


def test_delete_says_what_went_and_what_stays(
    emelex: Program, talk: Talk, learn: Callable[..., None], store: MemoryStore
) -> None:
    """29, 108: events and jobs go, Knowledge stays with its evidence, and the words of the program say so."""
    session = talk(2)
    learn("rule.parcels")
    result = emelex("memory", "sessions", "delete", session.id[:8])
    assert (result.code, result.out) == (0, f"deleted {session.id}, Sort the parcels: 8 events, 1 job\n")
    assert "kept, with the words quoted from it: 1 Knowledge entry" in result.err
    (entry,) = store.list_knowledge(emelex.workspace)
    assert (entry.key, entry.session_id, entry.source_alive) == ("rule.parcels", session.id, False)
    assert emelex("memory", "sessions", "delete", session.id).code == 3
    assert emelex("memory", "check").code == 0


def test_delete_takes_the_media_that_nobody_else_names(
    emelex: Program, show: Callable[..., Session], store: MemoryStore
) -> None:
    """108: shared bytes stay, the others leave catalog and directory."""
    shared, own = store.store_asset(picture(1)), store.store_asset(picture(2))
    show(shared)
    gone = emelex("memory", "sessions", "delete", show(shared, own).id, "--json").json
    assert (gone["assets"], gone["asset_bytes"], gone["problems"]) == (1, 64, [])
    assert [asset.sha256 for asset in store.list_assets()] == [shared.sha256]


def test_a_session_in_use_is_not_deleted(emelex: Program, talk: Talk, store: MemoryStore) -> None:
    """By a chat, or by a worker: busy, until when, and everything as before."""
    session = talk(1)
    with store.claim_session(session.id, emelex.workspace) as chat:
        busy = emelex("memory", "sessions", "delete", session.id, "--json")
        assert (busy.code, busy.error["kind"]) == (4, "SessionBusy")
        chat.release()
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    assert emelex("memory", "sessions", "delete", session.id).code == 4
    lease.release()
    assert len(store.read_events(session.id)) == 4


def test_delete_stays_in_its_workspace(emelex: Program, talk: Talk, elsewhere: Path) -> None:
    """157: another workspace's Session needs the flag."""
    session = talk(1, place=elsewhere)
    refused = emelex("memory", "sessions", "delete", session.id, "--json")
    assert (refused.code, refused.error["kind"]) == (6, "WorkspaceMismatch")
    assert emelex("memory", "sessions", "delete", session.id, "--all").code == 0
