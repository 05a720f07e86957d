"""Finding transcripts: files and directories in, transcript files with their formats out.

Layouts (formats.md, sections 1 and 2): Claude Code writes `projects/<folder>/<session>.jsonl` with subagents inside, in
a sibling `agent-<id>.jsonl`, or in `<session>/subagents/**/agent-<id>.jsonl`; Codex writes
`sessions/YYYY/MM/DD/rollout-*.jsonl[.zst]` and moves old ones to `archived_sessions`.

The module owns these invariants:

- A path that somebody named is read or refused by name; it is never passed over silently.
- Below a directory, symlinks and special files are not followed, and what cannot be read is kept as a problem:
  "cannot read" never looks like "nothing there".
- One rollout is read once, however many copies of it exist, plain before packed; parents come before their subagents.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emelex_core.errors import EmelexError, Invalid, NotFound
from emelex_core.imports.files.jsonl import is_packed
from emelex_core.imports.records import FORMATS, TranscriptFile
from emelex_core.imports.shapes import why_unknown
from emelex_core.imports.sniff import sniff_format

AUTO: Final = "auto"
_SUFFIXES: Final = (".jsonl", ".jsonl.zst", ".json", ".json.zst", ".zip", ".db", ".sqlite", ".sqlite3")
_WANTED: Final = (
    f"name a file, or a folder with one, of {', '.join(FORMATS)}; their names end in {', '.join(_SUFFIXES)}"
)
_DEPTH_MAX: Final = 32
"""Levels below a named directory; a workflow's subagents sit nine levels below the agent's own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found. It iterates its files.

    `skipped` counts what was passed over below directories, by name; `problems` are entries there that could not be
    read, and want to be reported.
    """

    files: tuple[TranscriptFile, ...]
    skipped: Counter[str] = field(default_factory=Counter[str])
    problems: tuple[tuple[Path, EmelexError], ...] = ()

    def __iter__(self) -> Iterator[TranscriptFile]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def discover(paths: Sequence[Path], *, format: str = AUTO) -> Discovery:  # noqa: A002 - the command line's own word
    """Return the transcripts that the paths name or contain; `auto` takes every known format.

    Raises: NotFound for a path that does not exist, and for a directory without transcripts; Invalid for a file that is
    unreadable, empty, no regular file, or no transcript of the format, naming path and reason.
    """
    if format != AUTO and format not in FORMATS:
        raise Invalid(f"no reader for the format {format!r}", hint=f"known are {', '.join(FORMATS)}")
    search = _Search(format)
    for path in paths:
        search.named(path)
    return search.result()


class _Search:
    """One call of `discover`: what it found so far."""

    def __init__(self, expected: str) -> None:
        self._expected = expected
        self._found: dict[str, TranscriptFile] = {}
        self._skipped: Counter[str] = Counter()
        self._problems: list[tuple[Path, EmelexError]] = []

    def named(self, path: Path) -> None:
        """Take in a path that somebody named. A symlink is followed here, and only here: it is what they named."""
        try:
            place = path.resolve(strict=True)
        except FileNotFoundError:
            raise NotFound(f"{path}: no such file or directory") from None
        except (OSError, RuntimeError, ValueError) as error:
            raise Invalid(f"{path}: it cannot be opened: {_reason(error)}") from None
        if not place.is_dir():
            self._add(self._read(place, shown=path))
            return
        before = len(self._found) + self._skipped["copy"]
        problems = len(self._problems)
        self._walk(place, 0)
        if len(self._found) + self._skipped["copy"] == before:
            if len(self._problems) > problems:
                raise self._problems[problems][1]
            wanted = "transcript" if self._expected == AUTO else f"{self._expected} transcript"
            raise NotFound(f"{path}: no {wanted} below it", hint=_WANTED)

    def result(self) -> Discovery:
        """Everything found, parents first."""
        files = sorted(self._found.values(), key=lambda file: (_is_agent(file), str(file.path)))
        return Discovery(files=tuple(files), skipped=self._skipped, problems=tuple(self._problems))

    def _walk(self, folder: Path, depth: int) -> None:
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            self._problems.append((folder, Invalid(f"{folder}: it cannot be read: {_reason(error)}")))
            return
        for entry in entries:
            if entry.is_symlink():
                self._skipped["symlink"] += 1
            elif entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH_MAX:
                    self._walk(Path(entry.path), depth + 1)
                else:
                    self._skipped["deep_directory"] += 1
            elif entry.name.endswith(_SUFFIXES):
                self._consider(entry)

    def _consider(self, entry: os.DirEntry[str]) -> None:
        if not entry.is_file(follow_symlinks=False):
            self._skipped["special_file"] += 1
            return
        try:
            if entry.stat(follow_symlinks=False).st_size == 0:
                self._skipped["empty_file"] += 1
                return
            found = sniff_format(Path(entry.path))
            if found is None or self._expected not in (AUTO, found):
                self._skipped["other_file" if found is None else f"other_format:{found}"] += 1
                return
            self._add(_transcript(Path(entry.path), found))
        except OSError as error:
            self._problems.append((Path(entry.path), Invalid(f"{entry.path}: it cannot be read: {_reason(error)}")))
        except EmelexError as error:
            self._problems.append((Path(entry.path), error))

    def _read(self, path: Path, *, shown: Path) -> TranscriptFile:
        """Return the transcript that a named file is."""
        found = sniff_format(path)
        if path.stat().st_size == 0:
            raise Invalid(f"{shown}: the file is empty")
        if found is None:
            known = ", ".join(FORMATS) if self._expected == AUTO else self._expected
            raise Invalid(f"{shown}: not a transcript: {why_unknown(path) or f'no record in it is one of {known}'}")
        if self._expected not in (AUTO, found):
            raise Invalid(f"{shown}: it is a {found} transcript, not {self._expected}")
        return _transcript(path, found)

    def _add(self, file: TranscriptFile) -> None:
        """Keep a file, unless it is there already, or another copy of its rollout is."""
        key = _copy_key(file)
        other = self._found.get(key)
        if other is None:
            self._found[key] = file
            return
        self._skipped["copy"] += 1
        if _preference(file) > _preference(other):
            self._found[key] = file


def _transcript(path: Path, found: str) -> TranscriptFile:
    return TranscriptFile(path=path, format=found, packed=is_packed(path), parent_source_id=_layout_parent(path))


def _layout_parent(path: Path) -> str | None:
    """Return the session that a subagent's file belongs to, from `<session>/subagents/…`."""
    parts = path.parts
    if not path.name.startswith("agent-") or "subagents" not in parts[1:-1]:
        return None
    place = len(parts) - 1 - parts[::-1].index("subagents")
    return parts[place - 1]


def _copy_key(file: TranscriptFile) -> str:
    """A rollout's name holds its time and id, and is the same wherever its copies lie; other names mean nothing."""
    name = file.path.name.removesuffix(".zst")
    return name if name.startswith("rollout-") else str(file.path).removesuffix(".zst")


def _preference(file: TranscriptFile) -> tuple[bool, int]:
    return not file.packed, file.path.stat().st_size


def _is_agent(file: TranscriptFile) -> bool:
    return file.parent_source_id is not None or file.path.name.startswith("agent-")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
