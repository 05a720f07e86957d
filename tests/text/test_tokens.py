"""Names in a line, and whether a text holds one as a whole (behaviour 188)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_workers.text.tokens import TokenKind, holds, names, quotations, tokens


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("See https://example.org/a?b=1.", TokenKind.URL, "https://example.org/a?b=1"),
        ("Write to ada@example.org, please.", TokenKind.MAIL, "ada@example.org"),
        ("Open src/app/main.py:42 now.", TokenKind.PATH, "src/app/main.py:42"),
        ("In /etc/nginx/nginx.conf, set it.", TokenKind.PATH, "/etc/nginx/nginx.conf"),
        ("Edit styles.css first.", TokenKind.PATH, "styles.css"),
        ("Read `__init__.py` too.", TokenKind.PATH, "__init__.py"),
        ("Branch alice/research-2 is merged", TokenKind.PATH, "alice/research-2"),
        ("Commit 04752c6 broke it", TokenKind.HASH, "04752c6"),
        ("Closes #32934.", TokenKind.ISSUE, "#32934"),
        ("Ticket PROJ-77 is open", TokenKind.ISSUE, "PROJ-77"),
        ("Use v2.1.114 here", TokenKind.VERSION, "v2.1.114"),
        ("It took 3000 ms.", TokenKind.NUMBER, "3000 ms"),
        ("About 12.5% more", TokenKind.NUMBER, "12.5%"),
        ("Set retry_limit to it", TokenKind.IDENTIFIER, "retry_limit"),
        ("Call parseLine() twice", TokenKind.IDENTIFIER, "parseLine()"),
        ("The TimeDelta field", TokenKind.IDENTIFIER, "TimeDelta"),
        ("Set MAX_SIZE low", TokenKind.IDENTIFIER, "MAX_SIZE"),
        ("The HTTP answer", TokenKind.CONSTANT, "HTTP"),
        ("Pass --no-verify never", TokenKind.FLAG, "--no-verify"),
    ],
)
def test_token(line: str, kind: TokenKind, name: str) -> None:
    assert (kind, name) in [(token.kind, token.text) for token in tokens(line)]


@pytest.mark.parametrize("line", ["this and/or that", "Let us go.", "start/pause"])
def test_plain_words_are_no_names(line: str) -> None:
    assert names(line) == ()


@pytest.mark.parametrize(
    ("text", "name", "held"),
    [
        ("port 8081 is used", "8081", True),
        ("port 18081 is used", "8081", False),
        ("port 8081.", "8081", True),
        ("it is 3.14 long", "3", False),
        ("see src/app.py", "app.py", False),
        ("see app.py", "app.py", True),
        ("see app.pyc", "app.py", False),
        ("端口是8081。", "8081", True),
        ("retry_limit_max", "retry_limit", False),
    ],
)
def test_holds_looks_for_whole_names(text: str, name: str, held: bool) -> None:
    assert holds(text, name) is held


def test_quotations_in_several_marks() -> None:
    assert quotations('say "go now" or „jetzt los“ or «allez»') == ("go now", "jetzt los", "allez")


@given(st.text(max_size=300))
def test_any_text_holds_its_own_names(text: str) -> None:
    for token in tokens(text):
        assert token.text in text
        assert text.startswith(token.text, token.start)
