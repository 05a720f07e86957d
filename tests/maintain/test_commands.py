"""`memory maintain`, `gc`, `removals` and `top` from outside (contract; reports K7, K8)."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from pools import until
from processes import keep
from program import PROGRAM, Program
from stores import DAY, edit


@pytest.fixture
def emelex(tmp_path: Path, workspace: Path) -> Program:
    return Program(home=tmp_path / "home", workspace=workspace)


@pytest.fixture
def store(emelex: Program) -> Iterator[MemoryStore]:
    """A store on the true clock: the program has no other."""
    with MemoryStore.open(emelex.home, create=True) as opened:
        yield opened


@pytest.fixture
def old(store: MemoryStore, emelex: Program, talk: Callable[..., Session]) -> Session:
    """A Session that was not used for 40 days, beside a young one."""
    talk("Young")
    session = talk("Old")
    edit(emelex.database, "UPDATE sessions SET updated_at = updated_at - ? WHERE id = ?", (40 * DAY, session.id))
    return session


def test_a_dry_run_promises_what_a_run_does(emelex: Program, old: Session, store: MemoryStore) -> None:
    """The same lines but for the tense; the JSON says the same; the journal keeps it."""
    promised = emelex("memory", "maintain", "--dry-run")
    assert promised.code == 0
    assert f"would go: session {old.id}, not used for 30 days" in promised.out
    assert store.get_session(old.id).id == old.id
    record = emelex("memory", "maintain", "--dry-run", "--json").json
    done = emelex("memory", "maintain", "--json").json
    assert (record["dry_run"], done["dry_run"]) == (True, False)
    assert record["sessions"] == done["sessions"]
    assert [removal["id"] for removal in done["sessions"]["removed"]] == [old.id]
    (line,) = emelex("memory", "removals", "--json").lines
    assert (line["kind"], line["id"], line["reason"]) == ("session", old.id, "not used for 30 days")
    assert old.id in emelex("memory", "removals").out
    assert [session.title for session in store.list_sessions()] == ["Young"]


def test_days_are_the_users(emelex: Program, old: Session) -> None:
    """Limits table: 30 by default, 1 to 3,650."""
    assert f"would go: session {old.id}" not in emelex("memory", "maintain", "--dry-run", "--days", "41").out
    assert f"would go: session {old.id}" in emelex("memory", "maintain", "--dry-run", "--days", "39").out
    for days in ("0", "3651", "x"):
        assert emelex("memory", "maintain", "--days", days).code == 2
    for rows in ("0", "10001"):
        assert emelex("memory", "maintain", "--rows", rows).code == 2


def test_days_of_the_configuration_stand_where_none_are_given(emelex: Program, old: Session) -> None:
    """`[retention]` in the Home's file; the option wins over it; a project may not say it at all."""
    config = emelex.home / "config.toml"
    dry = ("memory", "maintain", "--dry-run")
    config.write_text("[retention]\nsessions_days = 39\nknowledge_days = 3000\n", "utf-8")
    assert f"would go: session {old.id}, not used for 39 days" in emelex(*dry).out
    config.write_text("[retention]\nsessions_days = 41\n", "utf-8")
    assert f"would go: session {old.id}" not in emelex(*dry).out
    assert f"would go: session {old.id}" in emelex(*dry, "--days", "30").out
    (emelex.workspace / ".git").mkdir()
    (emelex.workspace / ".emelex.toml").write_text("[retention]\nsessions_days = 1\n", "utf-8")
    refused = emelex(*dry, "--json")
    assert (refused.code, refused.error["kind"]) == (6, "Refused")


@pytest.mark.model
def test_a_pool_keeps_as_long_as_the_configuration_says(emelex: Program, old: Session, store: MemoryStore) -> None:
    """By itself it would keep a Session for 90 days; a new store's first slot has come, so that it runs at once."""
    (emelex.home / "config.toml").write_text("[retention]\nsessions_days = 39\n", "utf-8")
    with emelex.started("memory", "pool", "--workers", "1") as process:
        until(lambda: old.id not in {session.id for session in store.list_sessions()}, seconds=30)
        process.terminate()
        assert process.wait(60) == 143
    (line,) = emelex("memory", "removals", "--json").lines
    assert (line["id"], line["reason"]) == (old.id, "not used for 39 days")


