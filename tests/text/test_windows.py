"""Windows by the engine's own tokenizer (behaviours 165, 174, 176)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emelex_core.events import Event
from emelex_workers.text.windows import source_text, windows

from .conftest import call, stored


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60)), min_size=1, max_size=30),
    st.integers(1, 100),
    st.integers(64, 400),
)
def test_each_event_is_in_exactly_one_window(shape: list[tuple[bool, int]], tokens_max: int, bytes_max: int) -> None:
    events = stored(
        [Event.user("u" * size) if user else Event.assistant("a" * size) for user, size in shape if user or size]
    )
    packed = list(windows(iter(events), tokens_max=tokens_max, count=len, bytes_max=bytes_max))
    assert [event.sequence for window in packed for event in window.events] == [event.sequence for event in events]
    for window in packed:
        assert window.tokens == sum(len(source_text(event)) for event in window.events)
        if len(window.events) > 1:
            assert window.tokens <= tokens_max
            assert sum(event.payload_bytes for event in window.events) <= bytes_max


def test_turns_stay_whole_where_they_fit() -> None:
    events = stored([Event.user("u" * 30), Event.assistant("a" * 30), Event.user("u" * 30), Event.assistant("a" * 30)])
    packed = list(windows(events, tokens_max=100, count=len))
    assert [len(window.events) for window in packed] == [2, 2]


def test_tool_output_is_command_and_outcome() -> None:
    events = stored([call("1", "Bash", command="ls"), Event.tool("1", "y" * 10_000), Event.context("note", label="x")])
    assert [source_text(event) for event in events] == ["Bash: ls", "ok", ""]
