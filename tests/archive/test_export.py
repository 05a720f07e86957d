"""`export` (behaviours 160 and 161; reports K10, K12): one document, whole or not at all, in bounded memory."""

from __future__ import annotations

import json
import os
import stat
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from emelex_cli import shapes as cli_shapes
from emelex_core import Event, MemoryStore, limits
from emelex_core.archive import shapes
from emelex_core.archive.document import Write
from emelex_core.archive.export import export, export_session
from emelex_core.archive.new_file import new_file
from emelex_core.errors import Busy, Corrupt, NotFound, Refused
from life import QUOTE, Life
from stores import edit, rows


def whole(store: MemoryStore, workspace: Path | None) -> dict[str, Any]:
    """The document, parsed strictly."""
    pieces: list[bytes] = []
    export(store, pieces.append, workspace=workspace)
    found: dict[str, Any] = json.loads(b"".join(pieces).decode("utf-8"))
    return found


def test_an_export_has_the_shape_that_the_seed_names(store: MemoryStore, life: Life, workspace: Path) -> None:
    """161: schema_version, workspace, sessions{session,snapshot,events,assets}, knowledge{knowledge,versions}."""
    found = whole(store, workspace)
    assert list(found) == ["schema_version", "workspace", "sessions", "knowledge"]
    assert found["schema_version"] == 1
    status = workspace.stat()
    assert (found["workspace"]["path"], found["workspace"]["inode"]) == (str(workspace), status.st_ino)
    assert {entry["session"]["id"] for entry in found["sessions"]} == set(life.record.texts)
    for entry in found["sessions"]:
        assert set(entry) == {"session", "snapshot", "coverage", "events", "assets"}
    (knowledge,) = found["knowledge"]
    assert set(knowledge) == {"workspace", "knowledge", "versions"}
    assert [version["evidence_quote"] for version in knowledge["versions"]] == [QUOTE]


def test_an_export_after_a_compaction_holds_every_raw_event(
    store: MemoryStore, life: Life, native: str, workspace: Path
) -> None:
    """K12: raw events plus what the Summary covers; media are named with their kind and size."""
    (entry,) = [entry for entry in whole(store, workspace)["sessions"] if entry["session"]["id"] == native]
    texts = ["\n".join(part["text"] for part in event["parts"] if part["type"] == "text") for event in entry["events"]]
    assert texts == life.record.texts[native]
    assert entry["coverage"] == {"summary_sequence": 7, "covered_sequence": 4}
    assert [asset["sha256"] for asset in entry["assets"]] == list(life.record.assets)


def test_a_snapshot_is_exported_as_stored(store: MemoryStore, path: Path, native: str, workspace: Path) -> None:
    """161."""
    edit(
        path,
        "INSERT INTO session_snapshots (session_id, version, config, authority, created_at) VALUES (?, 1, ?, ?, 5)",
        (native, b'{"model":"m"}', b'{"tools":[]}'),
    )
    (entry,) = [entry for entry in whole(store, workspace)["sessions"] if entry["session"]["id"] == native]
    assert entry["snapshot"] == {
        "version": 1,
        "config": {"model": "m"},
        "authority": {"tools": []},
        "created_at": "1970-01-01T00:00:00.005Z",
    }


def test_only_active_knowledge_is_exported_with_all_its_versions(
    store: MemoryStore, path: Path, workspace: Path
) -> None:
    """161: active only."""
    edit(path, "UPDATE knowledge SET tombstoned_at = 1, tombstoned_by = 'user', pinned = 0")
    assert whole(store, workspace)["knowledge"] == []


def test_a_directory_without_anything_exports_nothing(store: MemoryStore, tmp_path: Path) -> None:
    """Another workspace's Sessions never slip in; None means every workspace."""
    other = tmp_path / "other"
    other.mkdir()
    assert whole(store, other)["sessions"] == whole(store, other)["knowledge"] == []
    everything = whole(store, None)
    assert everything["workspace"] is None
    assert len(everything["sessions"]) == 2


def test_code_points_come_back_and_a_terminal_is_safe(store: MemoryStore, workspace: Path) -> None:
    """K10: line ends, NUL, controls and directions survive; none of them acts on whoever looks at the file."""
    text = "a\r\nb\rc\n\0 \x1b[31m \x9b \u202egnp.exe \U000e0041 naïve 😀"
    session = store.start_session(workspace, title="strange")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user(text)])
    pieces: list[bytes] = []
    export_session(store, pieces.append, store.get_session(session.id))
    data = b"".join(pieces)
    assert json.loads(data)["sessions"][0]["events"][0]["parts"][0]["text"] == text
    shown = data.decode("utf-8")
    assert not {"\x1b", "\x9b", "\u202e", "\U000e0041", "\r", "\0"} & set(shown)
    assert "naïve 😀" in shown


def test_the_shapes_are_those_of_the_other_commands(store: MemoryStore, native: str, workspace: Path) -> None:
    """One Session is one shape, whichever command prints it (docs/json.md)."""
    session = store.get_session(native)
    assert shapes.session(session) == cli_shapes.session(session)
    (event, *_) = store.read_events(native)
    assert shapes.event(event) == cli_shapes.event(event)
    (entry,) = store.list_knowledge(workspace)
    assert shapes.knowledge(entry) == cli_shapes.knowledge(entry)


