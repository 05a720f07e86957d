"""`memory pause` and `resume`, and what `status` says meanwhile (issue 7, item 7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emelex_core import Session
from program import TRICKY, Program

Talk = Callable[..., Session]


def test_a_paused_queue_stands_still_until_it_is_resumed(emelex: Program, talk: Talk) -> None:
    """A drain claims nothing and loads no model; status and top say so; a second pause keeps the first reason."""
    talk(1)
    first = emelex("memory", "pause", "--reason", "the model is being changed", "--json").lines
    assert [(line["kind"], line["reason"]) for line in first] == [
        ("compaction", "the model is being changed"),
        ("distillation", "the model is being changed"),
    ]
    assert emelex("memory", "pause", "--reason", "another", "--json").lines == first
    drained = emelex("memory", "work", "--kind", "distillation", "--model", "local:missing", "--json")
    assert (drained.code, drained.lines[-1]["remaining_jobs"]) == (0, 1)
    for flags in ([], ["--json"]):
        status = emelex("memory", "status", *flags)
        assert status.code == 0
        assert "distillation is paused since" in status.err
        assert "the model is being changed" in status.err
    assert set(emelex("memory", "top", "--json").json["paused"]) == {"compaction", "distillation"}
    assert [line["kind"] for line in emelex("memory", "resume", "--json").lines] == ["compaction", "distillation"]
    assert emelex("memory", "status").err == ""


def test_one_kind_is_paused_and_resumed_alone(emelex: Program, talk: Talk) -> None:
    """The other goes on; resuming what is not paused does nothing, and says so."""
    talk(1)
    assert "compaction is paused since" in emelex("memory", "pause", "--kind", "compaction").out
    status = emelex("memory", "status").err
    assert "compaction is paused" in status
    assert "distillation" not in status
    nothing = emelex("memory", "resume", "--kind", "distillation")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "emelex: nothing was paused\n")
    assert emelex("memory", "resume", "--kind", "compaction").out == "compaction goes on\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("pause", "--kind", "all"), 2), (("resume", "--kind", "all"), 2), (("pause", "--reason", " "), 1)],
)
def test_what_cannot_be_understood_pauses_nothing(
    emelex: Program, talk: Talk, arguments: tuple[str, ...], code: int
) -> None:
    """An unknown kind, a blank reason."""
    talk(1)
    assert emelex("memory", *arguments).code == code
    assert emelex("memory", "status").err == ""


def test_a_reason_is_one_harmless_line(emelex: Program, talk: Talk) -> None:
    """Control characters are visible escapes, for people (159)."""
    talk(1)
    for result in (emelex("memory", "pause", "--reason", TRICKY), emelex("memory", "status")):
        assert "\\x1b[31mred" in result.out + result.err
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(result.out + result.err)


def test_there_must_be_something_to_pause(emelex: Program) -> None:
    """A Home without a database is not made for it."""
    for command in ("pause", "resume"):
        assert emelex("memory", command).code == 3
    assert not emelex.home.exists()
