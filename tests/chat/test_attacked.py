"""What a person, a terminal or another process does at the wrong moment, and a chat that stands it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading

import pytest

from chat_endpoint import Reply, serving
from emelex_core import MemoryStore
from emelex_core.sessions.records import Session
from program import PROGRAM, Program
from stores import behind
from terminals import on_a_terminal

PROMPT = "›"
WRITING = json.dumps({"path": "out.txt", "text": "x"})
CALL = Reply(calls=[("write_file", WRITING)])


def sessions(emelex: Program) -> list[Session]:
    with MemoryStore.open(emelex.home) as store:
        return list(store.list_sessions(emelex.workspace))


def test_a_yes_that_was_typed_before_the_question_approves_nothing(emelex: Program) -> None:
    """It was typed while the model answered; the question is asked all the same."""
    arrived, answer = threading.Event(), threading.Event()

    class Waiting(Reply):
        @property
        def finish_reason(self) -> str:
            arrived.set()
            answer.wait(30)
            return super().finish_reason

    with serving(Waiting(calls=CALL.calls), Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat", "Write it.") as terminal:
            assert arrived.wait(30)
            terminal.type("y\ry\r")
            terminal.expect("y")
            answer.set()
            terminal.expect("allow it?")
            terminal.type("n\r")
            terminal.expect("not allowed")
            terminal.expect(PROMPT, after="Well.")
            terminal.type("/exit\r")
            assert terminal.end() == 0
    assert not (emelex.workspace / "out.txt").exists()


@pytest.mark.parametrize("by_signal", [True, False])
def test_one_interrupt_at_the_question_is_a_no_and_the_chat_goes_on(emelex: Program, by_signal: bool) -> None:
    with serving(CALL, Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat", "Write it.") as terminal:
            terminal.expect("allow it?")
            if by_signal:
                terminal.send(signal.SIGINT)
            else:
                terminal.type("\x03")
            terminal.expect("stopped; the turn is closed")
            terminal.expect(PROMPT, after="stopped")
            terminal.type("And now?\r")
            terminal.expect("Well.")
            terminal.expect(PROMPT, after="Well.")
            terminal.type("/exit\r")
            assert terminal.end() == 0
    assert not (emelex.workspace / "out.txt").exists()


@pytest.mark.parametrize("hung_up", [True, False])
def test_a_terminal_that_goes_away_leaves_a_closed_and_queued_session(emelex: Program, hung_up: bool) -> None:
    """HUP is a TERM, and ends with its code."""
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat", "Hello.") as terminal:
            terminal.expect("Well.")
            terminal.expect(PROMPT, after="Well.")
            terminal.send(signal.SIGHUP if hung_up else signal.SIGTERM)
            assert terminal.end() == 143
    (session,) = sessions(emelex)
    assert session.held_until is None
    assert emelex("memory", "status", "--json").json["queues"]["distillation"]["pending"] == 1


def test_a_first_message_that_no_turn_takes_begins_nothing(emelex: Program) -> None:
    """It is less than 2 MiB as it is, and more as JSON."""
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        done = subprocess.run(
            [*PROGRAM, "chat"],
            cwd=emelex.workspace,
            env=emelex.env(),
            input=b"\x01" * 400_000,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert endpoint.asked == []
    assert not emelex.database.exists() or sessions(emelex) == []


def test_half_a_character_on_the_command_line_begins_nothing(emelex: Program) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", os.fsdecode(b"half \xed\xa0\xbd")).code == 1
    assert sessions(emelex) == []


@pytest.mark.parametrize("keys", ["\x1b[<0;1M", "\x1b[M", "\x1b[1;2R", "\x1b[<" + "9" * 5000 + ";1;1M", "\x1b[999;1z"])
def test_raw_sequences_do_not_show_the_editors_insides(emelex: Program, keys: str) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat") as terminal:
            terminal.expect(PROMPT)
            terminal.type(keys)
            terminal.type("\x15")
            terminal.type("Hello.\r")
            terminal.expect("Well.")
            terminal.expect(PROMPT, after="Well.")
            terminal.type("/exit\r")
            assert terminal.end() == 0
            assert "Press ENTER" not in terminal.seen
            assert "Traceback" not in terminal.seen


def test_the_first_lines_say_who_answers_and_where(emelex: Program) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat") as terminal:
            terminal.expect(PROMPT)
            assert "endpoint:scripted answers in" in terminal.seen
            assert "/help" in terminal.seen
            terminal.type("/tools\r")
            terminal.expect("write_file")
            terminal.type("/exit\r")
            assert terminal.end() == 0
    assert sessions(emelex) == []


@pytest.mark.model
def test_the_built_in_model_says_that_it_is_tiny_and_has_no_tools(emelex: Program) -> None:
    with on_a_terminal(emelex, "chat", "--max-tokens", "4") as terminal:
        terminal.expect(PROMPT)
        assert "this model is tiny" in terminal.seen
        terminal.type("/tools\r")
        terminal.expect("this chat has no tools")
        terminal.type("Hello.\r")
        terminal.expect(PROMPT, after="Hello.")
        terminal.type("/tools\r")
        terminal.expect("this chat has no tools", after="Hello.")
        terminal.type("/exit\r")
        assert terminal.end() == 0


def test_resume_below_a_directory_with_chats_says_the_rule(emelex: Program) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", "Hello.").code == 0
        (emelex.workspace / "below" / "deep").mkdir(parents=True)
        refused = emelex("-C", "below/deep", "resume", "And?", "--json")
        assert (refused.code, refused.error["kind"]) == (3, "NotFound")
        assert "the directory that it was begun in" in refused.error["message"]
        assert str(emelex.workspace) in refused.error["message"]


def test_resume_with_an_endpoint_that_moved_says_so(emelex: Program) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", "Hello.").code == 0
        config = emelex.home / "config.toml"
        config.write_text(config.read_text().replace('model = "scripted"', 'model = "other"'))
        refused = emelex("resume", "And?", "--json")
    assert (refused.code, refused.error["kind"]) == (6, "SessionModelMismatch")
    assert "config.toml" in refused.error["hint"]


def test_a_held_write_lock_ends_the_chat_with_one_message(emelex: Program) -> None:
    """The approved call was not run; that and the way back are said once."""
    with serving(CALL, Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        with on_a_terminal(emelex, "chat", "Write it.") as terminal:
            terminal.expect("allow it?")
            with behind(emelex.database) as raw:
                raw.execute("BEGIN IMMEDIATE")
                terminal.type("y\r")
                code = terminal.end()
    assert code == 75
    assert terminal.seen.count("emelex: error:") == 1
    assert "was not run" in terminal.seen
    assert "emelex resume" in terminal.seen
    assert not (emelex.workspace / "out.txt").exists()


def test_a_busy_session_is_named_with_its_end_and_what_to_do(emelex: Program) -> None:
    with serving(Reply(text="Well.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", "Hello.").code == 0
        (session,) = sessions(emelex)
        with MemoryStore.open(emelex.home) as store, store.claim_session(session.id, emelex.workspace):
            refused = emelex("resume", "And?", "--json")
    assert (refused.code, refused.error["kind"]) == (4, "SessionBusy")
    assert "in use by another process, until 2" in refused.error["message"]
    assert "emelex resume" in refused.error["hint"]
