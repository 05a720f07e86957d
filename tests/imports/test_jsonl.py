"""The line reader: no bytes raise, offsets tile the file, hashes prove prefixes (K10, K12)."""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emelex_core.errors import Invalid, NotFound
from emelex_core.imports.files.frames import is_cut
from emelex_core.imports.files.jsonl import LineReader, prefix_sha256

_PIECES = st.sampled_from(
    [
        b'{"a":1}',
        b'{"type":"user","x":"\\ud83d"}',
        b"\n",
        b"\r\n",
        b"{",
        b"}",
        b"[1]",
        b"\xff\xfe",
        b"\x00",
        b'"',
        b"NaN",
        b'{"n":1e999}',
        b"\xef\xbb\xbf",
        b'{"d":' + b"[" * 300 + b"]" * 300 + b"}",
        b" ",
    ]
)
_CONTENT = st.one_of(st.binary(max_size=400), st.lists(_PIECES, max_size=30).map(b"".join))


def _lines(path: Path, **options: int) -> tuple[list[tuple[int, int, bytes]], Counter[str], LineReader]:
    defects: Counter[str] = Counter()
    reader = LineReader(path, defects=defects, **options)
    return [(line.offset, line.end_offset, line.data) for line in reader], defects, reader


@given(content=_CONTENT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_give_ordered_lines_that_tile_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    lines, _, reader = _lines(path)
    place = 0
    for offset, end, data in lines:
        assert place <= offset < end <= len(content)
        assert content[offset:end].strip() == data
        place = end
    consumed = reader.after()
    assert place <= consumed.offset <= len(content)
    assert consumed.sha256 == hashlib.sha256(content[: consumed.offset]).digest()


@given(content=_CONTENT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_follows_any_line_does_not_depend_on_what_came_before(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    lines, _, _ = _lines(path)
    for place, (_, end, _) in enumerate(lines):
        rest = tmp_path / "rest.jsonl"
        rest.write_bytes(content[end:])
        assert [(o + end, e + end, d) for o, e, d in _lines(rest)[0]] == lines[place + 1 :]


@given(content=_CONTENT, more=st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_packed_file_reads_like_a_plain_one(tmp_path: Path, content: bytes, more: bytes) -> None:
    plain, packed = tmp_path / "plain.jsonl", tmp_path / "packed.jsonl.zst"
    compressor = zstandard.ZstdCompressor()
    plain.write_bytes(content + more)
    packed.write_bytes(compressor.compress(content) + compressor.compress(more))
    if not plain.read_bytes().startswith(b"\x28\xb5\x2f\xfd"):
        assert _lines(packed)[:2] == _lines(plain)[:2]


def test_each_unusable_line_is_counted_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(
        b'{"a":1}\n[1]\n{"a":\n{"a":"\xff"}\n\n   \n{"b":2}\n' + b'{"c":"' + b"x" * 200 + b'"}\n{"d":3}\n{"e":'
    )
    lines, defects, reader = _lines(path, line_bytes_max=100)
    assert [data for _, _, data in lines] == [b'{"a":1}', b'{"b":2}', b'{"d":3}']
    assert defects == {"not_object": 1, "not_json": 1, "not_utf8": 1, "oversized_line": 1, "unfinished_line": 1}
    assert reader.after().offset == path.stat().st_size - len(b'{"e":')


def test_an_unfinished_last_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    assert _lines(path)[2].after().offset == 8
    path.write_bytes(b'{"a":1}\n{"b":2}')
    lines, defects, reader = _lines(path)
    assert [data for _, _, data in lines] == [b'{"a":1}', b'{"b":2}']
    assert not defects
    assert reader.after().offset == 15


def test_a_record_fused_with_a_torn_one_is_saved(tmp_path: Path) -> None:
    """K1: a killed writer's half line fuses with the next append."""
    path = tmp_path / "fused.jsonl"
    path.write_bytes(b'{"type":"user","message":{"role":"us{"type":"assistant","n":{"type":"x"}}\n{"a":1}\n')
    lines, defects, _ = _lines(path)
    assert len(lines) == 2
    assert defects == {"fused_line": 1}


def test_a_torn_archive_keeps_what_came_before_the_tear(tmp_path: Path) -> None:
    def digest(number: int) -> str:
        return hashlib.sha256(str(number).encode()).hexdigest()

    path = tmp_path / "torn.jsonl.zst"
    noise = b"".join(b'{"n":"%s"}\n' % digest(number).encode() for number in range(20_000))
    packed = zstandard.ZstdCompressor().compress(noise)
    path.write_bytes(packed[: len(packed) // 2])
    lines, defects, reader = _lines(path)
    assert 0 < len(lines) < 20_000
    assert defects["torn_archive"] == 1
    assert reader.after().sha256 == hashlib.sha256(noise[: reader.after().offset]).digest()
    path.write_bytes(packed + b"no frame begins like this")
    lines, defects, _ = _lines(path)
    assert len(lines) > 19_000
    assert defects == {"torn_archive": 1}


@example(cut=80, frames=1, checksum=False, sized=False)
@given(cut=st.integers(0, 2_000), frames=st.integers(1, 3), checksum=st.booleans(), sized=st.booleans())
def test_an_archive_is_cut_where_no_frame_ends(cut: int, frames: int, checksum: bool, sized: bool) -> None:
    """zstd's reader calls any end an end; only the frames tell. A frame that is skipped is one as well."""
    noise = hashlib.sha256(b"noise").hexdigest().encode() * 3 + b"a" * 300_000
    packer = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=sized)
    pieces = [packer.compress(noise) for _ in range(frames)]
    pieces.insert(1, b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc")
    whole = b"".join(pieces)
    ends = {sum(map(len, pieces[:number])) for number in range(frames + 2)}
    cut = min(cut, len(whole))
    assert is_cut(io.BytesIO(whole[:cut])) == (cut not in ends)


def test_prefix_hashes_prove_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "prefix.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":2}\n')
    assert prefix_sha256(path, 8) == hashlib.sha256(b'{"a":1}\n').digest()
    assert prefix_sha256(path, 0) == hashlib.sha256(b"").digest()
    assert prefix_sha256(path, 17) is None


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """K9: a pipe does not block, a symlink is not followed, and each refusal names the path."""
    pipe, link = tmp_path / "pipe.jsonl", tmp_path / "link.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "real.jsonl").write_bytes(b'{"a":1}\n')
    link.symlink_to(tmp_path / "real.jsonl")
    for path, reason in ((pipe, "not a regular file"), (link, "cannot be opened"), (tmp_path, "not a regular file")):
        with pytest.raises(Invalid, match=reason) as caught:
            _lines(path)
        assert str(path) in caught.value.message
    with pytest.raises(NotFound, match="absent"):
        _lines(tmp_path / "absent.jsonl")
