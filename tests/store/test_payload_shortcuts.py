"""The shortcuts of the entry gate: whatever they let through is what the gate itself would have stored (183)."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from emelex_core import events
from emelex_core.errors import Invalid
from emelex_core.events import Event, EventKind, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, encode_payload

_TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "\x00", '"\\', "é", "\u2028"])
_ODD: st.SearchStrategy[Any] = _TEXT | st.none() | st.booleans() | st.integers() | st.just(1.5) | st.just(b"x")
_KEY: st.SearchStrategy[Any] = _TEXT | st.integers()
_ARGUMENTS = st.dictionaries(
    _KEY,
    _ODD | st.lists(_ODD, max_size=2) | st.dictionaries(_TEXT, _ODD, max_size=2) | st.just(2**64) | st.just(-(2**63)),
    max_size=4,
)
_PARTS = st.one_of(
    st.builds(TextPart, text=_TEXT | _ODD),
    st.builds(ReasoningPart, text=_TEXT),
    st.builds(ToolCallPart, call_id=_TEXT | _ODD, name=_TEXT, arguments=_ARGUMENTS),
    st.builds(
        ToolResultPart,
        call_id=_TEXT,
        text=_TEXT | _ODD,
        is_error=st.booleans() | st.just(1),
        exit_code=st.none() | st.integers() | st.booleans(),
        status=st.sampled_from(["completed", "not_executed", None]),
    ),
)


def _outcome(event: Event) -> bytes | None:
    try:
        return encode_payload(event)
    except Invalid:
        return None


@given(parts=st.lists(_PARTS, max_size=3), label=st.none() | _TEXT | st.just(7))
@settings(deadline=None, max_examples=400)
def test_a_shortcut_stores_what_the_gate_stores(parts: list[Any], label: Any) -> None:
    event = Event(kind=EventKind.TOOL, parts=tuple(parts), label=label)
    quick = _outcome(event)
    with (
        mock.patch.object(events, "encode_words", return_value=None),
        mock.patch.object(events, "_encode_flat", return_value=None),
    ):
        assert quick == _outcome(event)
