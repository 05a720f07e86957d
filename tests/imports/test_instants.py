"""Timestamps of rows: the short way through one minute says what the clock's own reader says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import clock
from emelex_core.imports.reading.reader import instant

_FORMS = st.sampled_from(["{}Z", "{}+00:00", "{}+05:30", "{}", "{}z"])


@given(moment=st.datetimes(), form=_FORMS, spec=st.sampled_from(["seconds", "milliseconds", "microseconds"]))
def test_any_form(moment: datetime, form: str, spec: str) -> None:
    text = form.format(moment.isoformat(timespec=spec))
    assert instant(text) == clock.parse_iso(text)


@given(text=st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3}Z", fullmatch=True))
def test_any_digits(text: str) -> None:
    assert instant(text) == clock.parse_iso(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02T03:04:05.678Z", int(datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC).timestamp() * 1_000)),
        ("2026-01-02T03:04:60.000Z", None),
        ("2026-13-02T03:04:05.000Z", None),
        ("2026-01-02T03:04:+5.000Z", None),
        (None, None),
        (1_767_225_600, None),
    ],
)
def test_by_example(value: object, expected: int | None) -> None:
    assert instant(value) == expected
