"""Collection: bounded, resumable, and never of what is wanted."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emelex_core import AssetRef, MemoryStore, Session, limits
from emelex_core.assets import collect
from emelex_core.assets.records import CollectReport
from emelex_core.errors import Invalid, StorageReadOnly
from pictures import picture
from stores import DAY, ManualClock, child, edit, kill, line, rows

Show = Callable[..., Session]
Names = Callable[[], set[str]]
Age = Callable[[Path, int], None]
HOUR = limits.TEMPORARY_AGE_MS_MIN
GRACE = 7 * DAY
JOURNAL = "INSERT INTO active_turns VALUES (?, ?, ?, 0, 1)"


@pytest.mark.parametrize("grace", [0, -1])
def test_a_grace_of_nothing_is_invalid(store: MemoryStore, grace: int) -> None:
    """113."""
    ref = store.store_asset(picture())
    with pytest.raises(Invalid, match="above zero"):
        store.collect_assets(grace_ms=grace)
    assert store.read_asset(ref) == picture()


@pytest.mark.parametrize("bounds", [{"rows_max": 0}, {"rows_max": 257}, {"entries_max": 0}, {"entries_max": 4_097}])
def test_a_pass_has_bounds(store: MemoryStore, clock: ManualClock, bounds: dict[str, int]) -> None:
    """154's rule."""
    with pytest.raises(Invalid, match="a pass"):
        collect.collect(store.database, store.assets_directory, clock=clock, **bounds)


def test_the_grace_counts_from_the_newest_storing(store: MemoryStore, clock: ManualClock, names: Names) -> None:
    """108 and 110: storing again refreshes it; the last millisecond still counts."""
    store.store_asset(picture())
    clock.turn(GRACE - 1)
    assert store.collect_assets(grace_ms=GRACE).rows == 0
    store.store_asset(picture())
    clock.turn(GRACE - 1)
    assert store.collect_assets(grace_ms=GRACE).rows == 0
    clock.turn(1)
    report = store.collect_assets(grace_ms=GRACE)
    assert (report.rows, report.bytes, report.missing, report.complete) == (1, 64, 0, True)
    assert names() == set()
    assert store.totals().assets == 0


def test_what_an_event_links_is_kept(store: MemoryStore, show: Show, clock: ManualClock) -> None:
    """108: however old, and though its storing is long past."""
    ref = store.store_asset(picture())
    show(ref)
    clock.turn(1_000 * DAY)
    assert store.collect_assets(grace_ms=1).rows == 0
    assert store.read_asset(ref) == picture()


def test_what_a_turn_under_way_names_is_kept(store: MemoryStore, show: Show, clock: ManualClock) -> None:
    """108: in the journal's input or in a tool's result; its grace begins when the journal has gone."""
    first, second = store.store_asset(picture(1)), store.store_asset(picture(2))
    session = show()
    path = store.database.path
    shown = f'{{"parts":[{{"ref":{{"sha256":"{first.sha256}"}}}}]}}'.encode()
    edit(path, JOURNAL, (session.id, "t" * 36, shown))
    edit(
        path,
        "INSERT INTO pending_tools VALUES (?, 0, 'c', 'n', x'7b7d', 'completed', 1, ?)",
        (session.id, f'{{"escaped":"\\"{second.sha256}\\""}}'.encode()),
    )
    clock.turn(30 * DAY)
    report = store.collect_assets(grace_ms=GRACE)
    assert (report.rows, report.journalled) == (0, 2)
    edit(path, "DELETE FROM pending_tools")
    edit(path, "DELETE FROM active_turns")
    assert store.collect_assets(grace_ms=GRACE).rows == 0
    assert store.read_asset(first) == picture(1)
    clock.turn(GRACE)
    assert store.collect_assets(grace_ms=GRACE).rows == 2


def test_a_pass_is_bounded_and_the_next_goes_on(store: MemoryStore, home: Path, clock: ManualClock) -> None:
    """256 rows a pass; another process goes on after them."""
    for seed in range(limits.COLLECT_ROWS_MAX + 4):
        store.store_asset(picture(seed, 32))
    clock.turn(GRACE)
    first = store.collect_assets()
    assert (first.rows, first.complete) == (256, False)
    with MemoryStore.open(home, clock=clock) as other:
        second = other.collect_assets()
    assert (second.rows, second.complete) == (4, True)
    assert list(store.assets_directory.iterdir()) == []


