"""Making text and JSON safe for their sinks, as functions (behaviours 158, 159)."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_cli import durations, shapes, sqlite_release
from emelex_cli.output import counted, describe, neutralise, one_line, path_text, to_json
from emelex_core.archive.backup import _Overtaken
from emelex_core.archive.document import Document
from emelex_core.assets.files import Missing
from emelex_core.db.database import Conflict
from emelex_core.db.schema import Outdated
from emelex_core.errors import AmbiguousId, EmelexError, NewerSchema, Storage, UsageError

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
TEXT = st.text(st.characters(), max_size=60)


@given(TEXT)
def test_nothing_unsafe_survives(text: str) -> None:
    """No control character but tab and line feed, no bidi control, no half character; one line is one line."""
    for safe, kept in ((neutralise(text), "\t\n"), (one_line(text), "")):
        assert not set(safe) & set(BIDI)
        assert all(unicodedata.category(character) != "Cc" or character in kept for character in safe)
        safe.encode("utf-8")


@given(TEXT)
def test_json_loses_nothing_and_is_safe(text: str) -> None:
    """It parses back to the same text, half characters aside, in UTF-8 and in ASCII."""
    expected = "".join("\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in text)
    plain, ascii_only = to_json(text), to_json(text, ascii_only=True)
    assert json.loads(plain.encode("utf-8")) == json.loads(ascii_only.encode("ascii")) == expected
    assert one_line(plain) == plain


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain ü 😀", "plain ü 😀"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J", "\\x9b2J"),
        ("exe\u202egnp", "exe\\u202egnp"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("dos\r\nline", "dos\nline"),
        ("over\rwrite", "over\\rwrite"),
        ("half\ud83d", "half\\ud83d"),
        ("👩‍👧", "👩‍👧"),
        ("pass\u200bword", "pass\\u200bword"),
        ("soft\u00adhyphen", "soft\\xadhyphen"),
        ("filled\u3164in", "filled\\u3164in"),
    ],
)
def test_escapes_are_visible(text: str, safe: str) -> None:
    """What stays, and what becomes an escape."""
    assert neutralise(text) == safe


def test_an_error_is_described_with_its_causes() -> None:
    """Class, message, hint, the chain below, and the candidates of an ambiguous id."""
    error = Storage("cannot write", hint="free space")
    error.__cause__ = OSError(28, "No space left on device")
    error.__cause__.__cause__ = ValueError("deep")
    assert describe(error) == {
        "kind": "Storage",
        "message": "cannot write",
        "hint": "free space",
        "causes": ["OSError: [Errno 28] No space left on device", "ValueError: deep"],
    }
    assert describe(AmbiguousId("two", candidates=("a", "b")))["candidates"] == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_Overtaken("gone"), "StorageBusy"),
        (Missing("gone"), "Corrupt"),
        (Conflict("twice"), "Corrupt"),
        (Outdated("old"), "Refused"),
        (NewerSchema("new"), "NewerSchema"),
        (EmelexError("bare"), "EmelexError"),
    ],
)
def test_the_kind_of_an_error_is_a_class_of_the_tree(error: EmelexError, kind: str) -> None:
    """What a module derives for itself has its parent's name outside."""
    assert describe(error)["kind"] == kind


def test_paths_are_valid_text() -> None:
    """Bytes that are no UTF-8 are escapes."""
    assert path_text(b"/tmp/\xff-\xc3\xa9".decode("utf-8", "surrogateescape")) == "/tmp/\\xff-é"


def test_a_document_is_json_only_when_it_is_whole() -> None:
    """Members, arrays, objects in an array; a failure leaves it open."""
    pieces: list[bytes] = []
    with Document(pieces.append) as document:
        document.value("a", 1)
        document.items("empty", ())
        document.objects("list", [lambda inner: inner.items("rows", [{"x": 1}, {"x": 2}])])
    assert json.loads(b"".join(pieces)) == {"a": 1, "empty": [], "list": [{"rows": [{"x": 1}, {"x": 2}]}]}
    cut: list[bytes] = []
    with pytest.raises(TypeError), Document(cut.append) as document:
        document.items("a", [1, object()])
    with pytest.raises(json.JSONDecodeError):
        json.loads(b"".join(cut))


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("1h1m1s", 3661), ("90", 90)]
)
def test_durations(text: str, seconds: float) -> None:
    """As people type them."""
    assert durations.seconds(text, option="--max-time") == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "s", "h", "1d", "-1s", "1.5h", "1m1h", "٣s", "9" * 30, "400h h", "1 h"]
)
def test_what_is_no_duration(text: str) -> None:
    """A usage error that names the option."""
    with pytest.raises(UsageError, match="--max-time"):
        durations.seconds(text, option="--max-time")


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        ("3.6.23", True),
        ("3.7.0", False),
        ("3.40.1", False),
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.54.1", True),
        ("4.0.0", True),
    ],
)
def test_releases_of_sqlite_with_the_fault_are_known(version: str, sound: bool) -> None:
    """3.7.0 to 3.51.2, without the back-ports (reports, K2)."""
    assert (sqlite_release.fault(version) is None) == sound


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (1 << 45, "32768.0 GiB")]
)
def test_sizes(count: int, told: str) -> None:
    """Binary units, one decimal."""
    assert shapes.size(count) == told


def test_short_texts() -> None:
    """White space is folded, the end is cut with an ellipsis."""
    assert shapes.short("a  b\n\tc", 10) == "a b c"
    assert shapes.short("abcdef", 4) == "abc…"


def test_counts_carry_their_noun() -> None:
    assert [counted(number, "Session") for number in (0, 1, 2)] == ["0 Sessions", "1 Session", "2 Sessions"]
    assert [counted(number, "Knowledge entry") for number in (1, 3)] == ["1 Knowledge entry", "3 Knowledge entries"]
