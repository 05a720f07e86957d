"""What every tool holds to, whatever it does: its declaration, its arguments, its bounds, and where it may reach."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import ScriptedModel
from emelex_core import limits
from emelex_core.agent.ports import CancelToken, Effect, Tool, ToolContext
from emelex_core.agent.schemas import argument_check
from emelex_core.agent.session import AgentSession
from emelex_core.agent.tools import rooted, standard_tools
from emelex_core.agent.tools.rooted import Root
from emelex_core.errors import ToolError
from toolcalls import call

NAMES = (
    "read_file",
    "list_directory",
    "find_files",
    "grep",
    "write_file",
    "edit_file",
    "shell",
    "datetime",
    "web_fetch",
)
GOOD: dict[str, dict[str, Any]] = {
    "read_file": {"path": "a.txt"},
    "list_directory": {},
    "find_files": {"pattern": "*"},
    "grep": {"pattern": "a"},
    "write_file": {"path": "a.txt", "text": "new"},
    "edit_file": {"path": "a.txt", "old": "alpha", "new": "omega"},
    "shell": {"command": "echo hello"},
    "datetime": {},
    "web_fetch": {"url": "http://127.0.0.1:1/"},
}
BAD: dict[str, list[dict[str, Any]]] = {
    "read_file": [{}, {"path": ""}, {"path": 1}, {"path": "a", "first_line": 0}, {"path": "a", "more": 1}],
    "list_directory": [{"path": None}, {"path": "x" * 5000}],
    "find_files": [{}, {"pattern": ""}, {"pattern": ["*"]}],
    "grep": [{}, {"pattern": "x", "regex": "yes"}, {"pattern": "x" * 2000}],
    "write_file": [{"path": "a"}, {"path": "a", "text": 1}],
    "edit_file": [{"path": "a", "old": "", "new": "x"}, {"path": "a", "old": "x"}],
    "shell": [{}, {"command": ""}, {"command": "x", "timeout_seconds": 0}, {"command": "x", "timeout_seconds": 10**6}],
    "datetime": [{"zone": 1}],
    "web_fetch": [{}, {"url": ""}],
}
PLACED = ("read_file", "list_directory", "find_files", "grep", "write_file", "edit_file")
FILES = ("read_file", "grep", "write_file", "edit_file")


@pytest.fixture(params=[True, False], ids=["openat2", "each component"])
def root(request: pytest.FixtureRequest, work: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test runs twice: as the kernel resolves paths, and as it is done without its help."""
    if request.param and not rooted.openat2_is_there():
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(rooted, "openat2_is_there", lambda: request.param)
    (work / "a.txt").write_text("alpha\nbeta\n", "utf-8")
    with Root(work) as opened:
        yield opened


def tool_of(root: Root, name: str) -> Tool:
    return next(tool for tool in standard_tools(root, web=True) if tool.declaration.name == name)


def with_path(name: str, path: str) -> dict[str, Any]:
    return {**GOOD[name], "path": path}


def test_the_tools_are_these(root: Root) -> None:
    """One each, in a fixed order; the web only where it is asked for; a session takes them all."""
    tools = standard_tools(root, web=True)
    assert tuple(tool.declaration.name for tool in tools) == NAMES
    assert tuple(tool.declaration.name for tool in standard_tools(root)) == NAMES[:-1]
    AgentSession(ScriptedModel(), tools, system="")
    effects = {tool.declaration.name: tool.effect for tool in tools}
    assert {name for name, effect in effects.items() if effect is Effect.WRITES} == {"write_file", "edit_file"}
    assert {name for name, effect in effects.items() if effect is Effect.EXECUTES} == {"shell"}


@pytest.mark.parametrize("name", NAMES)
def test_declarations_are_closed_and_described(root: Root, name: str) -> None:
    """A model is told what it needs; what is not declared is refused."""
    declaration = tool_of(root, name).declaration
    assert len(declaration.description) > 20
    assert declaration.parameters["type"] == "object"
    assert declaration.parameters["additionalProperties"] is False
    check = argument_check(declaration.parameters, what=name)
    assert check(GOOD[name]) is None
    assert check({**GOOD[name], "other": 1}) is not None


@pytest.mark.parametrize(("name", "arguments"), [(name, bad) for name in NAMES for bad in BAD[name]])
def test_bad_arguments(root: Root, name: str, arguments: dict[str, Any]) -> None:
    """The schema refuses them; what it cannot say, the tool does, in words."""
    tool = tool_of(root, name)
    if argument_check(tool.declaration.parameters, what=name)(arguments) is None:
        pytest.fail(f"the schema lets {arguments} pass")
    with pytest.raises(ToolError):
        asyncio.run(tool.run(arguments, ToolContext(cancel=CancelToken(), approved=True, output_bytes_max=1_000)))


