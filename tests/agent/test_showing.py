"""What a person is shown before they approve (limits table: approval text of 4 KiB): all of it, or what is missing."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from agents import Gadget, RecordingJournal, ScriptedModel, grants, proposes, says
from emelex_core import limits
from emelex_core.agent.approvals import question
from emelex_core.agent.calls import Arguments, Effect, ToolCall
from emelex_core.agent.session import AgentSession
from emelex_core.agent.showing import numbered, shown
from emelex_core.agent.tools.rooted import Root
from emelex_core.agent.tools.shell import Shell
from emelex_core.agent.tools.writing import EditFile, WriteFile
from emelex_core.errors import ToolError
from emelex_core.events import Event, ToolResultPart

ASKS = frozenset({Effect.WRITES, Effect.EXECUTES})


def asked(tool: Shell | WriteFile | EditFile, **arguments: object) -> str:
    found = question(tool, ToolCall(call_id="c", name=tool.name, arguments=dict(arguments)), ASKS)
    assert found is not None
    return found.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "a\nb"),
        ("a\r\nb\x1b[2K", "a␍\nb␛[2K"),
        (f"a{' ' * 30_000}b", "a⟨30000 spaces⟩b"),
        (f"a{' ' * 32}b", f"a{' ' * 32}b"),
        (f"a{chr(0xA0) * 50}b", "a⟨50 blanks⟩b"),
        ("a" + "\t" * 40 + "b", "a⟨40 blanks⟩b"),
        ("a" + "\n" * 500 + "b", "a\n⟨499 blank lines⟩\nb"),
        ("a\n\n\nb", "a\n\n\nb"),
        ("a" + "\n  " * 100, "a\n⟨100 blank lines⟩"),
        ("", ""),
    ],
)
def test_blanks_hide_nothing(text: str, expected: str) -> None:
    """Line breaks stay; long runs of blanks, and of blank lines, are a count."""
    assert shown(text) == expected
    assert shown(expected) == expected


def test_a_command_that_cannot_be_shown_whole_is_not_asked(root: Root) -> None:
    """Its end could be anything."""
    with pytest.raises(ToolError, match="too long to be approved: at most 4096 bytes"):
        asked(Shell(root), command="true " + "x" * limits.APPROVAL_TEXT_BYTES_MAX + "; rm -rf .")
    text = asked(Shell(root), command=f"true{' ' * 30_000}; rm -rf .\necho done")
    assert text == "shell: true⟨30000 spaces⟩; rm -rf .\necho done"


def test_the_model_hears_why_and_nothing_runs() -> None:
    """Whatever the tool: the refusal is the call's answer, nobody is asked, and the turn goes on."""

    class Loud(Gadget):
        def preview(self, arguments: Arguments) -> str:
            return "😀" * 2_000

    tool, journal, approve = Loud(effect=Effect.EXECUTES), RecordingJournal(), grants(True)
    session = AgentSession(ScriptedModel(proposes(("gadget", {})), says("Oh.")), [tool], system="", approve=approve)
    asyncio.run(session.run(Event.user("go"), journal=journal))
    (result,) = [part for event in session.history for part in event.parts if isinstance(part, ToolResultPart)]
    assert result.status == "not_executed"
    assert "too long to be approved: at most 4096 bytes" in result.text
    assert (tool.runs, approve.asked) == ([], [])
    assert "ask" not in journal.steps


def test_a_file_is_named_by_path_size_and_digest(root: Root) -> None:
    """Its lines are numbered; what is not shown is said, and the digest names it all."""
    text = "".join(f"line {number}\n" for number in range(1, 2_001))
    found = asked(WriteFile(root), path="a/b.txt", text=text)
    head, first, *_, last = found.split("\n")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert head == f"write_file: a/b.txt becomes: 2000 lines, {len(text)} bytes, SHA-256 {digest}"
    assert first == "1 | line 1"
    assert last.endswith("on it is not shown, or not whole]")
    assert limits.APPROVAL_TEXT_BYTES_MAX - 512 < len(found.encode()) <= limits.APPROVAL_TEXT_BYTES_MAX


def test_a_path_cannot_pose_as_a_question(root: Root) -> None:
    """Line breaks in it are signs: the head is one line, whatever the path says."""
    path = "a.txt becomes: 1 line\n1 | hello\n\n../b"
    for found in (asked(WriteFile(root), path=path, text="x"), asked(EditFile(root), path=path, old="a", new="b")):
        assert "a.txt becomes: 1 line␊1 | hello␊␊../b" in found.split("\n")[0]


def test_an_edit_shows_both_texts(root: Root) -> None:
    """The old lines with `-`, the new ones with `+`, even where both are long."""
    found = asked(EditFile(root), path="a", old="x\ny", new="z")
    assert [line.split(" SHA")[0] for line in found.split("\n")] == [
        "edit_file: in a, the one passage of 2 lines, 3 bytes,",
        "-1 | x",
        "-2 | y",
        "becomes 1 line, 1 bytes,",
        "+1 | z",
    ]
    long = asked(EditFile(root), path="a", old="o\n" * 5_000, new="n\n" * 5_000)
    assert long.count("not shown") == 2
    assert "-1 | o" in long
    assert "+1 | n" in long


@pytest.mark.parametrize("text", ["x" * 9_000, "\x00" * 9_000, "é" * 9_000, "\n" * 9_000, "\u202e" * 9_000])
@pytest.mark.parametrize("size", [0, 1, 40, 3_000])
def test_numbered_lines_keep_to_their_bound(text: str, size: int) -> None:
    """Whatever the lines are; the note about the rest comes on top."""
    assert len(numbered(text, size).encode()) <= size + 100