def _pass(store: MemoryStore, clock: ManualClock, *, rows_max: int = 2, entries_max: int = 2) -> CollectReport:
    return collect.collect(
        store.database, store.assets_directory, clock=clock, grace_ms=GRACE, rows_max=rows_max, entries_max=entries_max
    )


def test_the_directory_is_swept_in_pieces(store: MemoryStore, clock: ManualClock, age: Age, names: Names) -> None:
    """Files without a row go when they are older than the grace; each pass looks at so many names."""
    refs = [store.store_asset(picture(seed)) for seed in range(5)]
    edit(store.database.path, "DELETE FROM assets")
    for ref in refs:
        age(store.assets_directory / ref.sha256, GRACE)
    age(store.assets_directory / refs[0].sha256, GRACE - 1)
    reports: list[CollectReport] = []
    while not reports or not reports[-1].complete:
        reports.append(_pass(store, clock))
    assert [report.orphans + report.young for report in reports] == [2, 2, 1]
    assert sum(report.orphans for report in reports) == 4
    assert names() == {refs[0].sha256}


def test_bad_rows_do_not_stop_the_ones_behind_them(store: MemoryStore, clock: ManualClock, names: Names) -> None:
    """112: more bad files than a pass takes rows; the cursor gets past them."""
    refs = sorted(store.store_asset(picture(seed)).sha256 for seed in range(6))
    for sha256 in refs[:3]:
        (store.assets_directory / sha256).chmod(0o644)
    clock.turn(GRACE)
    reports = [_pass(store, clock, entries_max=100) for _ in range(4)]
    assert sum(report.rows for report in reports) == 3
    assert {problem.name for report in reports for problem in report.problems} == set(refs[:3])
    assert names() - {".collect-cursor"} == set(refs[:3])
    assert store.totals().assets == 3


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (_as_directory, "not a regular file"),
        (_as_link, "symbolic link"),
        (lambda path: path.chmod(0o640), "mode is 0640"),
        (lambda path: path.write_bytes(b"longer than it was" * 9), "bytes, not 64"),
    ],
)
def test_one_bad_file_is_reported_and_the_pass_goes_on(
    store: MemoryStore, clock: ManualClock, age: Age, spoil: Callable[[Path], None], cause: str
) -> None:
    """112: its row stays as it was, the rest and the later phase are done."""
    bad, good = store.store_asset(picture(1)), store.store_asset(picture(2))
    temporary = store.assets_directory / ".tmp-00000000"
    temporary.touch(0o600)
    age(temporary, -GRACE + HOUR)
    spoil(store.assets_directory / bad.sha256)
    [before] = rows(store.database.path, "SELECT * FROM assets WHERE sha256 = ?", (bad.sha256,))
    clock.turn(GRACE)
    report = store.collect_assets()
    assert (report.rows, report.temporaries, report.problem_count) == (1, 1, 1)
    assert report.problems[0].name == bad.sha256
    assert cause in report.problems[0].reason
    assert rows(store.database.path, "SELECT * FROM assets") == [before]
    with pytest.raises(Invalid):
        store.read_asset(good)


@contextmanager
def _immutable(path: Path) -> Iterator[None]:
    done = subprocess.run(["chattr", "+i", path], capture_output=True)
    if done.returncode:
        pytest.skip("the file system or the user cannot make a file immutable")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


def test_a_file_that_cannot_be_removed_keeps_its_row(store: MemoryStore, clock: ManualClock) -> None:
    """112: it is readable as before."""
    ref, other = store.store_asset(picture(1)), store.store_asset(picture(2))
    clock.turn(GRACE)
    with _immutable(store.assets_directory / ref.sha256):
        report = store.collect_assets()
        assert report.rows == 1
        assert "cannot be removed" in report.problems[0].reason
        assert store.read_asset(ref) == picture(1)
    assert store.collect_assets().rows == 1
    assert not (store.assets_directory / other.sha256).exists()


def test_a_row_without_a_file_goes(store: MemoryStore, clock: ManualClock) -> None:
    ref = store.store_asset(picture())
    (store.assets_directory / ref.sha256).unlink()
    clock.turn(GRACE)
    report = store.collect_assets()
    assert (report.rows, report.missing, report.problem_count) == (1, 1, 0)
    assert store.totals().assets == 0