@pytest.mark.parametrize("name", NAMES[:-1])
def test_good_calls_answer_text(root: Root, name: str) -> None:
    """Something readable comes back, and a preview says beforehand what would happen."""
    tool = tool_of(root, name)
    assert tool.preview(GOOD[name])
    outcome = call(tool, **GOOD[name])
    assert outcome.text
    assert not outcome.is_error


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize(
    "spelling", ["../outside", "../outside/b.txt", "/etc/passwd", "sub/../../outside", "//etc/passwd"]
)
def test_outside_places_need_approval(root: Root, work: Path, name: str, spelling: str) -> None:
    """Caution says so, and without approval the tool itself refuses, whatever its caller did."""
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("alpha", "utf-8")
    tool = tool_of(root, name)
    arguments = with_path(name, spelling)
    assert "outside of the working directory" in (tool.caution(arguments) or "")
    with pytest.raises(ToolError, match="approv"):
        call(tool, **arguments)
    assert (outside / "b.txt").read_text("utf-8") == "alpha"


@pytest.mark.parametrize("name", ["read_file", "grep", "edit_file"])
def test_approved_outside_places_are_reached(root: Root, work: Path, name: str) -> None:
    """A grant is for exactly this call."""
    (work.parent / "b.txt").write_text("alpha\n", "utf-8")
    arguments = with_path(name, "../b.txt")
    if name == "grep":
        arguments["pattern"] = "alpha"
    assert "alpha" in call(tool_of(root, name), approved=True, **arguments).text or name == "edit_file"
    if name == "edit_file":
        assert (work.parent / "b.txt").read_text("utf-8") == "omega\n"


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize(
    "spelling", [".env", ".env.local", "conf/id_rsa", "server.pem", ".ssh/config", "credentials.json", "Secrets.YAML"]
)
def test_secrets_need_approval(root: Root, name: str, spelling: str) -> None:
    """Their names are enough to ask."""
    tool = tool_of(root, name)
    assert "secrets" in (tool.caution(with_path(name, spelling)) or "")
    with pytest.raises(ToolError, match="approv"):
        call(tool, **with_path(name, spelling))


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize(
    "spelling", ["a.txt", "docs/environment.md", ".env.example", "src/secrets.py", "id_rsa.pub", "."]
)
def test_ordinary_files_need_none(root: Root, name: str, spelling: str) -> None:
    """Asking too often teaches to say yes."""
    assert tool_of(root, name).caution(with_path(name, spelling)) is None


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("kind", ["file", "directory", "on the way", "dangling"])
def test_no_symbolic_link_is_followed(root: Root, work: Path, name: str, approved: bool, kind: str) -> None:
    """Not at the end, not on the way, not when approved, not when dangling: what is behind stays as it was."""
    target = work.parent / "target"
    target.mkdir()
    (target / "b.txt").write_text("alpha\n", "utf-8")
    links = {
        "file": (target / "b.txt", "link"),
        "directory": (target, "link"),
        "on the way": (target, "link/b.txt"),
        "dangling": (target / "none", "link"),
    }
    points_at, spelling = links[kind]
    (work / "link").symlink_to(points_at)
    with pytest.raises(ToolError, match="symbolic link"):
        call(tool_of(root, name), approved=approved, **with_path(name, spelling))
    assert (target / "b.txt").read_text("utf-8") == "alpha\n"
    assert sorted(entry.name for entry in target.iterdir()) == ["b.txt"]
    assert (work / "link").is_symlink()


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_regular_file_is_refused_at_once(root: Root, work: Path, name: str) -> None:
    """A FIFO that nobody writes, a socket, a device: no waiting, no reading, no replacing."""
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
        for spelling, approved in (("fifo", False), ("socket", False), ("/dev/zero", True), ("/dev/null", True)):
            with pytest.raises(ToolError, match="no regular file"):
                call(tool_of(root, name), approved=approved, **with_path(name, spelling))
        assert {entry.name for entry in work.iterdir()} == {"a.txt", "fifo", "socket"}


@pytest.mark.parametrize("name", PLACED)
def test_what_is_not_there_is_told(root: Root, name: str) -> None:
    """An answer, not a broken tool; writing makes what is missing."""
    if name == "write_file":
        assert "Made" in call(tool_of(root, name), **with_path(name, "new/deep/b.txt")).text
        return
    with pytest.raises(ToolError, match="does not exist"):
        call(tool_of(root, name), **with_path(name, "none/b.txt"))


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("spelling", ["a\0b", "x" * 300, "a.txt/b", "é" * 4_000])
def test_odd_paths_are_answers(root: Root, name: str, spelling: str) -> None:
    """NUL, a name too long, a file as a directory, a path too long."""
    with pytest.raises(ToolError):
        call(tool_of(root, name), **with_path(name, spelling))


@pytest.mark.parametrize("name", PLACED)
def test_a_renamed_directory_is_still_the_one(root: Root, work: Path, name: str) -> None:
    """The descriptor counts: what now stands under the old name is not touched."""
    moved = work.rename(work.parent / "moved")
    work.mkdir()
    (work / "a.txt").write_text("decoy alpha", "utf-8")
    outcome = call(tool_of(root, name), **with_path(name, "a.txt" if name in FILES else "."))
    assert "decoy" not in outcome.text
    assert (work / "a.txt").read_text("utf-8") == "decoy alpha"
    if name in {"write_file", "edit_file"}:
        assert (moved / "a.txt").read_text("utf-8") in {"new", "omega\nbeta\n"}


