"""find_files and grep.

grep runs in a process of its own: a regular expression can take for ever, and nothing inside Python can stop it.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Annotated, ClassVar, Final

import msgspec

from emelex_core.agent.calls import Effect, ToolContext, ToolOutcome
from emelex_core.agent.tools.globs import Glob
from emelex_core.agent.tools.placed import PathText, PlacedTool
from emelex_core.agent.tools.process import Ended, ProcessPlan, run_process
from emelex_core.agent.tools.rooted import Place
from emelex_core.agent.tools.walk import Walk
from emelex_core.agent.wording import shortened, visible
from emelex_core.codec import encode
from emelex_core.errors import ToolError

FILES_MAX: Final = 2_000
MATCHES_MAX: Final = 500
GREP_SECONDS_MAX: Final = 30.0
PATTERN_MAX: Final = 1_024


class FindFilesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What find_files is called with."""

    pattern: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=PATTERN_MAX, description="such as *.py, src/**/test_*.py or README*"),
    ]
    path: PathText = "."


class FindFiles(PlacedTool[FindFilesArguments]):
    """Paths of files whose names fit a pattern."""

    name: ClassVar[str] = "find_files"
    description: ClassVar[str] = (
        "Find files by name below a directory. A pattern without a slash fits names at any depth; ** fits directories."
    )
    effect = Effect.READS
    shape = FindFilesArguments

    def work(self, arguments: FindFilesArguments, context: ToolContext) -> ToolOutcome:
        """List the paths that fit, below the path that was given."""
        pattern = Glob(arguments.pattern)
        place = self.root.place(arguments.path)
        walk = Walk(context.cancel)
        lines: list[str] = []
        more = False
        with self.root.directory(place) as start:
            for found in walk.entries(start):
                if stat.S_ISDIR(found.mode) or not pattern.matches(found.path):
                    continue
                if len(lines) == FILES_MAX:
                    more = True
                    break
                lines.append(visible(_spelled(found.path)))
        notes = [*walk.notes, *([f"more than {FILES_MAX} files fit"] if more else [])]
        text = "\n".join(lines) or "[no file fits]"
        return ToolOutcome(text=shortened(_with_notes(text, notes), context.output_bytes_max))


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What grep is called with."""

    pattern: Annotated[
        str, msgspec.Meta(min_length=1, max_length=PATTERN_MAX, description="the text to look for in each line")
    ]
    path: PathText = "."
    files: (
        Annotated[str, msgspec.Meta(max_length=PATTERN_MAX, description="only in files that fit, such as *.py")] | None
    ) = None
    regex: Annotated[bool, msgspec.Meta(description="whether the pattern is a regular expression")] = False
    ignore_case: bool = False


class Grep(PlacedTool[GrepArguments]):
    """Lines that hold a text or fit a regular expression."""

    name: ClassVar[str] = "grep"
    description: ClassVar[str] = "Search text in a file, or in all files below a directory. Answers path:line: text."
    effect = Effect.READS
    shape = GrepArguments

    def work(self, arguments: GrepArguments, context: ToolContext) -> ToolOutcome:
        """Search in a process of its own, which gets nothing but the open file or directory."""
        if arguments.files is not None:
            Glob(arguments.files)
        place = self.root.place(arguments.path)
        descriptor = self._open(place)
        try:
            request = {
                "pattern": arguments.pattern,
                "files": arguments.files,
                "regex": arguments.regex,
                "ignore_case": arguments.ignore_case,
                "shown": "" if place.spelled == "." else place.spelled.rstrip("/"),
                "matches_max": MATCHES_MAX,
            }
            plan = ProcessPlan(
                argv=(sys.executable, "-P", "-m", "emelex_core.agent.tools.grep_child", str(descriptor)),
                directory=self.root.descriptor(),
                environment=_environment(),
                input=encode(request, what="the search", bytes_max=64 * 1024),
                descriptors=(descriptor,),
                seconds_max=GREP_SECONDS_MAX,
                output_bytes_max=context.output_bytes_max,
            )
            ended = run_process(plan, context.cancel)
        finally:
            os.close(descriptor)
        return _answer(ended)

    def _open(self, place: Place) -> int:
        try:
            with self.root.file(place) as descriptor:
                return os.dup(descriptor)
        except ToolError as no_file:
            try:
                with self.root.directory(place) as descriptor:
                    return os.dup(descriptor)
            except ToolError:
                raise no_file from None


def _answer(ended: Ended) -> ToolOutcome:
    if ended.stopped is not None:
        raise ToolError(f"the search was stopped: {ended.stopped}")
    if ended.exit_code != 0:
        raise ToolError(f"the search failed: {shortened(ended.text.strip(), 1_024)}")
    return ToolOutcome(text=ended.text)


def _environment() -> dict[str, str]:
    """Enough for this interpreter to find itself again."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONHOME", "VIRTUAL_ENV") if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry.startswith("/")),
        "PYTHONUTF8": "1",
    }


def _spelled(path: tuple[str, ...]) -> str:
    return os.fsencode("/".join(path)).decode("utf-8", "replace")


def _with_notes(text: str, notes: list[str]) -> str:
    return f"{text}\n[{'; '.join(notes)}]" if notes else text