def test_the_keys_are_those_that_are_documented(emelex: Program, store: MemoryStore) -> None:
    """One object, the same keys whatever happened."""
    keys = ["type", "done", "dry_run", "counted_at", "clock_lag_seconds", "lost_claims", "stale_leases", "sessions"]
    keys += ["phases", "assets", "file", "problems"]
    for options in (("maintain",), ("gc",), ("maintain", "--dry-run")):
        assert list(emelex("memory", *options, "--json").json) == keys
    assert emelex("memory", "gc", "--json").json["file"]["vacuum"] == "whole"


def test_two_runs_at_once_are_one(emelex: Program, store: MemoryStore) -> None:
    """K8: the second exits 0 with one plain line."""
    from emelex_workers import maintain

    with maintain._alone(store.database.path) as alone:
        assert alone
        second = emelex("memory", "maintain")
        assert (second.code, second.err) == (0, "")
        assert second.out == "another maintenance run is under way; nothing was done\n"
        assert emelex("memory", "maintain", "--json").json["done"] is False


def test_a_phase_that_fails_is_told_and_the_rest_is_done(emelex: Program, store: MemoryStore, old: Session) -> None:
    """112: here the Session cannot go; the file is tended all the same, and the code is that of the error."""
    edit(emelex.database, "CREATE TRIGGER stay BEFORE DELETE ON sessions BEGIN SELECT raise(ABORT, 'stay'); END")
    result = emelex("memory", "maintain", "--json")
    assert [(problem["phase"], problem["kind"]) for problem in result.json["problems"]] == [("sessions", "Corrupt")]
    assert result.code == 7
    assert result.json["sessions"] is None
    assert result.json["file"]["wal_busy"] is False
    assert "not finished: sessions:" in emelex("memory", "maintain").err
    assert store.get_session(old.id).id == old.id


def test_a_store_that_stays_locked_is_told_by_code_75(emelex: Program, store: MemoryStore) -> None:
    """K2: after a bounded wait, with nothing done."""
    with store.database.write():
        result = emelex("memory", "maintain", "--json")
    assert (result.code, result.error["kind"], result.out) == (75, "StorageBusy", "")


def test_nothing_stored_is_nothing_to_do(emelex: Program) -> None:
    """Exit 0, a note, no Home."""
    for words in (("maintain",), ("gc",), ("maintain", "--dry-run"), ("removals",), ("top",)):
        result = emelex("memory", *words)
        assert result.code == 0
        assert "nothing is stored yet" in result.err
    assert not emelex.home.exists()


def test_top_without_a_terminal_is_one_snapshot(
    emelex: Program, talk: Callable[..., Session], store: MemoryStore
) -> None:
    """Words, no escape sequence; JSON with ids but no text of a transcript."""
    talk("SECRET title", distill=True)
    result = emelex("memory", "top")
    assert result.code == 0
    assert "distillation  1" in result.out
    assert "\x1b" not in result.out
    found = emelex("memory", "top", "--json")
    assert found.json["queues"]["distillation"]["pending"] == 1
    assert found.json["maintained_at"] is None
    assert "SECRET" not in result.out + found.out


def test_top_on_a_terminal_is_live_and_ends_with_ctrl_c(
    emelex: Program, talk: Callable[..., Session], store: MemoryStore
) -> None:
    """It shows what happens while it runs, and gives the screen back."""
    leader, follower = pty.openpty()
    process = keep(
        subprocess.Popen(
            [*PROGRAM, "memory", "top", "--interval", "0.2"],
            cwd=emelex.workspace,
            env=emelex.env({"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}),
            stdin=follower,
            stdout=follower,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    )
    os.close(follower)
    seen = b""
    while b"Ctrl-C ends" not in seen:
        seen += os.read(leader, 65_536)
    session = store.start_session(emelex.workspace, title="While it runs")
    with store.claim_session(session.id, emelex.workspace) as lease:
        lease.append_turn([Event.user("Weigh."), Event.assistant("Weighed.")])
    seen = b""
    while b"1 Session" not in seen:
        seen += os.read(leader, 65_536)
    process.terminate()
    try:
        while chunk := os.read(leader, 65_536):
            seen += chunk
    except OSError:
        # The other end is closed: the program has ended.
        pass
    _, err = process.communicate(timeout=60)
    os.close(leader)
    assert (process.returncode, err) == (0, b"")
    assert b"\x1b[?1049l" in seen
