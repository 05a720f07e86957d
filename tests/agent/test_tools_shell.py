"""The shell: bounds in time and output, an end for the whole tree, and what a command gets to see."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from emelex_core.agent.ports import CancelToken, ToolContext
from emelex_core.agent.tools.kept_output import HeadAndTail
from emelex_core.agent.tools.rooted import Root
from emelex_core.agent.tools.shell import Shell
from emelex_core.errors import ToolError
from toolcalls import call


def alive(path: Path) -> list[int]:
    """Which of the processes that wrote their ids there still run."""
    found = [int(line) for line in path.read_text("utf-8").split()]
    return [pid for pid in found if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def wait_for(path: Path, lines: int) -> None:
    until = time.monotonic() + 20
    while not path.exists() or len(path.read_text("utf-8").split()) < lines:
        assert time.monotonic() < until, "the command did not get that far"
        os.sched_yield()


def test_output_and_exit_code(root: Root, work: Path) -> None:
    """Output and errors together, in the working directory, with the exit code."""
    outcome = call(Shell(root), command="pwd; echo err >&2; exit 3")
    assert outcome.text == f"{work}\nerr\n[exit code 3]"
    assert (outcome.is_error, outcome.exit_code) == (True, 3)
    outcome = call(Shell(root), command="printf naïve")
    assert (outcome.text, outcome.is_error, outcome.exit_code) == ("naïve", False, 0)
    assert call(Shell(root), command="true").text == "[no output]"


def test_a_signal_is_no_exit_code(root: Root) -> None:
    """The shell that kills itself ended by a signal."""
    outcome = call(Shell(root), command="kill -9 $$")
    assert (outcome.text, outcome.exit_code) == ("[the command was ended by signal 9]", None)


def test_no_input_no_terminal_no_descriptors(root: Root, work: Path) -> None:
    """Reading ends at once; there is no terminal to ask on; nothing of ours is open."""
    assert call(Shell(root), command="cat; echo read").text == "read\n"
    assert call(Shell(root), command="tty < /dev/tty").is_error
    with open(work / "ours", "wb") as ours:
        os.set_inheritable(ours.fileno(), True)
        listed = call(Shell(root), command="ls /proc/self/fd").text.split()
    assert set(listed) <= {"0", "1", "2", "3"}


def test_a_command_does_not_see_keys(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is named like a secret stays here (187)."""
    monkeypatch.setenv("SOME_API_KEY", "sk-123")
    monkeypatch.setenv("ORDINARY", "shown")
    text = call(Shell(root), command="env").text
    assert "sk-123" not in text
    assert "ORDINARY=shown" in text
    assert "PAGER=cat" in text


def test_output_that_is_no_utf8(root: Root) -> None:
    """Replaced, and said."""
    outcome = call(Shell(root), command=r"printf 'a\377b'")
    assert outcome.text == "a\ufffdb\n[bytes that are no UTF-8 are shown as \ufffd]"


def test_huge_output_keeps_head_and_tail(root: Root) -> None:
    """Both ends count; what lies between is counted, and the exit code is still told."""
    outcome = call(Shell(root), command="echo FIRST; yes | head -c 3000000; echo LAST; exit 2", output_bytes_max=4_000)
    assert outcome.text.startswith("FIRST\ny\n")
    assert "LAST\n[exit code 2]" in outcome.text
    assert "bytes are left out here" in outcome.text
    assert len(outcome.text.encode()) <= 4_000


def test_a_hard_timeout_ends_the_whole_tree(root: Root, work: Path) -> None:
    """Children in the background, in sessions of their own, and such as ignore the polite signal."""
    command = (
        "echo $$ >> pids; sleep 600 & echo $! >> pids; "
        "setsid sh -c 'echo $$ >> pids; sleep 600' & "
        "sh -c \"trap '' TERM; echo \\$\\$ >> pids; while :; do sleep 1; done\" & "
        "wait"
    )
    outcome = call(Shell(root), command=command, timeout_seconds=1)
    assert "did not end within 1 seconds" in outcome.text
    assert (outcome.is_error, outcome.exit_code) == (True, None)
    assert len((work / "pids").read_text("utf-8").split()) == 4
    assert alive(work / "pids") == []


def test_what_a_command_leaves_behind_is_ended(root: Root, work: Path) -> None:
    """A call that returned has nothing running any more, even what holds its output open or left its tree."""
    command = "sleep 600 & echo $! > pids; (setsid sleep 600 & echo $! >> pids); echo done"
    outcome = call(Shell(root), command=command)
    assert outcome.text.startswith("done\n[")
    assert "left running were ended" in outcome.text
    assert outcome.exit_code == 0
    assert alive(work / "pids") == []


