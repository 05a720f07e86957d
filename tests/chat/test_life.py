"""The whole life of a chat: a tool, a kill, recovery, more turns, work, and a resume with Summary and Knowledge.

The model is scripted, so that it calls what it should; the workers run the real built-in model.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from chat_endpoint import Endpoint, Reply, serving
from emelex_core import MemoryStore
from program import Program
from terminals import on_a_terminal

RULE = "Always run `make parcels` before you commit."
APPENDING = json.dumps({"command": "printf x >> out.txt; sleep 30"})
LONG = "The crane moved container {number} from berth {number} to the yard and logged it in yard-{number}.csv. " * 8


def session_id(emelex: Program) -> str:
    with MemoryStore.open(emelex.home) as store:
        (session,) = store.list_sessions(emelex.workspace)
        return session.id


def shown(endpoint: Endpoint) -> str:
    """Everything that the model was shown in the last round."""
    return json.dumps(endpoint.asked[-1]["messages"])


def until_it_appended(emelex: Program) -> None:
    while not (emelex.workspace / "out.txt").exists() or not (emelex.workspace / "out.txt").read_text():
        time.sleep(0.02)


@pytest.mark.model
def test_a_chat_is_killed_recovered_compacted_and_goes_on(emelex: Program) -> None:
    """K1, issue 5: nothing is run twice, nothing that was said is lost, and what was learned comes back."""
    with serving(Reply(calls=[("shell", APPENDING)]), Reply(text="Noted.")) as endpoint:
        endpoint.configure(emelex.home, context_tokens=131_072)
        with on_a_terminal(emelex, "chat", RULE) as terminal:
            terminal.expect("allow it?")
            terminal.type("y\r")
            until_it_appended(emelex)
            terminal.process.kill()
            terminal.end()

        refused = emelex("resume", "And now?", "--json")
        assert (refused.code, refused.error["kind"]) == (5, "UncertainToolInvocations")
        session = session_id(emelex)
        assert f"sessions recover {session}" in json.dumps(refused.error)
        assert emelex("memory", "sessions", "recover", session).code == 5
        recovered = emelex("memory", "sessions", "recover", session, "--accept-unknown-effects", "--json")
        assert (recovered.code, recovered.json["uncertain"]) == (0, 1)
        assert emelex("resume", "And now?").out == "Noted.\n"
        assert "unknown" in shown(endpoint)
        assert (emelex.workspace / "out.txt").read_text() == "x"

        for number in range(12):
            assert emelex("resume", LONG.format(number=number)).code == 0
        with (emelex.home / "config.toml").open("a") as config:
            config.write("[compaction]\ncontext_tokens = 2048\n")
        done = emelex("memory", "work", "--model", "builtin:smollm2-135m", "--json")
        assert done.code == 0
        ended: dict[str, Any] = done.lines[-1]
        assert (ended["compactions"], ended["failed_jobs"], ended["remaining_jobs"]) == (1, 0, 0)
        known = emelex("memory", "knowledge", "list", "--json").lines
        assert RULE in [entry["content"] for entry in known]

        assert emelex("resume", "What do I run before a commit?").code == 0
        assert "untrusted_summary_of_earlier_turns" in shown(endpoint)
        assert "untrusted_workspace_knowledge" in shown(endpoint)
        assert LONG.format(number=0) not in shown(endpoint)
    assert (emelex.workspace / "out.txt").read_text() == "x"
    checked = emelex("memory", "check", "--json")
    assert (checked.code, checked.lines[-1]["damage"]) == (0, 0)


@pytest.mark.model
def test_compact_now_is_done_in_one_step(emelex: Program) -> None:
    """It closes, lets a worker process work on this Session, and resumes: the next turn is shown the Summary."""
    with serving(Reply(text="Noted.")) as endpoint:
        endpoint.configure(emelex.home, context_tokens=131_072)
        assert emelex("chat", RULE).code == 0
        for number in range(12):
            assert emelex("resume", LONG.format(number=number)).code == 0
        config = emelex.home / "config.toml"
        config.write_text(config.read_text().replace("131072", "8192"))
        with on_a_terminal(emelex, "resume") as terminal:
            terminal.expect("›")
            terminal.type("/compact\r")
            terminal.expect("it waits while this chat holds the Session")
            terminal.type("/compact now\r")
            terminal.expect("1 compaction")
            terminal.expect("›", after="1 compaction")
            terminal.type("What was said?\r")
            terminal.expect("Noted.", after="What was said?")
            terminal.type("/exit\r")
            assert terminal.end() == 0
        assert "untrusted_summary_of_earlier_turns" in shown(endpoint)
