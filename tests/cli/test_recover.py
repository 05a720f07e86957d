"""`emelex memory sessions recover` as people and scripts meet it (behaviours 96 to 100, 157, 159, 162; exit code 5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.journal.turns import Journal
from journals import Call, proposal, result
from program import TRICKY, Program
from stores import edit

COMMAND = ("memory", "sessions", "recover")
Interrupt = Callable[..., Session]


@pytest.fixture
def interrupt(store: MemoryStore, workspace: Path) -> Interrupt:
    """Leave a Session with an interrupted turn of so many completed, started and planned calls."""

    def make(completed: int = 0, started: int = 0, planned: int = 0, *, text: str = "weigh them") -> Session:
        session = store.start_session(workspace, title="interrupted")
        total = completed + started + planned
        batch = tuple(Call(f"call-{number}", "shell", {"command": TRICKY}) for number in range(1, total + 1))
        with store.claim_session(session.id, workspace) as lease:
            journal = Journal(lease, clock=store.clock)
            journal.begin(Event.user(text))
            if batch:
                journal.plan((Event.user(text), proposal(*batch)), batch)
            for number, call in enumerate(batch):
                if number < completed + started:
                    journal.start(call)
                if number < completed:
                    journal.complete(call, *result(call))
        return session

    return make


def test_unknown_effects_exit_with_five(emelex: Program, interrupt: Interrupt) -> None:
    """96: the calls are listed and the command is printed; with the flag the turn is closed."""
    session = interrupt(1, 2, 1)
    refused = emelex(*COMMAND, session.id[:8])
    assert refused.code == 5
    for told in ("shell", "call-2", "call-3", "emelex memory sessions recover", "--accept-unknown-effects"):
        assert told in refused.err
    assert "call-1" not in refused.err
    error = emelex(*COMMAND, session.id[:8], "--json").error
    assert error["kind"] == "UncertainToolInvocations"
    done = emelex(*COMMAND, session.id[:8], "--accept-unknown-effects")
    assert done.code == 0
    assert "nothing was run" in done.out
    assert done.out.count("unknown") == 2
    again = emelex(*COMMAND, session.id[:8], "--accept-unknown-effects")
    assert (again.code, "no interrupted turn" in again.err) == (1, True)


def test_json_counts_the_calls(emelex: Program, interrupt: Interrupt) -> None:
    """97 and 162."""
    session = interrupt(1, 1, 1)
    found = emelex(*COMMAND, session.id, "--accept-unknown-effects", "--json").json
    assert (found["type"], found["session"]) == ("recovered_tools", session.id)
    assert (found["exact"], found["uncertain"], found["not_executed"]) == (1, 1, 1)
    assert [call["status"] for call in found["calls"]] == ["completed", "unknown_effect", "not_executed"]


def test_a_turn_without_calls_needs_no_flag(emelex: Program, interrupt: Interrupt) -> None:
    """94: and the person's words are shown again, as one safe line."""
    session = interrupt(text=TRICKY)
    done = emelex(*COMMAND, session.id)
    assert done.code == 0
    assert "second" in done.out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(done.out)
    shown = emelex("memory", "sessions", "show", session.id).out
    assert "(failed_turn)" in shown
    assert "(unanswered_input)" in shown


def test_listed_calls_are_safe_on_a_terminal(emelex: Program, interrupt: Interrupt) -> None:
    """159: arguments come from a model."""
    session = interrupt(0, 1)
    refused = emelex(*COMMAND, session.id)
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(refused.err)


def test_a_session_of_another_workspace_needs_the_flag(emelex: Program, interrupt: Interrupt, elsewhere: Path) -> None:
    """157: `--all` names the Session's own directory."""
    session = interrupt()
    refused = emelex(*COMMAND, session.id, cwd=elsewhere)
    assert (refused.code, "--all" in refused.err) == (6, True)
    assert emelex(*COMMAND, session.id, "--all", cwd=elsewhere).code == 0


def test_a_session_in_use_is_left_alone(
    emelex: Program, interrupt: Interrupt, store: MemoryStore, workspace: Path
) -> None:
    """K2: a turn that is under way is nobody else's to close."""
    session = interrupt(0, 1)
    with store.claim_session(session.id, workspace):
        assert emelex(*COMMAND, session.id, "--accept-unknown-effects").code == 4
    assert store.interrupted_turn(session.id) is not None


def test_nothing_interrupted_is_told(emelex: Program, store: MemoryStore, workspace: Path) -> None:
    """100."""
    session = store.start_session(workspace, title="calm")
    told = emelex(*COMMAND, session.id)
    assert (told.code, "no interrupted turn" in told.err) == (1, True)


def test_an_interrupted_turn_is_shown(emelex: Program, interrupt: Interrupt) -> None:
    """K1: what a person wrote is there to be read before anybody recovers it; `show` says how that is done."""
    session = interrupt(1, 1, text=f"PIN-7731 {TRICKY}")
    shown = emelex("memory", "sessions", "show", session.id)
    for told in ("PIN-7731", "a turn interrupted", ": completed", ": started", f"recover {session.id}"):
        assert told in shown.out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown.out)
    found = emelex("memory", "sessions", "show", session.id, "--json").json["unfinished_turn"]
    assert [call["state"] for call in found["calls"]] == ["completed", "started"]
    assert found["input"].startswith("PIN-7731")
    assert emelex(*COMMAND, session.id, "--accept-unknown-effects").code == 0
    assert emelex("memory", "sessions", "show", session.id, "--json").json["unfinished_turn"] is None


def test_a_damaged_journal_does_not_hide_the_history(emelex: Program, interrupt: Interrupt) -> None:
    """101: `show` notes it and goes on; `recover` refuses as corrupt."""
    session = interrupt(1)
    edit(emelex.database, "UPDATE pending_tools SET result = x'7b7b'")
    shown = emelex("memory", "sessions", "show", session.id)
    assert (shown.code, "do not parse" in shown.err) == (0, True)
    assert emelex(*COMMAND, session.id).code == 7