def test_temporaries_go_when_old_and_free(store: MemoryStore, age: Age, names: Names) -> None:
    """111: a locked one and one younger than an hour are skipped."""
    store.assets_directory.mkdir(mode=0o700)
    ages = {".tmp-old": HOUR, ".tmp-young": HOUR - 1, ".tmp-locked": DAY}
    for name, milliseconds in ages.items():
        (store.assets_directory / name).touch(0o600)
        age(store.assets_directory / name, milliseconds)
    with (store.assets_directory / ".tmp-locked").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        report = store.collect_assets(grace_ms=1)
    assert (report.temporaries, report.young, report.locked) == (1, 1, 1)
    assert names() == {".tmp-young", ".tmp-locked"}
    assert store.collect_assets().temporaries == 1


def test_a_writer_in_another_process_keeps_its_temporary(
    store: MemoryStore, home: Path, age: Age, names: Names
) -> None:
    """111: while it lives, however long it takes; when it is killed, the next pass removes what it left."""
    writer = child(
        """
        import sys
        from emelex_core import MemoryStore
        class Source:
            def __init__(self):
                self.first = True
            def read(self, size):
                if self.first:
                    self.first = False
                    return b"%PDF-1.7 and more to come"
                print("written", flush=True)
                return sys.stdin.buffer.read(1)
        with MemoryStore.open(sys.argv[1]) as store:
            store.store_asset(Source())
        """,
        home,
    )
    assert line(writer) == "written"
    [name] = names()
    age(store.assets_directory / name, DAY)
    assert store.collect_assets().locked == 1
    assert names() == {name}
    kill(writer)
    assert store.collect_assets().temporaries == 1
    assert names() == set()


def test_what_is_not_ours_is_left_alone(store: MemoryStore, names: Names) -> None:
    """112: it is named in the report."""
    store.store_asset(picture())
    (store.assets_directory / "notes.txt").touch()
    (store.assets_directory / ".tmp-directory").mkdir()
    os.utime(store.assets_directory / ".tmp-directory", (0, 0))
    report = store.collect_assets()
    assert {problem.name for problem in report.problems} == {"notes.txt", ".tmp-directory"}
    assert {"notes.txt", ".tmp-directory"} <= names()


def test_a_clock_that_was_set_back_does_not_keep_orphans(store: MemoryStore, clock: ManualClock) -> None:
    """182: what was stored in the future is as if it were stored now."""
    store.store_asset(picture())
    clock.turn(-100 * DAY)
    assert store.collect_assets(grace_ms=GRACE).rows == 0
    clock.turn(GRACE)
    assert store.collect_assets(grace_ms=GRACE).rows == 1


@pytest.mark.parametrize("note", [b"", b"{", b'{"catalog":1}', b'{"catalog":"z","directory":"z"}', bytes(5_000)])
def test_a_torn_note_costs_a_pass_at_most(store: MemoryStore, clock: ManualClock, note: bytes) -> None:
    """The place where the last pass stopped is advice."""
    store.store_asset(picture())
    clock.turn(GRACE)
    (store.assets_directory / ".collect-cursor").write_bytes(note)
    (store.assets_directory / ".collect-cursor").chmod(0o600)
    assert sum(store.collect_assets().rows for _ in range(2)) == 1


def test_a_store_without_assets(store: MemoryStore) -> None:
    """Nothing is made by looking."""
    assert store.collect_assets().complete
    assert not store.assets_directory.exists()


def test_a_store_for_reading_collects_nothing(store: MemoryStore, home: Path, clock: ManualClock) -> None:
    ref = store.store_asset(picture())
    clock.turn(GRACE)
    with MemoryStore.open(home, read_only=True, clock=clock) as reader, pytest.raises(StorageReadOnly):
        reader.collect_assets()
    assert store.read_asset(ref) == picture()


def test_storing_between_the_look_and_the_removal_wins(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """110: rows were removed, the same bytes are stored again, then the files' turn comes."""
    ref = store.store_asset(picture())
    clock.turn(GRACE)
    stored: list[AssetRef] = []

    def store_now(point: str) -> None:
        if point == "collect.rows_removed":
            stored.append(store.store_asset(picture()))

    monkeypatch.setattr(collect.faults, "reach", store_now)
    report = store.collect_assets()
    assert (stored, report.rows) == ([ref], 0)
    assert store.read_asset(ref) == picture()
