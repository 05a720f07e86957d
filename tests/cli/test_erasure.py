"""`memory sessions delete --derived` and `redact` from outside (issue 8, item 9; reports, K12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emelex_core import Session
from program import Program
from runs import holding

Talk = Callable[..., Session]
Learn = Callable[..., None]
SESSIONS = ("memory", "sessions")


def test_delete_says_what_remains_and_how_to_remove_it(emelex: Program, talk: Talk, learn: Learn) -> None:
    """K12: the note's own command removes it; then there is nothing any more."""
    session = talk(1, title="about ZX-41")
    learn("token.zx-41", "the token is ZX-41")
    told = emelex(*SESSIONS, "delete", session.id).err
    assert "1 Knowledge entry" in told
    command = f"emelex memory sessions delete {session.id} --derived"
    assert command in told
    assert len(emelex("memory", "knowledge", "search", "ZX-41", "--json").lines) == 1
    assert emelex(*SESSIONS, "delete", session.id).code == 3
    assert "went now" in emelex(*command.split()[1:]).out
    assert emelex("memory", "knowledge", "search", "ZX-41", "--json").lines == []
    assert holding(emelex.home, "ZX-41") == []
    assert emelex(*command.split()[1:]).code == 3


def test_erasing_at_once(emelex: Program, talk: Talk, learn: Learn, elsewhere: Path) -> None:
    """A receipt; another workspace needs --all (157)."""
    session = talk(2, title="about ZX-41")
    learn("token.zx-41", "the token is ZX-41")
    emelex(*SESSIONS, "search", "weigh")
    assert emelex("-C", elsewhere, *SESSIONS, "delete", session.id, "--derived").code == 6
    told = emelex(*SESSIONS, "delete", session.id[:8], "--derived")
    assert f"erased {session.id}, about ZX-41: 8 events, 1 job" in told.out
    assert "1 Knowledge entry and 1 version, 0 proposals" in told.out
    assert "backups" in told.err
    assert holding(emelex.home, "ZX-41", "weigh parcels") == []


def test_redacting(emelex: Program, talk: Talk) -> None:
    """A pattern or secrets, one of them; what is replaced shows in the transcript and its heading."""
    session = talk(1)
    redact = (*SESSIONS, "redact", session.id)
    for flags in ((), ("--secrets", "--pattern", "x"), ("--pattern", "("), ("--pattern", "x*")):
        assert emelex(*redact, *flags).code == 2, flags
    dry = emelex(*redact, "--pattern", "depot[- ][0-9]", "--dry-run")
    assert "would replace 3 places in 2 events" in dry.out
    assert "replaced 3 places in 2 events" in emelex(*redact, "--pattern", "depot[- ][0-9]").out
    shown = emelex(*SESSIONS, "show", session.id).out
    assert "Weighing [redacted]." in shown
    assert ": 3 places in 2 events" in shown
    (record,) = emelex(*SESSIONS, "show", session.id, "--json").json["redactions"]
    assert (record["kind"], record["events"], record["places"]) == ("pattern", 2, 3)
    assert record["chain_before"] != record["chain_after"]
    assert holding(emelex.home, "depot-1", "depot 1") == []
    assert emelex("memory", "check").code == 0
    assert emelex(*redact, "--pattern", "depot[- ][0-9]").out.startswith("replaced 0 places")


def test_redacting_secrets(emelex: Program, store: object, talk: Talk) -> None:
    """Issue 8, item 8: what the detector of derived text would mask."""
    del store
    secret = "ghp_" + "a1B2" * 9
    session = talk(1, title=f"key {secret}")
    found = emelex(*SESSIONS, "redact", session.id, "--secrets", "--json").json
    assert (found["kind"], found["places"], found["others"], found["clean"]) == ("secrets", 0, 1, True)
    assert holding(emelex.home, secret) == []
