"""`check`: all damage, with Session and event; repairs only what other values decide (behaviours 45 to 52, 123)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from emelex_core import Event, MemoryStore
from emelex_core.archive.check import check
from emelex_core.archive.records import Finding
from emelex_core.errors import Corrupt, StorageReadOnly
from life import Life
from stores import edit, rows

Faults = Callable[[], list[Finding]]


def test_a_store_that_has_lived_is_sound(store: MemoryStore, life: Life) -> None:
    """Everything was looked at, and nothing found."""
    report = check(store)
    assert report.sound
    assert report.findings == ()
    assert (report.sessions, report.jobs, report.knowledge_versions, report.assets) == (2, 2, 1, 1)
    assert report.events == sum(map(len, life.record.texts.values()))


def test_every_changed_event_is_named(store: MemoryStore, path: Path, native: str, faults: Faults) -> None:
    """47: replay stops at the first; a check lists all of them, and nothing that is whole."""
    edit(
        path,
        "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'answer', 'Answer') AS BLOB) "
        "WHERE session_id = ? AND sequence IN (2, 6)",
        (native,),
    )
    found = [finding for finding in faults() if finding.area == "history"]
    assert [(finding.session_id, finding.sequence) for finding in found] == [(native, 2), (native, 6)]
    ids = dict(rows(path, "SELECT sequence, id FROM events WHERE session_id = ?", (native,)))
    assert [finding.event_id for finding in found] == [ids[2], ids[6]]
    assert not check(store).sound


@pytest.mark.parametrize(
    ("sql", "area", "words"),
    [
        ("UPDATE events SET created_at = created_at + 1 WHERE session_id = :s AND sequence = 3", "history", "changed"),
        ("UPDATE events SET chain = zeroblob(32) WHERE session_id = :s AND sequence = 3", "history", "changed"),
        ("UPDATE events SET payload = CAST('{}' AS BLOB) WHERE session_id = :s AND sequence = 3", "history", "payload"),
        ("UPDATE events SET role = 'tool' WHERE session_id = :s AND sequence = 3", "history", "role"),
        ("UPDATE events SET kind = 'oracle' WHERE session_id = :s AND sequence = 3", "history", "kind"),
        ("UPDATE events SET turn_size = 9 WHERE session_id = :s AND sequence = 3", "history", "turn"),
        ("DELETE FROM events WHERE session_id = :s AND sequence = 3", "history", "1 events before it are missing"),
        ("DELETE FROM events WHERE session_id = :s AND sequence = 7", "history", "events 7 to 7 are missing"),
        ("UPDATE sessions SET chain = zeroblob(32) WHERE id = :s", "history", "not that of its last event"),
        ("UPDATE jobs SET source_sha256 = printf('%064d', 0) WHERE kind = 'compaction'", "summary", "did not make it"),
        ("DELETE FROM jobs WHERE kind = 'compaction'", "summary", "did not make it"),
        ("UPDATE jobs SET source_sha256 = printf('%064d', 0) WHERE kind = 'distillation'", "job", "source"),
        ("UPDATE knowledge_versions SET evidence_quote = 'never said'", "knowledge", "quote"),
        ("UPDATE knowledge_versions SET evidence_sequence = 99", "knowledge", "not stored any more"),
        ("UPDATE knowledge SET active_version = 7", "knowledge", "active version"),
        ("DELETE FROM sessions WHERE id = :s", "database", "missing row of"),
    ],
)
def test_each_kind_of_damage_is_found_in_its_area(
    path: Path, native: str, faults: Faults, sql: str, area: str, words: str
) -> None:
    """47 to 52, 123, 186: made behind the store's back, past every CHECK."""
    assert edit(path, sql, {"s": native} if ":s" in sql else (), checks=False) >= 1
    found = faults()
    assert any(finding.area == area and words in finding.detail for finding in found), found


def test_a_summary_that_covers_other_events_is_damage(path: Path, native: str, faults: Faults) -> None:
    """48: its own words are held against the chain, not only against its job."""
    ((payload,),) = rows(path, "SELECT payload FROM events WHERE session_id = ? AND kind = 'summary'", (native,))
    changed = json.loads(payload)
    changed["provenance"]["through_sequence"] = 2
    edit(
        path,
        "UPDATE events SET payload = ? WHERE session_id = ? AND kind = 'summary'",
        (json.dumps(changed).encode(), native),
    )
    assert {finding.detail for finding in faults() if finding.area == "summary"} >= {
        "it does not describe the events that it replaces"
    }


def test_an_altered_and_a_missing_asset_are_found(store: MemoryStore, life: Life, faults: Faults) -> None:
    """103."""
    (sha256,) = life.record.assets
    file = store.assets_directory / sha256
    file.write_bytes(b"\x89PNG" + b"x" * (file.stat().st_size - 4))
    assert [finding.area for finding in faults()] == ["media"]
    file.unlink()
    assert "no file" in faults()[0].detail


def test_derived_values_are_repaired_only_when_asked(store: MemoryStore, path: Path, native: str) -> None:
    """Counters, the Summary pointer and media links are decided by the events, and set right by them."""
    edit(
        path, "UPDATE sessions SET event_bytes = 1, summary_sequence = 0, covered_sequence = 0 WHERE id = ?", (native,)
    )
    edit(path, "DELETE FROM event_assets WHERE session_id = ? AND sequence = 3", (native,))
    first = check(store)
    assert (first.damage, first.derived, first.repaired, first.sound) == (0, 3, 0, False)
    repaired = check(store, repair=True)
    assert (repaired.derived, repaired.repaired, repaired.sound) == (3, 3, True)
    assert check(store).findings == ()
    with store.claim_session(native, rows(path, "SELECT path FROM workspaces")[0][0]) as lease:
        assert lease.replay().summary is not None


