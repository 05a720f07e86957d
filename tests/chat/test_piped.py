"""`emelex chat` and `resume` for scripts: one message, one answer, JSON events; nobody is asked (issue 5, item 6)."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chat_endpoint import Reply, serving
from emelex_core import MemoryStore
from pictures import picture
from program import PROGRAM, Program


def piped(emelex: Program, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run with bytes in standard input."""
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=emelex.workspace, env=emelex.env(), input=data, capture_output=True, timeout=60
    )


def only_session(emelex: Program) -> Any:
    with MemoryStore.open(emelex.home) as store:
        (session,) = store.list_sessions(emelex.workspace)
        return session


def test_the_answer_goes_to_stdout_and_the_session_is_queued(emelex: Program) -> None:
    with serving(Reply(text="Four parcels 😀.")) as endpoint:
        endpoint.configure(emelex.home)
        done = emelex("chat", "How many parcels?")
    assert (done.code, done.out, done.err) == (0, "Four parcels 😀.\n", "")
    session = only_session(emelex)
    assert (session.title, session.model_reference, session.held_until) == (
        "How many parcels?",
        "endpoint:scripted",
        None,
    )
    assert emelex("memory", "status", "--json").json["queues"]["distillation"]["pending"] == 1


def test_bytes_come_back_as_they_were_said(emelex: Program) -> None:
    """K10: line ends and all; the prompt stands before the pipe."""
    with serving(Reply(text="ok")) as endpoint:
        endpoint.configure(emelex.home)
        done = piped(emelex, b"a\r\nb\rc\n", "chat", "Count the lines.")
        assert done.returncode == 0
        assert endpoint.asked[0]["messages"][-1]["content"] == "Count the lines.\n\na\r\nb\rc\n"
    with MemoryStore.open(emelex.home) as store:
        assert store.read_events(only_session(emelex).id)[0].text == "Count the lines.\n\na\r\nb\rc\n"


@pytest.mark.parametrize(
    ("data", "words", "code"),
    [
        (b"", "nothing to say", 2),
        (b"ok \xed\xa0\xbd", "byte 3 is no UTF-8", 1),
        (b"x" * (2 * 1024 * 1024 + 1), "more than the 2097152 bytes", 1),
    ],
)
def test_what_cannot_be_said_is_one_clear_error_and_nothing_is_stored(
    emelex: Program, data: bytes, words: str, code: int
) -> None:
    """K10 and K11: no input, half characters, too much."""
    done = piped(emelex, data, "chat")
    assert (done.returncode, words in done.stderr.decode()) == (code, True)
    assert not emelex.database.exists()


def test_calls_that_need_a_yes_are_denied_and_reading_is_not(emelex: Program) -> None:
    """Every event has its JSON; the model hears of the denial and of what was read."""
    (emelex.workspace / "notes.txt").write_text("The dock is 7.\n")
    calls = [("read_file", '{"path": "notes.txt"}'), ("shell", '{"command": "touch made"}')]
    with serving(Reply(text="Let me look.", calls=calls), Reply(text="Dock 7.")) as endpoint:
        endpoint.configure(emelex.home)
        done = emelex("chat", "Which dock?", "--json")
        told = endpoint.asked[1]["messages"]
    assert done.code == 0
    events = done.lines
    kinds = [event["type"] for event in events if event["type"] != "text_delta"]
    assert kinds == [
        "turn_started",
        "tool_proposed",
        "tool_proposed",
        "tool_started",
        "tool_finished",
        "approval_asked",
        "approval_decided",
        "tool_finished",
        "checkpointed",
        "turn_completed",
        "chat_complete",
    ]
    finished = [event for event in events if event["type"] == "tool_finished"]
    assert [(event["tool"], event["status"]) for event in finished] == [
        ("read_file", "completed"),
        ("shell", "not_executed"),
    ]
    assert "The dock is 7." in json.dumps(told)
    assert not (emelex.workspace / "made").exists()
    assert events[-1]["session"] == only_session(emelex).id


def test_resume_goes_on_with_what_the_session_was_begun_with(emelex: Program) -> None:
    """61 to 65: the history is shown to the model again; another configuration is refused by its place."""
    with serving(Reply(text="One."), Reply(text="Two.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", "First?", "--max-tokens", "50").code == 0
        assert emelex("resume", "Second?").out == "Two.\n"
        said = [message["content"] for message in endpoint.asked[1]["messages"] if message["role"] != "system"]
        assert said == ["First?", "One.", "Second?"]
        assert endpoint.asked[1]["max_tokens"] == 50
        refused = emelex("chat", "--resume", "--max-tokens", "60", "Third?")
        assert (refused.code, "output_tokens_max: 50 != 60" in refused.err) == (6, True)
        other = emelex("chat", "--resume", "--model", "builtin:smollm2-135m", "Third?", "--json")
        assert (other.code, other.error["kind"]) == (6, "SessionModelMismatch")
        assert emelex("resume", "--session", "00000000", "x").code == 3
    session = only_session(emelex)
    assert (session.held_until, session.last_sequence) == (None, 6)


def test_there_is_nothing_to_resume_elsewhere(emelex: Program, tmp_path: Path) -> None:
    with serving(Reply(text="One.")) as endpoint:
        endpoint.configure(emelex.home)
        assert emelex("chat", "First?").code == 0
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        found = emelex("resume", "x", cwd=elsewhere)
    assert (found.code, "no chat was begun in this directory" in found.err) == (3, True)


def test_an_endpoint_that_is_down_leaves_the_words_in_a_closed_turn(emelex: Program) -> None:
    """The input is journalled before the model is asked: nothing that was said is lost."""
    with serving(Reply(text="never")) as endpoint:
        endpoint.configure(emelex.home)
    done = emelex("chat", "PIN-7731 what next?", "--json")
    assert done.code == 1
    assert [event["type"] for event in done.lines] == ["turn_started", "turn_failed"]
    with MemoryStore.open(emelex.home) as store:
        texts = [event.text for event in store.read_events(only_session(emelex).id)]
    assert any("PIN-7731 what next?" in text for text in texts)
    assert only_session(emelex).held_until is None


@pytest.mark.parametrize("images", [True, False])
def test_a_picture_goes_along_to_a_model_that_sees(emelex: Program, images: bool) -> None:
    """Issue 6: stored once, verified, shown to an engine that takes it; any other is told that one was there."""
    (emelex.workspace / "dock.png").write_bytes(picture(7))
    with serving(Reply(text="A dock.")) as endpoint:
        endpoint.configure(emelex.home, images=images)
        assert emelex("chat", "What is this?", "--attach", "dock.png").out == "A dock.\n"
        sent = json.dumps(endpoint.asked[0]["messages"][-1])
    data = base64.b64encode(picture(7)).decode()
    assert (data in sent) is images
    assert images or "image/png" in sent
    with MemoryStore.open(emelex.home) as store:
        (ref,) = store.read_events(only_session(emelex).id)[0].media
        assert store.read_asset(ref) == picture(7)


@pytest.mark.parametrize(("name", "code"), [("nothing.png", 3), ("notes.txt", 1), (".", 1)])
def test_what_cannot_be_attached_is_said_before_anything(emelex: Program, name: str, code: int) -> None:
    (emelex.workspace / "notes.txt").write_text("words")
    with serving(Reply(text="never")) as endpoint:
        endpoint.configure(emelex.home)
        done = emelex("chat", "What is this?", "--attach", name)
        assert (done.code, endpoint.asked) == (code, [])
    with MemoryStore.open(emelex.home) as store:
        assert store.totals().sessions == 0