def test_damage_ends_an_export_and_a_cut_document_does_not_parse(
    store: MemoryStore, path: Path, native: str, workspace: Path
) -> None:
    """47: an export is never silently shorter than the history."""
    edit(
        path,
        "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'answer 2', 'answer 9') AS BLOB) "
        "WHERE session_id = ?",
        (native,),
    )
    pieces: list[bytes] = []
    with pytest.raises(Corrupt, match="event 4"):
        export(store, pieces.append, workspace=workspace)
    with pytest.raises(json.JSONDecodeError):
        json.loads(b"".join(pieces))


def test_a_session_that_goes_meanwhile_is_told_from_damage(store: MemoryStore, native: str, workspace: Path) -> None:
    """Deleting while an export runs is legal; the export says so instead of crying corruption."""
    session = store.start_session(workspace, title="long")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turns([[Event.user(f"turn {number}")] for number in range(limits.PROOF_EVENTS_MAX + 50)])
    found = store.get_session(session.id)
    written = 0

    def write(data: bytes) -> None:
        nonlocal written
        written += 1
        if written == 60:
            store.delete_session(session.id)

    with pytest.raises(Busy, match="deleted while"):
        export_session(store, write, found)


def test_nothing_is_held_while_a_pipe_is_blocked(home: Path, store: MemoryStore, workspace: Path) -> None:
    """K12: beside a reader who takes nothing, the log of writes stays bounded and is emptied."""
    session = store.start_session(workspace, title="big")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turns([[Event.user("x" * 60_000)] for _ in range(40)])
    found = store.get_session(session.id)
    reading, writing = os.pipe()
    ended: list[BaseException | None] = []

    def run() -> None:
        with MemoryStore.open(home, read_only=True) as reader, open(writing, "wb", buffering=0) as pipe:
            export_session(reader, lambda data: pipe.write(data) and None, found)
        ended.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    # The first bytes arrive, then the pipe (64 KiB) is full and the exporter waits in write(2).
    os.read(reading, 10)
    other = store.start_session(workspace, title="meanwhile")
    with store.claim_session(other.id, workspace) as lease:
        lease.append_turn([Event.user("goes on")])
    ((busy, log_frames, moved),) = store.database.upkeep("PRAGMA wal_checkpoint(TRUNCATE)", wait_ms=2_000)
    assert (busy, log_frames, moved) == (0, 0, 0)
    with open(reading, "rb") as pipe:
        while pipe.read(1 << 20):
            pass
    thread.join()
    assert ended == [None]


def test_memory_stays_within_a_page(store: MemoryStore, workspace: Path) -> None:
    """K12: eighty megabytes of events pass through the memory of two pages."""
    session = store.start_session(workspace, title="big")
    with store.claim_session(session.id, workspace) as lease:
        for _ in range(20):
            lease.append_turn([Event.user("x" * 1_000_000) for _ in range(4)])
    size = 0

    def write(data: bytes) -> None:
        nonlocal size
        size += len(data)

    found = store.get_session(session.id)
    tracemalloc.start()
    try:
        export_session(store, write, found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 80_000_000
    # Two pages of 16 MiB, each as stored and as events.
    assert peak < 72_000_000


def test_a_file_appears_whole_private_and_never_over_another(
    store: MemoryStore, workspace: Path, tmp_path: Path
) -> None:
    """160."""
    target = tmp_path / "out.json"
    old = os.umask(0)
    try:
        with new_file(target) as write:
            export(store, write, workspace=workspace)
            assert not target.exists()
    finally:
        os.umask(old)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    json.loads(before)
    with pytest.raises(Refused, match="exists already"), new_file(target) as write:
        write(b"other")
    assert target.read_bytes() == before


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    """160: neither the name nor a part."""

    def fail(write: Write) -> None:
        write(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "out.json") as write:
        fail(write)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound), new_file(tmp_path / "missing" / "out.json") as write:
        write(b"")


def test_a_name_that_is_taken_meanwhile_stays(tmp_path: Path) -> None:
    """160: the race for the name is lost, not the other's file."""
    target = tmp_path / "out.json"
    with pytest.raises(Refused, match="exists already"), new_file(target):
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_rows_are_paged(store: MemoryStore, path: Path, workspace: Path) -> None:
    """149: more entries than a page holds, each once."""
    job = rows(path, "SELECT id FROM jobs LIMIT 1")[0][0]
    edit(
        path,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) "
        "INSERT INTO knowledge (workspace_id, key, active_version, pinned, created_at, updated_at) "
        "SELECT 1, 'key ' || i, 1, 0, 1, 1 FROM n",
    )
    edit(
        path,
        "INSERT INTO knowledge_versions (knowledge_row, version, content, confidence, origin, job_id, created_at) "
        "SELECT row, 1, 'content', 1, 'user', ?, 1 FROM knowledge WHERE key LIKE 'key %'",
        (job,),
    )
    keys = [entry["knowledge"]["key"] for entry in whole(store, workspace)["knowledge"]]
    assert len(keys) == len(set(keys)) == 21