def test_a_damaged_history_repairs_nothing(store: MemoryStore, path: Path, native: str) -> None:
    """What cannot be trusted decides nothing about anything else."""
    edit(path, "UPDATE sessions SET event_bytes = 1 WHERE id = ?", (native,))
    edit(path, "UPDATE events SET created_at = 1 WHERE session_id = ? AND sequence = 2", (native,))
    report = check(store, repair=True)
    assert (report.damage, report.derived, report.repaired) == (1, 1, 0)
    assert rows(path, "SELECT event_bytes FROM sessions WHERE id = ?", (native,)) == [(1,)]


def test_a_link_to_nothing_is_not_invented(store: MemoryStore, path: Path, native: str, life: Life) -> None:
    """A media link whose asset has no row stays a finding."""
    edit(path, "DELETE FROM event_assets")
    edit(path, "DELETE FROM assets")
    report = check(store, repair=True)
    assert report.repaired == 0
    assert not report.sound


def test_a_broken_index_is_made_anew(store: MemoryStore, path: Path) -> None:
    """Indexes are derived: an entry that is missing is found by SQLite and repaired."""
    store.close()
    _lose_index_entry(path)
    with MemoryStore.open(path.parent.parent) as again:
        found = check(again)
        assert any(finding.area == "database" for finding in found.findings)
        assert check(again, repair=True).sound
        assert check(again).findings == ()


def test_an_interrupted_turn_and_a_dead_owner_are_notes(store: MemoryStore, path: Path, native: str) -> None:
    """They wait for a person or the next claim; nothing is wrong with what is stored."""
    edit(
        path,
        "INSERT INTO active_turns (session_id, turn_id, input, checkpoint_count, started_at) VALUES (?, ?, ?, 0, 1)",
        (native, "0" * 36, b'{"parts":[{"text":"hello","type":"text"}]}'),
    )
    edit(
        path,
        "UPDATE sessions SET lease_token = zeroblob(16), lease_until = 1, lease_owner = 5 WHERE id = ?",
        (native,),
    )
    report = check(store)
    assert report.sound
    assert sorted((finding.area, finding.weight.value) for finding in report.findings) == [
        ("journal", "note"),
        ("owner", "note"),
    ]


def test_a_journal_that_does_not_parse_is_damage(path: Path, native: str, faults: Faults) -> None:
    """101."""
    edit(
        path,
        "INSERT INTO active_turns (session_id, turn_id, input, checkpoint_count, started_at) VALUES (?, ?, ?, 0, 1)",
        (native, "0" * 36, b'{"text":'),
    )
    assert [finding.area for finding in faults()] == ["journal"]


def test_a_check_of_what_cannot_be_written_repairs_nothing(home: Path, store: MemoryStore, path: Path) -> None:
    """189: looking needs no right to write; a repair says that it has none."""
    edit(path, "UPDATE sessions SET event_bytes = 1")
    with MemoryStore.open(home, read_only=True) as reader:
        assert check(reader).derived == 2
        with pytest.raises(StorageReadOnly):
            check(reader, repair=True)


def test_progress_is_told_and_may_stop_a_check(store: MemoryStore) -> None:
    """Long work can be watched and ended."""
    told: list[tuple[int, int]] = []
    check(store, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]

    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(store, progress=stop)


def test_damaged_pages_are_findings_of_their_own(store: MemoryStore, path: Path) -> None:
    """K7: a page of rubbish is told by SQLite's own check, and reading it is Corrupt, never shorter."""
    size = int(str(store.database.pragma("page_size")))
    ((page,),) = rows(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'knowledge_proposals'")
    store.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with MemoryStore.open(path.parent.parent) as again:
        try:
            found = check(again).findings
        except Corrupt:
            pytest.fail("a check reports damage instead of ending with it")
        assert any(finding.area == "database" for finding in found)


def test_media_of_another_kind_are_a_wrong_link(store: MemoryStore, path: Path, native: str, faults: Faults) -> None:
    """107."""
    edit(path, "UPDATE event_assets SET kind = 'audio' WHERE session_id = ?", (native,))
    assert {finding.weight.value for finding in faults()} == {"derived"}
    assert check(store, repair=True).sound


def test_a_session_that_grows_meanwhile_is_no_damage(store: MemoryStore, native: str, workspace: Path) -> None:
    """A check stops nobody: what is appended behind it is not looked at, and not missed."""
    with store.claim_session(native, workspace) as lease:
        lease.replay()

        def grow(done: int, of: int) -> None:
            lease.append_turn([Event.user("meanwhile")])

        assert check(store, progress=grow).sound


def _lose_index_entry(path: Path) -> None:
    """Delete a row of the table without its index noticing: the index's root page is put back as it was before."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    size = raw.pragma("page_size")
    raw.pragma("journal_mode", "delete")
    (root,) = next(iter(raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'knowledge_by_update'")))
    raw.close()
    with open(path, "rb") as file:
        file.seek((root - 1) * size)
        before = file.read(size)
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    raw.execute("UPDATE knowledge SET updated_at = updated_at + 1000")
    raw.close()
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(before)
