"""`emelex chat` and `resume` on a real pseudo-terminal, with the real built-in model (issue 5, item 6)."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

import pytest

from emelex_core import MemoryStore
from emelex_core.events import EventKind
from program import Program
from terminals import on_a_terminal

pytestmark = pytest.mark.model
PROMPT = "›"
ANSWERS = r"[a-z]{3,}"
"""Whatever the model says, it says some words."""
GREETED = "all the same"
"""What the lines before the first answer end with."""
LONG = ("PIN-7731 who are you?", "--max-tokens", "2000", "--temperature", "0")


def history(emelex: Program) -> list[tuple[str, str]]:
    """Kind and text of the only Session's events."""
    with MemoryStore.open(emelex.home) as store:
        (session,) = store.list_sessions(emelex.workspace)
        assert session.held_until is None
        return [(event.kind.value, event.text) for event in store.read_events(session.id)]


def test_a_chat_from_its_first_word_to_its_summary_of_commands(emelex: Program) -> None:
    """Asked, answered, titled, left: the Session is released and queued, and nothing else was stored."""
    with on_a_terminal(emelex, "chat", "--max-tokens", "24") as terminal:
        terminal.expect(PROMPT)
        terminal.type("/help\r")
        terminal.expect("/compact")
        terminal.type("/title\r")
        terminal.expect("nothing was said yet")
        terminal.type("Say hello to the crew.\r")
        terminal.expect(PROMPT, after="hello to the crew.")
        terminal.type("/title Greeting\r")
        terminal.expect("Greeting\n", after="/title Greeting")
        terminal.type("/hlep\r")
        terminal.expect("is no command of the chat")
        terminal.type("/exit\r")
        assert terminal.end() == 0
    with MemoryStore.open(emelex.home) as store:
        (session,) = store.list_sessions(emelex.workspace)
        assert (session.title, session.source, session.held_until) == ("Greeting", "emelex", None)
        assert store.totals().sessions == 1
    kinds = [kind for kind, _ in history(emelex)]
    assert kinds[:2] == ["user", "assistant"]
    assert emelex("memory", "status", "--json").json["queues"]["distillation"]["pending"] == 1


def test_opening_and_leaving_stores_nothing(emelex: Program) -> None:
    with on_a_terminal(emelex, "chat") as terminal:
        terminal.expect(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
    with MemoryStore.open(emelex.home) as store:
        assert store.totals().sessions == 0


def test_ctrl_c_stops_the_answer_and_keeps_the_prompt(emelex: Program) -> None:
    """K1: what was written is kept, the turn is visibly closed, and the chat goes on."""
    with on_a_terminal(emelex, "chat", "--max-tokens", "2000", "--temperature", "0") as terminal:
        terminal.expect(PROMPT)
        terminal.type("PIN-7731 who are you?\r")
        terminal.expect_like(ANSWERS, after="who are you?")
        terminal.type("\x03")
        terminal.expect("stopped; the turn is closed")
        terminal.expect(PROMPT, after="stopped")
        terminal.type("/exit\r")
        assert terminal.end() == 0
    stored = history(emelex)
    assert any("PIN-7731" in text for _, text in stored)
    assert all(kind != EventKind.ASSISTANT.value for kind, _ in stored)


def test_a_repeated_interrupt_leaves_and_no_lease_stays(emelex: Program) -> None:
    """K1: Ctrl-C, and again a moment later. One signal may swallow the next, so they come until it has ended."""
    with on_a_terminal(emelex, "chat", *LONG) as terminal:
        terminal.expect_like(ANSWERS, after=GREETED)
        while terminal.process.poll() is None:
            terminal.send(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                terminal.process.wait(0.2)
        assert terminal.end() == 130
    assert any("PIN-7731" in text for _, text in history(emelex))


def test_term_leaves_at_once_and_no_lease_stays(emelex: Program) -> None:
    """167."""
    with on_a_terminal(emelex, "chat", *LONG) as terminal:
        terminal.expect_like(ANSWERS, after=GREETED)
        terminal.send(signal.SIGTERM)
        assert terminal.end() == 143
    assert any("PIN-7731" in text for _, text in history(emelex))


def test_ctrl_c_at_the_prompt_asks_once_more(emelex: Program) -> None:
    with on_a_terminal(emelex, "chat") as terminal:
        terminal.expect(PROMPT)
        terminal.type("half a thought\x03")
        terminal.expect("Ctrl-C again")
        terminal.type("\x03")
        assert terminal.end() == 130
