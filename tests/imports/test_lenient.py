"""Foreign JSON made storable: replaced and counted, never a traceback (K10, behaviours 38 and 183)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emelex_core import codec, limits
from emelex_core.imports.files.lenient import bound_arguments, encoded_bytes, fit_text, load_arguments, load_record


@pytest.mark.parametrize(
    ("data", "value", "defect"),
    [
        (b'{"a":"x\\ud83dy"}', "x\ufffdy", "lone_surrogate"),
        (b'{"a":NaN}', "NaN", "non_finite_number"),
        (b'{"a":-Infinity}', "-Infinity", "non_finite_number"),
        (b'{"a":1e999}', "1e999", "non_finite_number"),
        (b'{"a":' + b"9" * 5000 + b"}", "9" * 5000, "big_integer"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", None, "deep_value"),
    ],
)
def test_what_cannot_be_stored_is_replaced_and_counted(data: bytes, value: Any, defect: str) -> None:
    defects: Counter[str] = Counter()
    record = load_record(data, defects)
    assert record is not None
    assert value is None or record["a"] == value
    assert defects == {defect: 1}
    codec.check_json(bound_arguments(record, defects), what="record", bytes_max=limits.EVENT_BYTES_MAX)


def test_pairs_of_surrogates_are_one_character() -> None:
    defects: Counter[str] = Counter()
    assert load_record(b'{"a":"\\ud83d\\ude00","b":"\\udc00"}', defects) == {"a": "😀", "b": "\ufffd"}


def test_a_line_with_raw_control_characters_is_read() -> None:
    assert load_record(b'{"a":"x\ty"}', Counter()) == {"a": "x\ty"}


def test_integers_beyond_64_bits_are_kept_as_their_digits() -> None:
    defects: Counter[str] = Counter()
    big, largest = 2**64, 2**64 - 1
    assert load_arguments(f'{{"big":{big},"largest":{largest}}}', defects) == {"big": str(big), "largest": largest}
    assert defects == {"big_integer": 1}


@pytest.mark.parametrize("text", ["*** Begin Patch", "[1,2]", '"word"', '{"a":'])
def test_arguments_that_are_no_object_stand_as_input(text: str) -> None:
    defects: Counter[str] = Counter()
    assert load_arguments(text, defects) == {"input": text}
    assert defects["unparsed_arguments"] == 1


def test_absent_arguments_are_empty() -> None:
    assert load_arguments(" ", Counter()) == {}


def test_deep_wide_and_long_arguments_fit_an_event() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"next": deep}
    defects: Counter[str] = Counter()
    wide = bound_arguments({"deep": deep, "wide": list(range(70_000)), "long": "é\n" * 2**21}, defects)
    assert set(wide) == {"input"}
    assert defects["deep_value"] == defects["cut_argument"] == defects["arguments_as_text"] == 1
    codec.encode({"parts": [{"arguments": wide}]}, what="event", bytes_max=limits.EVENT_BYTES_MAX)


@given(text=st.text(max_size=300), bytes_max=st.integers(200, 400))
@settings(deadline=None)
def test_a_cut_text_fits_says_so_and_keeps_its_beginning(text: str, bytes_max: int) -> None:
    defects: Counter[str] = Counter()
    result = fit_text(text, defects, bytes_max=bytes_max)
    if encoded_bytes(text) <= bytes_max:
        assert result == text
        assert not defects
    else:
        assert encoded_bytes(result) <= bytes_max
        head, _, marker = result.rpartition("\n[cut on import: ")
        assert text.startswith(head)
        assert marker.endswith(f"of {len(text.encode())} bytes left out]")
        assert defects == {"cut_text": 1}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=6), children, max_size=4),
    max_leaves=30,
)


@given(value=st.dictionaries(st.text(max_size=6), _JSON, max_size=5))
@settings(deadline=None)
def test_any_json_object_comes_out_storable(value: dict[str, Any]) -> None:
    defects: Counter[str] = Counter()
    record = load_record(json.dumps(value).encode(), defects)
    assert record is not None
    codec.encode(bound_arguments(record, defects), what="record", bytes_max=limits.EVENT_BYTES_MAX)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_object_or_one_reason(data: bytes) -> None:
    defects: Counter[str] = Counter()
    record = load_record(data, defects)
    assert (record is None) == bool(defects.keys() & {"not_json", "not_utf8", "not_object"})
    assert record is None or orjson.dumps(record)