def test_cancelling_ends_it(root: Root, work: Path) -> None:
    """From another thread, in the middle; the answer says what happened (81)."""
    cancel = CancelToken()

    def stop() -> None:
        wait_for(work / "pids", 2)
        cancel.cancel()

    stopper = threading.Thread(target=stop)
    stopper.start()
    outcome = call(Shell(root), command="echo $$ > pids; sleep 600 & echo $! >> pids; wait", cancel=cancel)
    stopper.join()
    assert "it was cancelled; what it did before stays done" in outcome.text
    assert alive(work / "pids") == []


def test_a_dropped_call_ends_its_command(root: Root, work: Path) -> None:
    """When nobody waits any more, nothing runs on (85)."""

    async def drop() -> None:
        context = ToolContext(cancel=CancelToken(), approved=True, output_bytes_max=1_000)
        running = asyncio.create_task(Shell(root).run({"command": "echo $$ > pids; sleep 600"}, context))
        await asyncio.to_thread(wait_for, work / "pids", 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(drop())
    assert alive(work / "pids") == []


def test_a_command_with_a_nul_is_none(root: Root) -> None:
    """An answer, not a broken tool."""
    with pytest.raises(ToolError, match="NUL"):
        call(Shell(root), command="echo \0")


@pytest.mark.parametrize("size", [0, 10, 44, 45, 200])
@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_head_and_tail_of_text(size: int, step: int) -> None:
    """However it comes in, a cut falls between characters, and what is left out is counted exactly."""
    data = "😀é".encode() * size
    kept = HeadAndTail(256 + 40)
    for start in range(0, len(data), step):
        kept.add(data[start : start + step])
    text, replaced = kept.text()
    assert not replaced
    if len(data) <= 40:
        assert text.encode() == data
    else:
        head, rest = text.split("\n[… ")
        count, tail = rest.split(" bytes are left out here …]\n")
        assert data.startswith(head.encode())
        assert data.endswith(tail.encode())
        assert len(head.encode()) + int(count) + len(tail.encode()) == len(data)


def test_what_hides_from_its_tree_is_ended(root: Root, work: Path) -> None:
    """No parent, no session, no environment of ours: the keeper adopted it all the same."""
    hidden = "env -i setsid setsid sh -c 'echo $$ >> pids; sleep 600' &"
    outcome = call(Shell(root), command=f"{hidden} while [ ! -s pids ]; do sleep 0.01; done; echo done")
    assert outcome.text == "done\n[2 processes that it left running were ended]"
    assert alive(work / "pids") == []


def test_a_keeper_that_is_killed(root: Root, work: Path) -> None:
    """By the command itself: what it kept carries a mark, and is ended by that."""
    command = "sleep 600 & echo $! > pids; setsid sleep 600 & echo $! >> pids; kill -9 $PPID; sleep 600"
    outcome = call(Shell(root), command=command, timeout_seconds=20)
    assert "ended by signal 9" in outcome.text
    assert alive(work / "pids") == []


def test_when_we_die_the_command_dies(root: Root, work: Path) -> None:
    """A process that is killed in the middle of a call leaves nothing behind (K8, 190)."""
    code = f"""
        import asyncio
        from pathlib import Path
        from emelex_core.agent.ports import CancelToken, ToolContext
        from emelex_core.agent.tools.rooted import Root
        from emelex_core.agent.tools.shell import Shell
        context = ToolContext(cancel=CancelToken(), approved=True, output_bytes_max=1000)
        command = "echo $$ > pids; (setsid sleep 600 & echo $! >> pids); sleep 600"
        asyncio.run(Shell(Root(Path({str(work)!r}))).run({{"command": command}}, context))
    """
    with subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(code)]) as process:
        wait_for(work / "pids", 2)
        assert len(alive(work / "pids")) == 2
        process.kill()
    until = time.monotonic() + 20
    while alive(work / "pids"):
        assert time.monotonic() < until, "the command outlived us"
        os.sched_yield()


def test_a_command_that_cannot_start(root: Root, work: Path) -> None:
    """The shell says so; a directory that is gone is still the open one."""
    assert call(Shell(root), command="/no/such/program").exit_code == 127
    work.rename(work.parent / "moved")
    assert call(Shell(root), command="pwd").text == f"{work.parent / 'moved'}\n"
