"""Reading media: reference, link, catalog and file agree, or nothing is returned."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from emelex_core import AssetRef, MemoryStore, Session
from emelex_core.assets.records import AssetLink
from emelex_core.errors import AmbiguousId, Corrupt, Invalid, NotFound, Refused
from pictures import picture
from stores import BECOME_NOBODY, answer, child, edit

Show = Callable[..., Session]


@pytest.fixture
def ref(store: MemoryStore) -> AssetRef:
    return store.store_asset(picture(1, 200_000))


@pytest.fixture
def path(store: MemoryStore, ref: AssetRef) -> Path:
    """The file of the asset."""
    return store.assets_directory / ref.sha256


def test_bytes_come_back(store: MemoryStore, ref: AssetRef) -> None:
    assert store.read_asset(ref) == picture(1, 200_000)
    target = io.BytesIO()
    store.copy_asset(ref, target)
    assert target.getvalue() == picture(1, 200_000)


def test_reading_needs_no_write_lock(store: MemoryStore, ref: AssetRef) -> None:
    """Another connection may be in the middle of a change."""
    writer = store.database.sibling()
    with writer.write():
        assert len(store.read_asset(ref)) == ref.size
    writer.close()


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda path: path.write_bytes(picture(2, 200_000)), "does not hold"),
        (lambda path: path.write_bytes(picture(1, 199_999)), "199999 bytes"),
        (lambda path: path.write_bytes(picture(1, 200_000) + b"x"), "200001 bytes"),
        (lambda path: path.write_bytes(b""), "0 bytes"),
        (lambda path: path.chmod(0o644), "mode is 0644"),
        (lambda path: path.chmod(0o400), "mode is 0400"),
        (lambda path: path.unlink(), "no file"),
        (lambda path: (path.unlink(), path.mkdir()), "not a regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "not a regular file"),
        (lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")), "symbolic link"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_corrupt(
    store: MemoryStore, ref: AssetRef, path: Path, damage: Callable[[Path], object], cause: str
) -> None:
    """103: bytes, size, mode, type and presence are checked; a pipe does not block."""
    damage(path)
    with pytest.raises(Corrupt, match=cause):
        store.read_asset(ref)
    with pytest.raises(Corrupt, match=cause):
        store.copy_asset(ref, io.BytesIO())
    assert store.verify_assets().problem_count == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_of_another_user_is_corrupt(store: MemoryStore, ref: AssetRef, path: Path) -> None:
    """103."""
    os.chown(path, 65534, 65534)
    with pytest.raises(Corrupt, match="belongs to user 65534"):
        store.read_asset(ref)


def test_a_second_name_is_no_fault(store: MemoryStore, ref: AssetRef, path: Path) -> None:
    """A writer that was killed after it had published leaves its temporary name."""
    os.link(path, path.with_name(".tmp-0123456789abcdef"))
    assert len(store.read_asset(ref)) == ref.size


def test_what_is_not_cataloged_is_invalid(store: MemoryStore, ref: AssetRef) -> None:
    """103: whatever lies in the directory."""
    edit(store.database.path, "DELETE FROM assets")
    with pytest.raises(Invalid, match="not stored here"):
        store.read_asset(ref)


@pytest.mark.parametrize("sha256", ["", "../emelex.sqlite3", "0" * 63, "A" * 64, "0" * 65])
def test_what_is_no_digest_is_invalid(store: MemoryStore, ref: AssetRef, sha256: str) -> None:
    with pytest.raises(Invalid, match="no SHA-256"):
        store.read_asset(msgspec.structs.replace(ref, sha256=sha256))


def test_a_reference_of_another_size_is_corrupt(store: MemoryStore, ref: AssetRef) -> None:
    with pytest.raises(Corrupt, match="reference says 5"):
        store.read_asset(msgspec.structs.replace(ref, size=5))


def test_a_link_must_be_the_very_one(store: MemoryStore, ref: AssetRef, show: Show) -> None:
    """106: another ordinal, kind, event or Session is Corrupt."""
    other = store.store_asset(picture(2))
    session = show(ref, other)

    def link(ordinal: int, sequence: int = 1, session_id: str = session.id) -> AssetLink:
        return AssetLink(session_id=session_id, sequence=sequence, ordinal=ordinal)

    assert store.read_asset(ref, link=link(0)) == picture(1, 200_000)
    assert store.read_asset(other, link=link(1)) == picture(2)
    for wrong in (link(1), link(2), link(-1), link(0, sequence=2), link(0, session_id="0" * 36)):
        with pytest.raises(Corrupt, match="ordinal"):
            store.read_asset(ref, link=wrong)
        with pytest.raises(Corrupt, match="ordinal"):
            store.copy_asset(ref, io.BytesIO(), link=wrong)
    with pytest.raises(Corrupt, match=r"links image .* not document"):
        store.read_asset(msgspec.structs.replace(ref, kind="document"), link=link(0))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_reads_nothing(store: MemoryStore, ref: AssetRef) -> None:
    """The directory is private by itself."""
    reader = child(
        f"""
        import json, sys
        {BECOME_NOBODY}
        try:
            open(sys.argv[1])
        except PermissionError:
            print(json.dumps("denied"))
        """,
        store.assets_directory / ref.sha256,
    )
    assert answer(reader) == "denied"


def test_listing_pages_without_repeats(store: MemoryStore, show: Show) -> None:
    """149's rule for assets: the newest first, a cursor, references counted."""
    refs = [store.store_asset(picture(seed)) for seed in range(5)]
    pdf = store.store_asset(b"%PDF-1.7 text")
    show(refs[0], refs[0], refs[1])
    first = store.list_assets(limit=4)
    last = first[-1]
    rest = store.list_assets(limit=4, before=(last.created_at, last.sha256))
    assert {asset.sha256 for asset in (*first, *rest)} == {ref.sha256 for ref in (*refs, pdf)}
    assert len(first) + len(rest) == 6
    by_digest = {asset.sha256: asset for asset in (*first, *rest)}
    assert [by_digest[ref.sha256].references for ref in refs] == [2, 1, 0, 0, 0]
    assert by_digest[pdf.sha256].media_type == "application/pdf"
    for limit in (0, 501):
        with pytest.raises(Invalid, match="limit"):
            store.list_assets(limit=limit)