@pytest.mark.parametrize("name", NAMES[:-1])
@pytest.mark.parametrize("bound", [0, 100, 2_000])
def test_answers_stay_near_their_bound(root: Root, work: Path, name: str, bound: int) -> None:
    """Huge output is cut by the tool; what little is over it is words about the cut."""
    for index in range(500):
        (work / f"file {index:03} {'x' * 100}.txt").write_text("alpha " * 1_000, "utf-8")
    (work / "a.txt").write_text("alpha\n" * 100_000, "utf-8")
    arguments = {**GOOD[name]}
    if name == "shell":
        arguments["command"] = "yes | head -c 1000000"
    if name == "edit_file":
        arguments["everywhere"] = True
    outcome = call(tool_of(root, name), output_bytes_max=bound, **arguments)
    assert len(outcome.text.encode()) <= bound + 1_024


@pytest.mark.parametrize("name", NAMES)
def test_a_cancelled_call_ends_soon_and_answers(root: Root, work: Path, name: str) -> None:
    """Either it is done already, or it says that it was stopped; it never hangs (81)."""
    cancel = CancelToken()
    cancel.cancel()
    arguments = {"shell": {"command": "sleep 600"}}.get(name, GOOD[name])
    try:
        said = call(tool_of(root, name), approved=True, cancel=cancel, **arguments).text
    except ToolError as error:
        said = error.message
    assert said
    if name in {"shell", "web_fetch", "write_file", "edit_file", "read_file", "grep"}:
        assert "cancelled" in said


@pytest.mark.parametrize("name", NAMES[:-1])
def test_no_descriptor_is_left_open(root: Root, work: Path, name: str) -> None:
    """After good calls and bad ones there are as many as before."""
    (work / "link").symlink_to("/etc")
    tool = tool_of(root, name)
    attempts: list[dict[str, Any]] = [GOOD[name]]
    if name in PLACED:
        attempts += [with_path(name, spelling) for spelling in ("none/x", "link/passwd", "../x", ".")]

    def attempt() -> None:
        for arguments in attempts:
            try:
                call(tool, approved=True, **arguments)
            except ToolError:
                continue

    attempt()
    before = list(Path("/proc/self/fd").iterdir())
    attempt()
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.parametrize("name", FILES)
def test_a_name_that_changes_all_the_time(root: Root, work: Path, name: str) -> None:
    """A file that is swapped with a link to a secret: the secret is never read and never written."""
    secret = work.parent / "secret"
    secret.write_text("alpha SECRET", "utf-8")
    stop = threading.Event()

    def swap() -> None:
        plain, link, at = work / "plain", work / "odd", work / "swapped"
        while not stop.is_set():
            plain.write_text("alpha plain", "utf-8")
            plain.replace(at)
            link.unlink(missing_ok=True)
            link.symlink_to(secret)
            link.replace(at)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        until = time.monotonic() + (1.5 if name == "grep" else 0.5)
        while time.monotonic() < until:
            try:
                outcome = call(tool_of(root, name), **with_path(name, "swapped"))
            except ToolError:
                continue
            assert "SECRET" not in outcome.text
    finally:
        stop.set()
        swapper.join()
    assert secret.read_text("utf-8") == "alpha SECRET"


@pytest.mark.parametrize("name", ["list_directory", "find_files", "grep"])
def test_files_that_disappear_during_a_search(root: Root, work: Path, name: str) -> None:
    """They are passed over; the search still answers."""
    for index in range(200):
        (work / f"f{index}").mkdir()
        (work / f"f{index}" / "x").write_text("alpha", "utf-8")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for index in range(200):
                (work / f"f{index}" / "x").unlink(missing_ok=True)
                (work / f"f{index}").rename(work / f"g{index}")
                (work / f"g{index}").rename(work / f"f{index}")

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        for _ in range(3):
            assert call(tool_of(root, name), **GOOD[name]).text
    finally:
        stop.set()
        churner.join()


@pytest.mark.parametrize("name", PLACED)
def test_the_event_loop_is_not_held_up(root: Root, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Work runs on a thread: a callback that the loop has to run comes through while the tool works."""
    tool = tool_of(root, name)
    loop_thread = threading.get_ident()
    seen: list[int] = []
    original: Callable[..., Any] = getattr(tool, "work")  # noqa: B009 - every tool here has it, the port has not

    def work_and_look(*arguments: Any) -> Any:
        seen.append(threading.get_ident())
        return original(*arguments)

    monkeypatch.setattr(tool, "work", work_and_look)
    call(tool, **GOOD[name])
    assert seen
    assert loop_thread not in seen


def test_a_closed_root_serves_nobody(work: Path) -> None:
    """After `close` there is no descriptor to work in."""
    opened = Root(work)
    opened.close()
    opened.close()
    with pytest.raises(Exception, match="closed"):
        call(tool_of(opened, "list_directory"))


def test_bounds_are_the_tables(root: Root) -> None:
    """256 KiB of output each (limits table)."""
    assert limits.TOOL_OUTPUT_BYTES_MAX == 256 * 1024
