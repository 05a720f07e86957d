"""Tool calls as command and outcome: what was done, never what a tool said (behaviour 185).

The module owns these invariants:

- Of a tool's output only an exit status and one error line in a known form get out; prose of a tool never does.
- A call is paired with its result by id, latest first; ids that a transcript repeats are paired in order.
- The newest plan of an agent supersedes its earlier ones; a command that later succeeded is no open failure.
- Memory is bounded: so many open calls, files and commands are kept, oldest out first and counted.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec

from emelex_core.events import ToolCallPart, ToolResultPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import lines, secrets
from emelex_workers.text.anchors import is_error_line

TRACKED_MAX: Final = 4_096
COMMAND_CHARACTERS_MAX: Final = 160
OUTPUT_CHARACTERS_MAX: Final = 16_384
"""An error line is looked for in the first and the last so many characters of a failed output."""

_SHELL_TOOLS: Final = """
bash shell local_shell exec exec_command run_terminal_cmd execute_command run_command run_shell_command terminal
container.exec  execute_bash powershell
"""
_SHELLS: Final = frozenset(_SHELL_TOOLS.split())
_PATH_KEYS: Final = (
    "file_path",
    "path",
    "filename",
    "file_name",
    "notebook_path",
    "target_file",
    "absolute_path",
    "filePath",
)
_VERBS: Final = (
    ("read", re.compile(r"read|view|open|cat|show|list|ls\b|glob|grep|search|find", re.I)),
    ("deleted", re.compile(r"delete|remove|unlink", re.I)),
    ("edited", re.compile(r"edit|replace|update|patch|insert|append|modify", re.I)),
    ("wrote", re.compile(r"write|create|save|new", re.I)),
)
_PATCH: Final = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.{1,400})$", re.M)
_PATCH_VERBS: Final = {"Add": "wrote", "Update": "edited", "Delete": "deleted"}
_EXIT_CODE: Final = re.compile(r"\A\s{0,8}(?:Exit code|Process exited with code) (\d{1,3})\b")
_HEREDOC: Final = re.compile(r"<<-?\s?['\"]?(\w+)")
_TASK_ID: Final = re.compile(r"Task #(\d{1,6})\b")
_DONE: Final = frozenset({"completed", "done", "cancelled", "canceled", "deleted"})


class _ShellInput(msgspec.Struct):
    """Arguments of a shell call that an importer could only keep as text."""

    command: str | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, how often it ran, and how it last ended: `failure` is its error, None where it succeeded."""

    text: str
    sequence: int
    runs: int
    failed_runs: int
    finished: bool
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTouch:
    """A file that tools touched: counts by verb, and the last event that did."""

    path: str
    sequence: int
    verbs: dict[str, int]

    @property
    def changed(self) -> bool:
        """Whether anything but reading happened to it."""
        return any(verb != "read" for verb in self.verbs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One step of the agent's plan."""

    text: str
    sequence: int
    status: str

    @property
    def is_open(self) -> bool:
        """Whether it is neither done nor given up."""
        return self.status not in _DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call that waits for its result: its tool's name, and its command line as it is shown, None for other tools."""

    name: str
    command: str | None


@dataclass(slots=True)
class ActionLog:
    """Collects the actions of a Session, event by event in order."""

    commands: OrderedDict[str, Command] = field(default_factory=OrderedDict[str, Command])
    files: OrderedDict[str, FileTouch] = field(default_factory=OrderedDict[str, FileTouch])
    tasks: OrderedDict[str, Task] = field(default_factory=OrderedDict[str, Task])
    delegations: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    errors: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    plan_sequence: int = 0
    dropped: int = 0
    open_calls: OrderedDict[str, OpenCall] = field(default_factory=OrderedDict[str, OpenCall])

    def add(self, event: StoredEvent) -> None:
        """Take in one event's calls and results."""
        for part in event.parts:
            if isinstance(part, ToolCallPart):
                command = command_of(part)
                shown = None if command is None else command_line(command)
                self._put(self.open_calls, part.call_id, OpenCall(name=part.name, command=shown))
                self._call(part, command, shown, event.sequence)
            elif isinstance(part, ToolResultPart):
                self._result(part, event.sequence)

    def _put(self, table: OrderedDict[str, Any], key: str, value: object) -> None:
        table[key] = value
        table.move_to_end(key)
        if len(table) > TRACKED_MAX:
            table.popitem(last=False)
            self.dropped += 1

    def _call(self, call: ToolCallPart, command: str | None, line: str | None, sequence: int) -> None:
        if self._plan(call, sequence):
            return
        for verb, path in touches_of(call, command):
            self._touch(verb, path, sequence)
        if command is not None and line is not None and "*** Begin Patch" not in command:
            known = self.commands.get(line)
            self._put(
                self.commands,
                line,
                Command(
                    text=line,
                    sequence=sequence,
                    runs=(known.runs if known else 0) + 1,
                    failed_runs=known.failed_runs if known else 0,
                    finished=False,
                    failure=None,
                ),
            )
        elif call.name.lower() in {"task", "agent", "delegate", "spawn_agent"}:
            purpose = call.arguments.get("description") or call.arguments.get("task")
            if isinstance(purpose, str) and purpose.strip():
                self._put(self.delegations, _one_line(purpose), sequence)

    def _touch(self, verb: str, path: str, sequence: int) -> None:
        known = self.files.get(path)
        verbs = dict(known.verbs) if known else {}
        verbs[verb] = verbs.get(verb, 0) + 1
        self._put(self.files, path, FileTouch(path=path, sequence=sequence, verbs=verbs))

    def _result(self, result: ToolResultPart, sequence: int) -> None:
        call = self.open_calls.pop(result.call_id, None)
        failure = failure_of(result)
        if call is None:
            return
        if call.name.lower() == "taskcreate" and (made := _TASK_ID.search(result.text[:200])):
            self._rename_task(result.call_id, made[1])
        known = self.commands.get(call.command) if call.command is not None else None
        if known is not None:
            failed = failure is not None
            self.commands[known.text] = replace(
                known, failure=failure, finished=True, failed_runs=known.failed_runs + failed, sequence=sequence
            )
        elif failure is not None and ": " in failure:
            self._put(self.errors, f"{_one_line(call.name)}: {failure.partition(': ')[2]}", sequence)

    def _plan(self, call: ToolCallPart, sequence: int) -> bool:
        """Take in a call that states the plan; the whole plan is stated each time, except by task tools."""
        name = call.name.lower()
        steps = call.arguments.get("todos") or call.arguments.get("plan")
        if isinstance(steps, list):
            self.tasks.clear()
            for index, (text, status) in enumerate(_steps(cast(list[object], steps))):
                self._put(self.tasks, str(index), Task(text=text, sequence=sequence, status=status))
        elif name == "taskcreate" and isinstance(subject := call.arguments.get("subject"), str):
            self._put(self.tasks, call.call_id, Task(text=_one_line(subject), sequence=sequence, status="pending"))
        elif name == "taskupdate":
            task_id = str(call.arguments.get("taskId"))
            known, stated = self.tasks.get(task_id), call.arguments.get("status")
            if known and isinstance(stated, str):
                self.tasks[task_id] = replace(known, status=_one_line(stated), sequence=sequence)
        else:
            return False
        self.plan_sequence = sequence
        return True

    def _rename_task(self, call_id: str, task_id: str) -> None:
        if task := self.tasks.pop(call_id, None):
            self._put(self.tasks, task_id, task)


def command_of(call: ToolCallPart) -> str | None:
    """Return the command line of a shell call, None for other tools."""
    value = call.arguments.get("command", call.arguments.get("cmd"))
    if value is None and call.name.lower() in _SHELLS:
        value = _unpacked(call.arguments.get("input"))
    if isinstance(value, list):
        words = [str(word) for word in cast(list[object], value)]
        value = words[2] if len(words) == 3 and words[1] in {"-c", "-lc", "-ic", "/c"} else " ".join(words)
    return value if isinstance(value, str) and value.strip() else None


def _unpacked(value: object) -> object:
    """Return the command inside arguments that came as JSON text, or the value as it is."""
    if not isinstance(value, str) or not value.startswith("{"):
        return value
    try:
        return msgspec.json.decode(value, type=_ShellInput).command
    except msgspec.MsgspecError:
        return value


def command_line(command: str) -> str:
    """Return a command as one bounded, masked line; a here-document is left out."""
    first = command.strip()
    if "\n" in first and (here := _HEREDOC.search(first)):
        first = first[: max(first.find("\n", here.end()), here.end())] + " …"
    return lines.cut(secrets.mask(lines.plain(secrets.mask(first[:4_096]))), COMMAND_CHARACTERS_MAX)


def touches_of(call: ToolCallPart, command: str | None) -> Iterator[tuple[str, str]]:
    """Yield (verb, path) for each file that a call names."""
    patch = command if command is not None else call.arguments.get("input", call.arguments.get("patch"))
    if isinstance(patch, str) and "*** Begin Patch" in patch:
        for match in _PATCH.finditer(patch):
            yield _PATCH_VERBS[match[1]], _one_line(match[2])
        return
    if command is not None and call.name.lower() in _SHELLS:
        return
    values = (call.arguments.get(key) for key in _PATH_KEYS)
    named = next((value for value in values if isinstance(value, str) and value.strip()), None)
    if named is not None:
        yield next((verb for verb, names in _VERBS if names.search(call.name)), "touched"), _one_line(named)


def failure_of(result: ToolResultPart) -> str | None:
    """Say in a few words how a call failed, with its error line where one has a known form; None for success."""
    if result.status == "unknown_effect":
        return "effect unknown"
    if result.status == "not_executed":
        return "not executed"
    stated = _EXIT_CODE.match(result.text[:64])
    exit_code = result.exit_code if result.exit_code is not None else int(stated[1]) if stated else None
    if not result.is_error and exit_code in (None, 0) and "verification failed" not in result.text[:200]:
        return None
    status = f"exit {exit_code}" if exit_code is not None else "failed"
    line = error_line(result.text)
    return f"{status}: {line}" if line else status


def error_line(output: str) -> str | None:
    """Return the last line of a failed output that has the form of an error, masked; None without one."""
    if len(output) > 2 * OUTPUT_CHARACTERS_MAX:
        output = output[:OUTPUT_CHARACTERS_MAX] + "\n" + output[-OUTPUT_CHARACTERS_MAX:]
    for line in reversed(output.splitlines()):
        shown = lines.plain(line[:512])
        if shown and is_error_line(shown):
            return secrets.mask(shown.removeprefix("E ").strip())
    return None


def _steps(steps: list[object]) -> Iterator[tuple[str, str]]:
    for step in steps:
        if isinstance(step, dict):
            stated = cast(dict[str, object], step)
            text = stated.get("content") or stated.get("step") or stated.get("title")
            status = stated.get("status")
            if isinstance(text, str) and text.strip():
                yield _one_line(text), _one_line(status) if isinstance(status, str) else "pending"


def _one_line(text: str) -> str:
    return lines.cut(secrets.mask(lines.plain(text[:2_048])), COMMAND_CHARACTERS_MAX)
