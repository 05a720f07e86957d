"""Spans of an event: shapes, sentences, and quotes that are byte for byte (behaviour 186)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core.events import Event, EventKind, ReasoningPart, TextPart
from emelex_workers.text import lines, secrets
from emelex_workers.text.lines import Shape, spans

from .conftest import stored

ANY_TEXT = st.text(
    alphabet=st.one_of(
        st.characters(exclude_categories=("Cs",)), st.sampled_from("\r\n\t.!?。`*#>|-<> \u2028\u202e0aA")
    ),
    max_size=400,
)


def texts(text: str, shape: Shape | None = None) -> list[str]:
    """The verbatim texts of one user message's spans."""
    (event,) = stored([Event.user(text)])
    return [span.text for span in spans(event) if shape is None or span.shape is shape]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("See e.g. the docs. Then go.", ["See e.g. the docs.", "Then go."]),
        ('It prints "Hello!" to the console.', ['It prints "Hello!" to the console.']),
        ("Open `a.b. C` now. Done", ["Open `a.b. C` now.", "Done"]),
        ("Am 3. Mai war es da. Gut.", ["Am 3. Mai war es da.", "Gut."]),
        ("Version 3.11 is used. Yes.", ["Version 3.11 is used.", "Yes."]),
        ("请使用pnpm。不要使用npm！", ["请使用pnpm。", "不要使用npm！"]),
        ("a\r\nb\rc\n", ["a", "b", "c"]),
        ("", []),
        (" \n\t\n", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_a_wrapped_sentence_is_one_span_with_its_line_break() -> None:
    text = "This sentence is long enough to have been wrapped by an\r\neditor at the margin. Next one."
    first, second = texts(text)
    assert first == "This sentence is long enough to have been wrapped by an\r\neditor at the margin."
    assert second == "Next one."


def test_shapes() -> None:
    text = (
        "# Title\n\n**Bold title:**\n- item one\n2. item two\n> quoted\n| a | b |\n"
        "```\ncode never.\n```\n<doc>\ninside\n</doc>\nplain"
    )
    (event,) = stored([Event.user(text)])
    assert [(span.shape, span.text) for span in spans(event)] == [
        (Shape.HEADING, "Title"),
        (Shape.HEADING, "**Bold title:**"),
        (Shape.ITEM, "item one"),
        (Shape.ITEM, "item two"),
        (Shape.QUOTE, "quoted"),
        (Shape.TABLE, "| a | b |"),
        (Shape.CODE, "code never."),
        (Shape.QUOTE, "<doc>"),
        (Shape.QUOTE, "inside"),
        (Shape.QUOTE, "</doc>"),
        (Shape.SENTENCE, "plain"),
    ]


def test_only_text_parts_have_spans() -> None:
    """Reasoning is never evidence."""
    event = Event(kind=EventKind.ASSISTANT, parts=(ReasoningPart(text="Secret plan."), TextPart(text="Said.")))
    assert [(span.part, span.text) for span in spans(stored([event])[0])] == [(1, "Said.")]


def test_safe_is_one_line_without_control_text() -> None:
    """Behaviour 185: control-token text is neutralised in what is derived, and stays in the quote."""
    (event,) = stored([Event.user("ok<|im_end|> **bold** \u202eevil\x1b[31m text")])
    (span,) = spans(event)
    assert "<|im_end|>" in span.text
    assert span.safe == "ok[control token] bold evil [31m text"


def test_a_secret_that_spans_lines_is_masked_in_each_of_its_spans() -> None:
    """Behaviour 187."""
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3Nza\n-----END OPENSSH PRIVATE KEY-----"
    (event,) = stored([Event.user(f"Here it is:\n{key}\nUse it.")])
    found = list(spans(event))
    assert all("b3Blb" not in span.safe and "AAAAB3" not in span.safe for span in found)
    assert found[-1].safe == "Use it."
    assert not found[-1].secret


@given(ANY_TEXT)
def test_any_text_gives_byte_exact_ordered_spans(text: str) -> None:
    """Behaviours 183 and 186: whatever the text, a quote is its bytes, and nothing derived holds a secret."""
    (event,) = stored([Event(kind=EventKind.USER, parts=(TextPart(text=text),))])
    data = text.encode()
    end = 0
    for span in spans(event):
        assert data[span.start : span.end].decode() == span.text
        assert span.text in event.text
        assert span.start >= end
        end = span.end
        assert len(span.safe.splitlines()) == 1
        assert not secrets.find(span.safe)


def test_cut_keeps_to_its_bound_and_says_so() -> None:
    assert lines.cut("short", 10) == "short"
    assert lines.cut("One sentence. Another one follows here", 20) == "One sentence.…"
    assert len(lines.cut("x" * 50, 20)) == 20


def test_time_is_linear_in_hostile_text() -> None:
    """A megabyte of lines that look wrapped, open tags and stops is read within the suite's time-out."""
    text = ("a line of words that goes on for more than fifty characters\n" * 6_000) + "<x>\n" * 60_000 + ". " * 100_000
    (event,) = stored([Event.user(text)])
    assert sum(1 for _ in spans(event)) > 1
