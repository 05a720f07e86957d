"""Storing media: once, whole, typed by its bytes, never over anything."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from emelex_core import AssetRef, Event, MemoryStore, limits
from emelex_core.assets import files, publish
from emelex_core.errors import Corrupt, Invalid, Refused, Storage, StorageReadOnly
from pictures import PNG, Stream, picture
from stores import ManualClock, answer, child, edit, rows

Names = Callable[[], set[str]]


def test_the_reference_says_what_the_bytes_are(store: MemoryStore, names: Names) -> None:
    """The file is private and named by its digest; nothing else is left."""
    data = picture(1, 100_000)
    ref = store.store_asset(data)
    assert ref == AssetRef(
        sha256=hashlib.sha256(data).hexdigest(), kind="image", media_type="image/png", size=len(data)
    )
    assert names() == {ref.sha256}
    status = os.lstat(store.assets_directory / ref.sha256)
    assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o600, 1)
    assert store.assets_directory == store.database.path.parent / "assets"
    assert stat.S_IMODE(store.assets_directory.stat().st_mode) == 0o700


def test_same_bytes_under_two_kinds_are_one_file_and_two_references(
    store: MemoryStore, workspace: Path, names: Names
) -> None:
    """102: the kind belongs to the reference."""
    image = store.store_asset(picture())
    page = store.store_asset(io.BytesIO(picture()), kind="document")
    assert (image.kind, page.kind) == ("image", "document")
    assert msgspec.structs.replace(page, kind="image") == image
    assert len(names()) == 1
    session = store.start_session(workspace, title="two kinds")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("both", image, page)])
        assert [ref.kind for ref in lease.replay()[0].media] == ["image", "document"]
    assert store.totals().assets == 1


@pytest.mark.parametrize("kind", ["video", "", "Image"])
def test_other_kinds_are_refused(store: MemoryStore, names: Names, kind: str) -> None:
    with pytest.raises(Invalid, match="kind"):
        store.store_asset(picture(), kind=kind)
    assert names() == set()


@pytest.mark.parametrize("source", [b"", b"plain text", PNG[:5], Stream(0), Stream(50, head=b"<svg>")])
def test_unknown_media_leave_nothing(store: MemoryStore, names: Names, source: bytes | Stream) -> None:
    with pytest.raises(Invalid, match="media type"):
        store.store_asset(source)
    assert names() == set()
    assert store.totals().assets == 0


def test_one_byte_above_the_cap_is_refused(store: MemoryStore, names: Names) -> None:
    """104: the source is a stream, so that the cap is met while writing."""
    with pytest.raises(Invalid, match=str(limits.ASSET_BYTES_MAX)):
        store.store_asset(Stream(limits.ASSET_BYTES_MAX + 1))
    assert names() == set()
    assert store.totals().assets == 0


def test_the_cap_itself_is_accepted(store: MemoryStore) -> None:
    """104, the other side."""
    assert store.store_asset(Stream(limits.ASSET_BYTES_MAX)).size == limits.ASSET_BYTES_MAX


def test_a_source_may_give_single_bytes(store: MemoryStore) -> None:
    """A pipe gives what it has."""
    assert store.store_asset(Stream(300, piece=1)) == store.store_asset(PNG + bytes(292))


def test_a_source_of_text_is_refused(store: MemoryStore, names: Names) -> None:
    with pytest.raises(Invalid, match="yields str"):
        store.store_asset(io.StringIO("no bytes"))  # type: ignore[arg-type]  # what a caller without types does
    assert names() == set()


class _Broken:
    """A source that fails at its second piece."""

    def __init__(self) -> None:
        self._pieces = iter([picture()])

    def read(self, size: int, /) -> bytes:
        for piece in self._pieces:
            return piece
        raise OSError(5, "Input/output error")


def test_a_source_that_fails_leaves_nothing(store: MemoryStore, names: Names) -> None:
    with pytest.raises(Storage, match="cannot read the media: Input/output error"):
        store.store_asset(_Broken())
    assert names() == set()


def test_a_disk_that_takes_no_more_leaves_nothing(store: MemoryStore, home: Path, names: Names) -> None:
    """The kernel refuses the write in the middle; tests/store/test_failures.py fills a real file system."""
    writer = child(
        """
        import json, resource, signal, sys
        from emelex_core import MemoryStore
        from emelex_core.errors import Storage
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with MemoryStore.open(sys.argv[1]) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
            try:
                store.store_asset(b"%PDF-" + bytes(2_000_000))
            except Storage as error:
                print(json.dumps(error.message))
        """,
        home,
    )
    assert "cannot write" in answer(writer)
    assert names() == set()


def test_an_altered_file_is_not_taken_for_the_same(store: MemoryStore) -> None:
    """What is there is verified before it is cataloged again; it is not repaired."""
    ref = store.store_asset(picture())
    path = store.assets_directory / ref.sha256
    path.write_bytes(picture(2))
    with pytest.raises(Corrupt, match=ref.sha256):
        store.store_asset(picture())
    assert path.read_bytes() == picture(2)


def test_a_row_of_another_size_is_corrupt(store: MemoryStore) -> None:
    ref = store.store_asset(picture())
    edit(store.database.path, "UPDATE assets SET size = 5")
    with pytest.raises(Corrupt, match=ref.sha256):
        store.store_asset(picture())


def test_a_file_without_a_row_is_adopted(store: MemoryStore) -> None:
    """What a crash left is recovered by storing the same bytes again."""
    ref = store.store_asset(picture())
    edit(store.database.path, "DELETE FROM assets")
    with pytest.raises(Invalid):
        store.read_asset(ref)
    assert store.store_asset(picture()) == ref
    assert store.read_asset(ref) == picture()


def test_a_row_without_a_file_is_healed_by_storing_again(store: MemoryStore) -> None:
    ref = store.store_asset(picture())
    (store.assets_directory / ref.sha256).unlink()
    with pytest.raises(Corrupt, match="no file"):
        store.read_asset(ref)
    store.store_asset(picture())
    assert store.read_asset(ref) == picture()


def test_a_link_in_the_place_of_an_asset_is_not_followed(store: MemoryStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(picture())
    elsewhere.chmod(0o600)
    store.store_asset(picture(9))
    (store.assets_directory / hashlib.sha256(picture()).hexdigest()).symlink_to(elsewhere)
    with pytest.raises(Corrupt, match="symbolic link"):
        store.store_asset(picture())


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o500, 0o777])
def test_the_directory_is_exactly_private(store: MemoryStore, mode: int) -> None:
    """12: also when it changes while the store is open."""
    ref = store.store_asset(picture())
    store.assets_directory.chmod(mode)
    for use in (lambda: store.store_asset(picture(2)), store.collect_assets, store.verify_assets):
        with pytest.raises(Refused, match=r"asset directory|writable"):
            use()
    store.assets_directory.chmod(0o700)
    assert store.read_asset(ref) == picture()


def test_a_store_for_reading_stores_nothing(store: MemoryStore, home: Path, names: Names) -> None:
    with MemoryStore.open(home, read_only=True) as reader, pytest.raises(StorageReadOnly):
        reader.store_asset(picture())
    assert names() == set()


def test_the_temporary_is_locked_while_it_is_written(store: MemoryStore) -> None:
    """111: another process's collection sees the lock."""
    seen: list[bool] = []

    class Source(Stream):
        def read(self, size: int, /) -> bytes:
            for path in store.assets_directory.glob(".tmp-*"):
                with path.open("rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        seen.append(True)
                    else:
                        seen.append(False)
            return super().read(size)

    store.store_asset(Source(100))
    assert seen
    assert all(seen)


def test_hashing_what_is_there_holds_no_lock(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write lock is free while the existing file is verified."""
    store.store_asset(picture())
    verify = files.verify

    def verify_beside_a_writer(path: Path, *, sha256: str, size: int) -> os.stat_result:
        other = store.database.sibling()
        with other.write(wait_ms=0) as transaction:
            transaction.run(publish.SQL["touch"], {"sha256": sha256, "now": 1})
        other.close()
        return verify(path, sha256=sha256, size=size)

    monkeypatch.setattr(files, "verify", verify_beside_a_writer)
    store.store_asset(picture())


def test_what_is_collected_during_the_look_is_linked_again(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """110: the file goes between the question whether it is there and its opening."""
    ref = store.store_asset(picture())
    verify = files.verify

    def collect_then_verify(path: Path, *, sha256: str, size: int) -> os.stat_result:
        path.unlink()
        return verify(path, sha256=sha256, size=size)

    monkeypatch.setattr(files, "verify", collect_then_verify)
    assert store.store_asset(picture()) == ref
    monkeypatch.undo()
    assert store.read_asset(ref) == picture()


@pytest.mark.parametrize("replacement", [None, picture(3)], ids=["collected", "replaced"])
def test_what_changes_after_the_look_is_seen(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, replacement: bytes | None
) -> None:
    """110: a file that was collected after it was verified is linked again; one that was exchanged is Corrupt."""
    ref = store.store_asset(picture())
    verify = files.verify

    def verify_then_change(path: Path, *, sha256: str, size: int) -> os.stat_result:
        status = verify(path, sha256=sha256, size=size)
        path.unlink()
        if replacement is not None:
            path.write_bytes(replacement)
            path.chmod(0o600)
        return status

    monkeypatch.setattr(files, "verify", verify_then_change)
    if replacement is None:
        assert store.store_asset(picture()) == ref
        monkeypatch.undo()
        assert store.read_asset(ref) == picture()
    else:
        with pytest.raises(Corrupt):
            store.store_asset(picture())


def test_many_threads_store_the_same_bytes(store: MemoryStore, names: Names) -> None:
    """110: all get the one reference."""
    found: list[AssetRef] = []
    threads = [threading.Thread(target=lambda: found.append(store.store_asset(picture(4, 200_000)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert names() == {found[0].sha256}


def test_two_databases_in_one_folder_have_their_own_namespaces(tmp_path: Path) -> None:
    """109: what one collects is not the other's."""
    with (
        MemoryStore.open_path(tmp_path / "a.sqlite3", create=True) as first,
        MemoryStore.open_path(tmp_path / "b.sqlite3", create=True) as second,
    ):
        ref = first.store_asset(picture())
        assert first.assets_directory == tmp_path / "a.sqlite3.assets"
        with pytest.raises(Invalid, match="not stored here"):
            second.read_asset(ref)
        assert second.store_asset(picture()) == ref
        (second.assets_directory / ref.sha256).unlink()
        edit(second.database.path, "DELETE FROM assets")
        second.collect_assets(grace_ms=1)
        assert first.read_asset(ref) == picture()


def test_memory_stays_flat(store: MemoryStore, home: Path) -> None:
    """One buffer, whatever the size: 64 MiB are stored and copied out within 4 MiB more of peak memory."""
    worker = child(
        """
        import json, resource, sys
        sys.path.insert(0, sys.argv[2])
        from emelex_core import MemoryStore
        from pictures import Stream
        class Nowhere:
            def write(self, data):
                return len(data)
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with MemoryStore.open(sys.argv[1]) as store:
            store.copy_asset(store.store_asset(Stream(1 << 20)), Nowhere())
            before = peak()
            ref = store.store_asset(Stream(64 << 20))
            store.store_asset(Stream(64 << 20))
            store.copy_asset(ref, Nowhere())
            store.verify_assets()
            print(json.dumps(peak() - before))
        """,
        home,
        Path(__file__).parents[1] / "support",
    )
    assert answer(worker) < 4 * limits.KIB, "in KiB"


def test_storing_again_refreshes_the_grace(store: MemoryStore, clock: ManualClock) -> None:
    """Collection counts from the newest storing."""
    ref = store.store_asset(picture())
    clock.turn(1_000)
    store.store_asset(picture())
    [(created, touched)] = rows(store.database.path, "SELECT created_at, touched_at FROM assets")
    assert touched == created + 1_000
    assert store.get_asset(ref.sha256[:8]).touched_at == touched
