"""`memory knowledge`: what a person changes, finds and reviews (behaviours 142 to 147, 157, 159, 162; reports, K11)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Session
from program import PROGRAM, TRICKY, Program

Talk = Callable[..., Session]
Learn = Callable[..., None]
KNOWLEDGE = ("memory", "knowledge")


def test_what_a_person_does_is_told(emelex: Program) -> None:
    """162: `{action, knowledge}`; the first `add` makes the Home."""
    added = emelex(*KNOWLEDGE, "add", "db", "PostgreSQL 15", "--json").json
    assert set(added) == {"action", "knowledge"}
    assert (added["action"], added["knowledge"]["version"], added["knowledge"]["origin"]) == ("add", 1, "user")
    assert emelex(*KNOWLEDGE, "add", "db", "PostgreSQL 16").out == "db: version 2 is active\n"
    assert emelex(*KNOWLEDGE, "pin", "db").out == "db: pinned\n"
    assert emelex(*KNOWLEDGE, "forget", "db", "--reason", "wrong", "--json").json["knowledge"]["forgotten"] is True
    assert emelex(*KNOWLEDGE, "pin", "db").code == 1
    assert emelex(*KNOWLEDGE, "activate", "db", "--version", "1", "--json").json["knowledge"]["content"] == (
        "PostgreSQL 15"
    )
    assert emelex(*KNOWLEDGE, "activate", "db", "--version", "9").code == 3
    assert emelex(*KNOWLEDGE, "unpin", "db").code == 0
    told = emelex(*KNOWLEDGE, "history", "db").out
    for part in ("-PostgreSQL 15", "+PostgreSQL 16", "version 1, active", "forgotten by user, version 2: wrong"):
        assert part in told


def test_another_workspace_is_refused(emelex: Program, elsewhere: Path) -> None:
    """144: exit code 6, naming the directory; nothing under that key anywhere is 3."""
    emelex(*KNOWLEDGE, "add", "db", "a")
    for verb in ("pin", "unpin", "forget", "activate"):
        refused = emelex("-C", elsewhere, *KNOWLEDGE, verb, "db", "--json")
        assert (refused.code, refused.error["kind"]) == (6, "WorkspaceMismatch")
        assert str(emelex.workspace) in refused.error["message"]
        assert emelex(*KNOWLEDGE, verb, "never").code == 3


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("don't",), True),
        (("pre-edit",), True),
        (('"',), True),
        (("foo AND",), True),
        (("*",), True),
        (("100%",), True),
        (("a_b",), True),
        (("axb",), False),
        (("foo", "OR", "bar"), False),
        (("--", "-x"), True),
    ],
)
def test_search_takes_words_literally(emelex: Program, talk: Talk, words: tuple[str, ...], found: bool) -> None:
    """K11, over Knowledge and over transcripts."""
    text = 'don\'t use the pre-edit hook; foo AND bar is "100%" * a_b -x'
    emelex(*KNOWLEDGE, "add", "rule", text)
    assert [line["key"] for line in emelex(*KNOWLEDGE, "search", "--json", *words).lines] == ["rule"] * found
    talk(1, title="empty")
    assert emelex("memory", "sessions", "search", *words).code == 0


def test_what_is_no_search(emelex: Program) -> None:
    """K11: empty is a usage error, 10,000 characters a clear one; nowhere a traceback."""
    for stored in (False, True):
        if stored:
            emelex(*KNOWLEDGE, "add", "db", "a")
        for command in (KNOWLEDGE, ("memory", "sessions")):
            for words in ([""], [" ", "\t"], []):
                assert emelex(*command, "search", *words).code == 2
            if stored:
                long = emelex(*command, "search", "x" * 10_000)
                assert long.code == 1
                assert "256" in long.err
                assert "Traceback" not in long.err


def test_pages_of_what_was_found(emelex: Program) -> None:
    """147 and 149: the cursor goes on without repeats; one of another list is a usage error."""
    for number in range(3):
        emelex(*KNOWLEDGE, "add", f"k{number}", "port")
    first = emelex(*KNOWLEDGE, "search", "port", "--limit", "2", "--json").lines
    rest = emelex(*KNOWLEDGE, "search", "port", "--cursor", first[-1]["cursor"], "--json").lines
    assert sorted(entry["key"] for entry in first + rest) == ["k0", "k1", "k2"]
    for cursor in ("x", "3/1.0/1", "1/nan/1", "1/1.0", "1.2"):
        assert emelex(*KNOWLEDGE, "search", "port", "--cursor", cursor).code == 2
    for cursor in ("x", "inf/1", "1.0/x"):
        assert emelex("memory", "sessions", "search", "port", "--cursor", cursor).code == 2
    assert emelex(*KNOWLEDGE, "review", "--cursor", "x").code == 2


def test_transcripts_are_searched(emelex: Program, talk: Talk, elsewhere: Path) -> None:
    """Issue 8, item 10: by workspace, by Session, in all; where nothing is stored, that is the answer."""
    session = talk(2)
    found = emelex("memory", "sessions", "search", "naïve", "turn", "--json").lines
    assert [(line["session"], line["kind"]) for line in found] == [(session.id, "user")] * 2
    assert "Turn 1: always weigh" in emelex("memory", "sessions", "search", "turn 1").out
    assert emelex("-C", elsewhere, "memory", "sessions", "search", "turn", "--json").lines == []
    assert len(emelex("-C", elsewhere, "memory", "sessions", "search", "turn", "--all", "--json").lines) == 2
    refused = emelex("-C", elsewhere, "memory", "sessions", "search", "turn", "--session", session.id)
    assert (refused.code, "--all" in refused.err) == (6, True)
    none = emelex("memory", "sessions", "search", "turn", "--home", elsewhere / "nowhere")
    assert (none.code, none.out) == (0, "")
    assert not (elsewhere / "nowhere").exists()


def test_evidence_is_shown_in_its_context(emelex: Program, talk: Talk, learn: Learn) -> None:
    """Issue 8, item 10: the event and its neighbours."""
    talk(1)
    learn("rule.weigh")
    found = emelex(*KNOWLEDGE, "show", "rule.weigh", "--json").json
    assert [event["sequence"] for event in found["context"]] == [1, 2]
    assert found["evidence"]["quote"] in found["context"][0]["text"]
    told = emelex(*KNOWLEDGE, "show", "rule.weigh").out
    assert "[1] You" in told
    assert "Weighing depot 1." in told


def test_review(emelex: Program, talk: Talk, learn: Learn) -> None:
    """138: what a run may not change waits, with what is active beside it; several can be decided at once."""
    emelex(*KNOWLEDGE, "add", "rule.weigh", "never weigh")
    for _ in range(2):
        talk(1)
        learn("rule.weigh")
    told = emelex(*KNOWLEDGE, "review").out
    for part in ("upsert rule.weigh, because: user_written", "- never weigh", "+ Parcels are weighed"):
        assert part in told
    ids = [line["id"] for line in emelex(*KNOWLEDGE, "review", "--json").lines]
    assert [line["action"] for line in emelex(*KNOWLEDGE, "reject", ids[1][:8], "--json").lines] == ["reject"]
    (accepted,) = emelex(*KNOWLEDGE, "accept", ids[0], "--json").lines
    assert accepted["knowledge"]["content"].startswith("Parcels are weighed")
    assert emelex(*KNOWLEDGE, "review", "--json").lines == []
    assert emelex(*KNOWLEDGE, "accept", ids[0]).code == 1
    assert emelex(*KNOWLEDGE, "accept", "0" * 8).code == 3
    assert emelex(*KNOWLEDGE, "accept", "%").code != 0


def test_undo(emelex: Program, talk: Talk, learn: Learn) -> None:
    """Issue 8, item 6: by the job that `show` names."""
    talk(1)
    learn("rule.weigh")
    job = emelex(*KNOWLEDGE, "show", "rule.weigh", "--json").json["job"]
    assert emelex(*KNOWLEDGE, "undo", job[:8], "--json").json["removed"] == ["rule.weigh"]
    assert emelex(*KNOWLEDGE, "list", "--json").lines == []
    assert "0 entries as before" in emelex(*KNOWLEDGE, "undo", job).out


def test_what_held_when(emelex: Program) -> None:
    """Issue 8, item 6: an instant, or a day; nonsense is a usage error."""
    emelex(*KNOWLEDGE, "add", "db", "a")
    assert emelex(*KNOWLEDGE, "list", "--as-of", "2001-01-01", "--json").lines == []
    assert len(emelex(*KNOWLEDGE, "list", "--as-of", "9998-01-01T00:00:00Z", "--json").lines) == 1
    for text in ("yesterday", "2026-13-01", "2026-01-01T00:00:00", ""):
        assert emelex(*KNOWLEDGE, "list", "--as-of", text).code == 2


def test_content_from_a_pipe(emelex: Program) -> None:
    """Bytes as they came, but for the last line break; no text is refused."""

    def add(data: bytes) -> int:
        command = [*PROGRAM, *KNOWLEDGE, "add", "piped", "-"]
        return subprocess.run(
            command, cwd=emelex.workspace, env=emelex.env(), input=data, capture_output=True, timeout=60
        ).returncode

    assert add("a\r\nnaïve\n\n".encode()) == 0
    assert emelex(*KNOWLEDGE, "show", "piped", "--json").json["content"] == "a\r\nnaïve\n"
    assert [add(data) for data in (b"", b"\xff", b"x" * (2**20 + 1))] == [1, 1, 1]


def test_a_source_has_to_be_here(emelex: Program, talk: Talk, elsewhere: Path) -> None:
    """143: a Session of another workspace is refused; --event needs a Session."""
    session = talk(1)
    add = (*KNOWLEDGE, "add", "db", "a")
    assert emelex(*add, "--event", "1").code == 2
    assert emelex("-C", elsewhere, *add, "--session", session.id).code == 1
    assert (
        emelex(*add, "--session", session.id[:8], "--event", "2", "--json").json["knowledge"]["session"] == session.id
    )
    assert emelex(*add, "--confidence", "1.1").code == 2


def test_texts_are_harmless(emelex: Program) -> None:
    """159: keys, contents, snippets, reasons, differences."""
    key = "rule.\u202etricky"
    emelex(*KNOWLEDGE, "add", key, TRICKY)
    emelex(*KNOWLEDGE, "add", key, TRICKY + " more")
    emelex(*KNOWLEDGE, "forget", key, "--reason", TRICKY)
    emelex(*KNOWLEDGE, "activate", key)
    for words in (("list",), ("search", "plan"), ("show", key), ("history", key), ("pin", key)):
        for flags in ((), ("--json",)):
            result = emelex(*KNOWLEDGE, *words, *flags)
            assert result.code == 0, result.err
            assert not {"\x1b", "\x07", "\u202e", "\u2066", "\x9b"} & set(result.out)
