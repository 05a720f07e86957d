"""JSON documents and arrays of any size: what is read, what is refused, and in which words (K10, K12)."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import limits
from emelex_core.errors import EmelexError, Invalid, NotFound
from emelex_core.imports.files.documents import is_lines, read_documents
from emelex_core.imports.files.json_array import elements
from foreign import put, put_lines


class Slow(io.BytesIO):
    """Gives a few bytes at a time, so that every token falls across a read."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._size)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(['"', "\\", "]}", '\\"['])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)
CONTAINERS = st.lists(st.one_of(st.lists(JSON, max_size=3), st.dictionaries(st.text(max_size=4), JSON, max_size=3)))


@given(values=CONTAINERS, size=st.integers(1, 40), indent=st.sampled_from([None, 2]), wrapped=st.booleans())
def test_elements_are_those_of_the_array(values: list[Any], size: int, indent: int | None, wrapped: bool) -> None:
    """Wherever a read ends, and whatever brackets and quotes stand inside strings."""
    whole: Any = {"account": [{"a": 1}], "conversations": values, "x": [2]} if wrapped else values
    data = json.dumps(whole, indent=indent, ensure_ascii=False).encode()
    defects: Counter[str] = Counter()
    found = list(elements(Slow(data, size), defects, what="f"))
    assert [json.loads(element) for _, element in found] == values
    assert [end for end, _ in found] == sorted(end for end, _ in found)
    assert defects == {}


@given(values=st.lists(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=3), min_size=1), data=st.data())
def test_an_array_that_is_cut_says_where(values: list[Any], data: st.DataObject) -> None:
    """The elements before it are whole."""
    text = json.dumps(values).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    found: list[Any] = []
    with pytest.raises(Invalid, match=r"f: its JSON is cut: what begins at byte \d+ does not end"):
        found.extend(json.loads(element) for _, element in elements(Slow(text[:cut], 7), Counter(), what="f"))
    assert found == values[: len(found)]


def test_an_object_is_one_element() -> None:
    data = b' {"a": [1, {"b": []}]} '
    assert list(elements(io.BytesIO(data), Counter(), what="f")) == [(22, data.strip())]


def test_an_oversized_element_is_passed_over_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is one string that does not end for a long time."""
    monkeypatch.setattr(limits, "IMPORT_LINE_BYTES_MAX", limits.MIB)
    large = b'{"x":"' + b'\\"' * (16 * limits.MIB) + b'"}'
    defects: Counter[str] = Counter()
    stream = io.BytesIO(b'[{"a":1},' + large + b',{"b":2}]')
    tracemalloc.start()
    try:
        found = [element for _, element in elements(stream, defects, what="f")]
        assert tracemalloc.get_traced_memory()[1] < 8 * limits.MIB
    finally:
        tracemalloc.stop()
    assert (found, defects) == ([b'{"a":1}', b'{"b":2}'], {"oversized_conversation": 1})


def _values(path: Path) -> tuple[list[Any], dict[str, int]]:
    defects: Counter[str] = Counter()
    return [document.value for document in read_documents(path, defects, list_key="list")], dict(defects)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'\xef\xbb\xbf{"a":1}\n\n', [{"a": 1}]),
        (b"[1,2]", [{"list": [1, 2]}]),
        (b'{\n"a": 1\n}\n', [{"a": 1}]),
        (b'[\n{"a":1}\n]', [{"list": [{"a": 1}]}]),
        (b'{"m":[\n{"a":1},\n{"b":2}\n]}', [{"m": [{"a": 1}, {"b": 2}]}]),
        (b'{"a":1}\n{"b":2}', [{"a": 1}, {"b": 2}]),
        (b"[1]\r\n\r\n[2]\r\n", [{"list": [1]}, {"list": [2]}]),
        (b'{"a":1,"a":2}', [{"a": 2}]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_one_document_or_one_a_line(tmp_path: Path, data: bytes, expected: list[Any], packed: bool) -> None:
    path = put(tmp_path, "f", zstandard.compress(data) if packed else data)
    assert _values(path) == (expected, {})


def test_lines_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted and passed over, whatever stands first; an unfinished last line waits."""
    monkeypatch.setattr(limits, "IMPORT_LINE_BYTES_MAX", 100)
    odd: list[Any] = [b"{torn", {"a": 1}, {"b": 2}, b"text", b'{"x":"' + b"y" * 200 + b'"}', b"\xff"]
    path = put_lines(tmp_path, "f", [*odd, b'{"c":'], end=b"")
    assert is_lines(path)
    assert _values(path) == (
        [{"a": 1}, {"b": 2}],
        {"not_json": 2, "oversized_line": 1, "not_utf8": 1, "unfinished_line": 1},
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":[1,2', "stops being JSON at line 1, column"),
        (b'{\n "a": 1,\n "b": tru\n}', "stops being JSON at line 3, column"),
        (b"7", "neither an object nor a list"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b"", "stops being JSON"),
        (b"prose", "stops being JSON"),
    ],
)
def test_a_document_that_is_none_says_where(tmp_path: Path, data: bytes, why: str) -> None:
    path = put(tmp_path, "f.json", data)
    with pytest.raises(Invalid, match=why) as caught:
        _values(path)
    assert caught.value.message.startswith(str(path))


def test_lines_of_an_archive_that_was_cut(tmp_path: Path) -> None:
    """What was unpacked is read, and the tear is counted; of one document nothing can be read."""
    line = b'{"a":1}\n'
    whole = zstandard.compress(line) + zstandard.compress(line * 3)
    assert _values(put(tmp_path, "whole.zst", whole)) == ([{"a": 1}] * 4, {})
    values, defects = _values(put(tmp_path, "cut.zst", whole[:-2]))
    assert values[:1] == [{"a": 1}]
    assert defects["torn_archive"] == 1


def test_a_document_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that only unpacks to that."""
    monkeypatch.setattr(limits, "IMPORT_LINE_BYTES_MAX", limits.MIB)
    data = b'{"a":"' + b"x" * (3 * limits.MIB) + b'"}'
    for name, content in (("f.json", data), ("f.json.zst", zstandard.compress(data))):
        with pytest.raises(Invalid, match="one JSON document of more than 1048576 bytes"):
            _values(put(tmp_path, name, content))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    torn = put(tmp_path, "torn.zst", zstandard.compress(b'{"a":1}' * 1_000)[:-20])
    for path, kind in ((tmp_path / "gone", NotFound), (tmp_path, Invalid), (torn, Invalid)):
        with pytest.raises(EmelexError) as caught:
            _values(path)
        assert isinstance(caught.value, kind)
        assert str(path) in caught.value.message
