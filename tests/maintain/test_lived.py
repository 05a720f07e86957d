"""Which time counts (behaviours 179 and 182; reports, K4): no reading of the clock deletes anything by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import MemoryStore, Session, limits
from emelex_core.home import Home
from emelex_core.retention.lived import LivedTime
from stores import DAY, SECOND, ManualClock, edit, rows

Talk = Callable[..., Session]
Live = Callable[[int], None]


def _removed(store: MemoryStore) -> int:
    report = store.maintain()
    assert report.sessions is not None
    assert report.problems == ()
    return len(report.sessions.phase.removals)


def test_a_clock_that_leaps_ages_nothing(store: MemoryStore, talk: Talk, clock: ManualClock) -> None:
    """K4: 400 days ahead, a chat there, maintenance there, again and again; then the true clock, then a day back."""
    talk("Before the leap")
    store.maintain()
    clock.turn(400 * DAY)
    for _ in range(60):
        assert _removed(store) == 0
        clock.turn(SECOND)
    talk("During the leap")
    assert _removed(store) == 0
    clock.turn(-400 * DAY)
    assert _removed(store) == 0
    clock.turn(-DAY)
    assert _removed(store) == 0
    assert len(store.list_sessions()) == 2


def test_a_store_that_was_never_maintained_believes_no_leap(store: MemoryStore, talk: Talk, clock: ManualClock) -> None:
    """Its own creation is all that it has seen."""
    talk()
    clock.turn(400 * DAY)
    assert _removed(store) == 0
    assert store.maintain().clock_lag_ms > 390 * DAY


def test_a_machine_that_was_off_catches_up_within_a_week(store: MemoryStore, talk: Talk, clock: ManualClock) -> None:
    """A leap that stays was real."""
    talk()
    store.maintain()
    clock.turn(120 * DAY)
    days = 0
    while not _removed(store):
        clock.turn(DAY)
        days += 1
        assert days < 30
    assert days == 7


def test_maintenance_once_a_month_works(store: MemoryStore, talk: Talk, clock: ManualClock) -> None:
    """By hand and seldom: each look proves the leap before it."""
    talk()
    removed = []
    for _ in range(6):
        clock.turn(30 * DAY)
        removed.append(_removed(store))
    assert removed == [0, 0, 0, 1, 0, 0]


def test_a_session_dated_by_a_wrong_clock_is_kept(
    store: MemoryStore, talk: Talk, clock: ManualClock, live_through: Live
) -> None:
    """A machine without a clock of its own starts in 1970; what was said there is not 57 years old."""
    talk("At the true time")
    right = clock.now
    clock.now = 1_000
    lost = talk("In 1970")
    clock.now = right
    live_through(3)
    report = store.maintain()
    assert report.sessions is not None
    assert report.sessions.phase.removals == ()
    assert [(kept.id, kept.reason) for kept in report.sessions.kept] == [(lost.id, "clock")]


def test_a_session_of_the_future_keeps_no_later_one(
    store: MemoryStore, talk: Talk, clock: ManualClock, live_through: Live
) -> None:
    """182: what was made while the clock was ahead says nothing of what was made after it."""
    right = clock.now
    clock.turn(4_000 * DAY)
    ahead = talk("In the future")
    clock.now = right
    talk("At the true time")
    live_through(91)
    report = store.maintain()
    assert report.sessions is not None
    assert report.sessions.kept == ()
    assert [session.id for session in store.list_sessions()] == [ahead.id]


def test_a_session_that_is_old_by_its_record_goes_in_one_run(store: MemoryStore, talk: Talk, home: Home) -> None:
    """The clock agrees with the store's; only the Session's activity lies far back."""
    old, young = talk("Old"), talk("Young")
    edit(home.database, "UPDATE sessions SET updated_at = updated_at - ? WHERE id = ?", (200 * DAY, old.id))
    assert _removed(store) == 1
    assert [session.id for session in store.list_sessions()] == [young.id]


def test_a_future_date_blocks_nothing(store: MemoryStore, talk: Talk, clock: ManualClock, home: Home) -> None:
    """182: a Session dated ahead is not old, and stays claimable."""
    session = talk()
    edit(home.database, "UPDATE sessions SET updated_at = ?", (clock.now + 400 * DAY,))
    assert _removed(store) == 0
    store.claim_session(session.id, store.get_session(session.id).workspace_path).release()


def test_what_was_seen_is_noted_once_a_run(store: MemoryStore, clock: ManualClock, home: Home) -> None:
    """And a dry run notes nothing."""
    store.maintain()
    seen = rows(home.database, "SELECT seen_at FROM maintenance_time")
    assert seen == [(clock.now,)]
    clock.turn(DAY)
    store.maintain(dry_run=True)
    assert rows(home.database, "SELECT seen_at FROM maintenance_time") == seen


steps = st.lists(st.integers(-500 * DAY, 500 * DAY), max_size=40)


@given(steps)
def test_counted_time_never_passes_the_clock(turns: list[int]) -> None:
    """Nor does it go on by more than a weekend at one look, unless a week was lived after a leap."""
    now = 1_000 * DAY
    time = LivedTime(seen_at=now, counted_at=now, lived_ms=0)
    for turn in turns:
        now += turn
        after = time.at(now)
        assert after.counted_at <= after.seen_at == now
        if turn >= 0 and after.counted_at > time.counted_at + limits.CLOCK_GAP_MS_MAX:
            assert time.counted_at < time.seen_at
            assert time.lived_ms + turn >= limits.CLOCK_BELIEF_MS
        time = after


@pytest.mark.parametrize("gap", [1, SECOND, DAY, limits.CLOCK_GAP_MS_MAX])
def test_ordinary_time_counts_in_full(gap: int) -> None:
    """A timer that fires daily, or a weekend off, lags by nothing."""
    time = LivedTime(seen_at=0, counted_at=0, lived_ms=0)
    for look in range(1, 200):
        time = time.at(look * gap)
        assert time.counted_at == time.seen_at