def test_a_missing_file_is_listed_without_a_type(store: MemoryStore, ref: AssetRef, path: Path) -> None:
    path.unlink()
    assert store.get_asset(ref.sha256).media_type is None


def test_a_sessions_media_are_listed_in_order(store: MemoryStore, show: Show) -> None:
    image, page = store.store_asset(picture(1)), store.store_asset(picture(2), kind="document")
    session = show(image, page, image)
    listed = store.list_session_assets(session.id, limit=2)
    listed += store.list_session_assets(session.id, after=(listed[-1].sequence, listed[-1].ordinal))
    assert [(item.sequence, item.ordinal, item.sha256, item.kind, item.size) for item in listed] == [
        (1, 0, image.sha256, "image", 64),
        (1, 1, page.sha256, "document", 64),
        (1, 2, image.sha256, "image", 64),
    ]
    with pytest.raises(Invalid, match="limit"):
        store.list_session_assets(session.id, limit=100_001)


def test_digests_may_be_shortened(store: MemoryStore, ref: AssetRef) -> None:
    """Eight digits are enough, fewer are refused, several are told."""
    assert store.get_asset(ref.sha256[:8]).sha256 == ref.sha256
    for bad in (ref.sha256[:7], ref.sha256.upper(), "g" * 8, ref.sha256 + "0"):
        with pytest.raises(Invalid, match="no digest"):
            store.get_asset(bad)
    with pytest.raises(NotFound):
        store.get_asset("0" * 8)
    twin = ref.sha256[:9] + ("0" if ref.sha256[9] != "0" else "1") * 55
    edit(store.database.path, "INSERT INTO assets SELECT ?, size, created_at, touched_at FROM assets", (twin,))
    with pytest.raises(AmbiguousId) as caught:
        store.get_asset(ref.sha256[:9])
    assert set(caught.value.candidates) == {ref.sha256, twin}


def test_verify_reports_and_goes_on(store: MemoryStore) -> None:
    """Damage is listed by name and cause; files without a row and temporaries are only counted."""
    good, bad, gone, orphan = (store.store_asset(picture(seed, 100)) for seed in range(4))
    (store.assets_directory / bad.sha256).write_bytes(picture(9, 100))
    (store.assets_directory / gone.sha256).unlink()
    edit(store.database.path, "DELETE FROM assets WHERE sha256 = ?", (orphan.sha256,))
    (store.assets_directory / ".tmp-0123456789abcdef").touch()
    steps: list[tuple[int, int]] = []
    report = store.verify_assets(progress=lambda done, size: steps.append((done, size)))
    assert {problem.name: "no file" in problem.reason for problem in report.problems} == {
        bad.sha256: False,
        gone.sha256: True,
    }
    assert (report.assets, report.bytes, report.problem_count) == (3, 300, 2)
    assert (report.uncataloged, report.temporaries) == (1, 1)
    assert steps == [(1, 100), (2, 200), (3, 300)]
    assert store.read_asset(good) == picture(0, 100)


def test_verify_of_an_empty_store(store: MemoryStore) -> None:
    report = store.verify_assets()
    assert (report.assets, report.problem_count, report.uncataloged) == (0, 0, 0)
    assert not store.assets_directory.exists()


def test_export_writes_a_private_copy(store: MemoryStore, ref: AssetRef, tmp_path: Path) -> None:
    """160's rules: whole, private, never over a file, nothing left behind."""
    out = tmp_path / "out"
    out.mkdir()
    assert store.export_asset(ref.sha256[:12], out / "a.png").media_type == "image/png"
    assert (out / "a.png").read_bytes() == picture(1, 200_000)
    assert (out / "a.png").stat().st_mode & 0o777 == 0o600
    assert (out / "a.png").stat().st_nlink == 1
    for taken in (out / "a.png", out):
        with pytest.raises(Refused, match="exists already"):
            store.export_asset(ref.sha256, taken)
    with pytest.raises(NotFound, match="no directory"):
        store.export_asset(ref.sha256, out / "none" / "a.png")
    assert [path.name for path in out.iterdir()] == ["a.png"]


def test_export_of_damaged_bytes_leaves_nothing(store: MemoryStore, ref: AssetRef, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    path.write_bytes(picture(2, 200_000))
    with pytest.raises(Corrupt):
        store.export_asset(ref.sha256, out / "a.png")
    assert list(out.iterdir()) == []


def test_export_where_no_hard_links_are(
    store: MemoryStore, ref: AssetRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT and some network file systems answer EPERM; the name is still never taken from another file."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store.export_asset(ref.sha256, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == picture(1, 200_000)
    with pytest.raises(Refused, match="exists already"):
        store.export_asset(ref.sha256, tmp_path / "a.png")
