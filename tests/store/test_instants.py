"""Instants at the edge of the calendar (behaviour 183): what is stored can be written out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, clock
from emelex_core.errors import Invalid
from emelex_core.events import EventKind, TextPart


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_date_that_leaves_the_calendar_is_none(text: str) -> None:
    assert clock.parse_iso(text) is None


def test_the_last_millisecond_is_not_rounded_out_of_it() -> None:
    assert clock.parse_iso("9999-12-31T23:59:59.9999999Z") == clock.INSTANT_MS_MAX


@pytest.mark.parametrize("instant", [clock.INSTANT_MS_MIN, 0, clock.INSTANT_MS_MAX])
def test_every_instant_that_is_accepted_can_be_written(instant: int) -> None:
    text = clock.iso(instant)
    assert text is not None
    assert clock.parse_iso(text) == instant


@pytest.mark.parametrize("instant", [clock.INSTANT_MS_MIN - 1, clock.INSTANT_MS_MAX + 1])
def test_an_event_beyond_it_is_refused(tmp_path: Path, instant: int) -> None:
    event = Event(kind=EventKind.USER, parts=(TextPart(text="x"),), occurred_at=instant)
    with MemoryStore.open(tmp_path / "home", create=True) as store:
        session = store.start_session(tmp_path, title="t")
        with store.claim_session(session.id, tmp_path) as lease, pytest.raises(Invalid, match="out of range"):
            lease.append_turn([event])
