"""Media types by their first bytes, and base64 that is decoded while it is stored."""

from __future__ import annotations

import base64
import hashlib
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import AssetRef, MemoryStore, limits
from emelex_core.assets.media import HEAD_BYTES, Readable, sniff
from emelex_core.events import MediaPart, TextPart
from emelex_core.imports.files.base64_source import Base64Source, Undecodable
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.storing.sink import LookingSink, StoringSink
from pictures import PNG, picture


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (PNG, ("image", "image/png")),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", ("image", "image/jpeg")),
        (b"GIF89a", ("image", "image/gif")),
        (b"RIFF\x24\0\0\0WEBPVP8 ", ("image", "image/webp")),
        (b"RIFF\x24\0\0\0WAVEfmt ", ("audio", "audio/wav")),
        (b"BM\x36\0\0\0\0\0\0\0\x36\0", ("image", "image/bmp")),
        (b"BMW is a maker of cars", None),
        (b"12345678WEBP", None),
        (b"\0\0\0\x1cftypavif", ("image", "image/avif")),
        (b"\0\0\0\x1cftypisom", None),
        (b"ID3\x04", ("audio", "audio/mpeg")),
        (b"%PDF-1.7", ("document", "application/pdf")),
        (b"<svg xmlns=", None),
        (b"", None),
    ],
)
def test_the_first_bytes_decide(head: bytes, known: tuple[str, str] | None) -> None:
    """Two letters are not enough, nor is a mark in the middle."""
    assert sniff(head[:HEAD_BYTES]) == known


@given(data=st.binary(max_size=300), size=st.integers(3, 64), skipped=st.text("ab,", max_size=5))
def test_pieces_of_base64_are_the_whole(data: bytes, size: int, skipped: str) -> None:
    """Whatever the pieces, and from wherever in the text."""
    source = Base64Source(skipped + base64.b64encode(data).decode(), len(skipped))
    pieces = list(iter(lambda: source.read(size), b""))
    assert b"".join(pieces) == data
    assert all(len(piece) <= size for piece in pieces)


@given(text=st.text("AB=é\n+/-", max_size=40), size=st.integers(3, 64))
def test_pieces_are_as_strict_as_the_whole(text: str, size: int) -> None:
    """A text decodes in pieces if and only if it decodes at once."""
    try:
        whole: bytes | None = base64.b64decode(text, validate=True) if text.isascii() else None
    except ValueError:
        whole = None
    source = Base64Source(text)
    try:
        pieces: bytes | None = b"".join(iter(lambda: source.read(size), b""))
    except Undecodable:
        pieces = None
    assert pieces == whole


def _part(
    sink: StoringSink | LookingSink, data: object, media_type: object = "image/jpeg"
) -> tuple[object, Counter[str]]:
    defects: Counter[str] = Counter()
    return MediaReader(sink, defects).from_base64(data, media_type), defects


def test_a_label_is_not_believed(store: MemoryStore) -> None:
    """A PNG that calls itself a JPEG is a PNG, stored or only looked at."""
    text = base64.b64encode(picture()).decode()
    for sink in (LookingSink(), StoringSink(store)):
        part, defects = _part(sink, text)
        assert isinstance(part, MediaPart)
        assert part.ref == AssetRef(
            sha256=hashlib.sha256(picture()).hexdigest(), kind="image", media_type="image/png", size=64
        )
        assert not defects
    assert store.read_asset(part.ref) == picture()


@pytest.mark.parametrize(
    ("data", "defect"),
    [
        (base64.b64encode(b"no image at all").decode(), "refused_media"),
        (base64.b64encode(picture()).decode()[:-1], "undecodable_media"),
        (base64.b64encode(picture(1, 200_000)).decode()[:-9] + "!" * 9, "undecodable_media"),
        ("é", "undecodable_media"),
        ("", "undecodable_media"),
        (None, "undecodable_media"),
    ],
)
def test_what_is_not_acceptable_becomes_a_text(store: MemoryStore, data: object, defect: str) -> None:
    """An event is never lost for its media, and nothing of them stays behind."""
    for sink in (LookingSink(), StoringSink(store)):
        part, defects = _part(sink, data)
        assert isinstance(part, TextPart)
        assert part.text.startswith("[media not imported: ")
        assert defects == Counter({defect: 1})
    assert store.totals().assets == 0
    assert not store.assets_directory.exists() or not any(store.assets_directory.iterdir())


def test_data_urls_are_read_in_place(store: MemoryStore) -> None:
    """The text before the comma only says that it is base64."""
    reader = MediaReader(StoringSink(store), Counter())
    text = base64.b64encode(picture()).decode()
    part = reader.from_url(f"data:image/gif;charset=x;base64,{text}")
    assert isinstance(part, MediaPart)
    assert part.ref.media_type == "image/png"
    for url in (f"data:image/png,{text}", "data:image/png;base64,", f"data:{'x' * 2_000};base64,{text}"):
        assert isinstance(reader.from_url(url), TextPart)


class _Counting:
    """A sink that reads its source to the end, as the store does, and remembers how."""

    def __init__(self) -> None:
        self.peak = 0

    def __call__(self, data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        assert not isinstance(data, bytes)
        tracemalloc.start()
        digest, size = hashlib.sha256(), 0
        while chunk := data.read(limits.IO_BUFFER_BYTES):
            digest.update(chunk)
            size += len(chunk)
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return AssetRef(sha256=digest.hexdigest(), kind="image", media_type="image/png", size=size)


def test_decoding_holds_one_buffer() -> None:
    """16 MiB of base64 are decoded within three buffers of memory."""
    text = base64.b64encode(bytes(12 * limits.MIB)).decode()
    sink = _Counting()
    part = MediaReader(sink, Counter()).from_url("data:image/png;base64," + text)
    assert isinstance(part, MediaPart)
    assert part.ref.size == 12 * limits.MIB
    assert sink.peak < 4 * limits.IO_BUFFER_BYTES
