"""`emelex import`: transcripts of other agents become Sessions (contract, "JSON of the main job").

The module owns these invariants:

- A Home is made only when there is something to put into it: what is named is looked at first.
- One file's failure is told and leaves the others alone; the exit code says that there was one.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from emelex_cli.call import Call, has_database
from emelex_cli.output import ReaderGone, counted, one_line, path_text
from emelex_cli.shapes import short
from emelex_core.errors import Cancelled, EmelexError, Storage, UsageError

if TYPE_CHECKING:
    from emelex_cli.progress import Bar
    from emelex_core.engine.ports import CancelToken
    from emelex_core.imports.report import ImportedSession, ImportTotals
    from emelex_core.store import MemoryStore

NAMES_SHOWN: Final = 8
WORKSPACES_SHOWN: Final = 3


def import_(
    call: Call,
    *,
    format: str,  # noqa: A002 - the contract's own word
    paths: Sequence[str],
    dry_run: bool = False,
    no_distill: bool = False,
    again: bool = False,
) -> int:
    """Import transcripts; return 0, or the code of what failed."""
    from emelex_cli.progress import bar
    from emelex_cli.signals import stopping
    from emelex_core.imports.discover import discover
    from emelex_core.imports.importer import import_transcripts

    require_format(format)
    places = [_place(call, path) for path in paths]
    config = call.config
    if not has_database(call.home):
        discover(places, format=format)
    with stopping() as stop, _store(call, dry_run=dry_run) as store, bar() as shown:
        told = _Told(call, shown, stop.token)
        try:
            totals = import_transcripts(
                store,
                places,
                format=format,
                workspace=call.given_directory,
                dry_run=dry_run,
                distill=config.distillation.enabled and not no_distill,
                again=again,
                listen=told.session,
                problem=told.problem,
                progress=told.progress,
                stop=stop.token,
            )
        except Cancelled:
            told.raise_unwritten()
            if stop.exit_code is None:
                raise
            call.out.note("stopped; what was stored stays, and importing again goes on from there")
            return stop.exit_code
    told.raise_unwritten()
    _tell(call, totals, told.workspaces, dry_run=dry_run)
    if not told.problems:
        return 0
    codes = {error.exit_code for error in told.problems}
    if codes == {Storage.exit_code} or not (totals.sessions or totals.removed):
        # Nothing is wrong with the files where only the storage failed: trying later helps.
        return told.problems[0].exit_code
    return EmelexError.exit_code


def require_format(format: str) -> None:  # noqa: A002 - the contract's own word
    """Raise UsageError, naming what there is, unless the format can be read."""
    from emelex_core.imports.discover import AUTO
    from emelex_core.imports.records import FORMATS

    known = (AUTO, *FORMATS)
    if format in known:
        return
    close = difflib.get_close_matches(format, known, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"unknown format {format[:80]!r}", hint=f"{meant}known are {', '.join(known)}")


class _Told:
    """The listener of one import. A line that cannot be written stops it and is raised when it has ended."""

    def __init__(self, call: Call, shown: Bar, stop: CancelToken) -> None:
        self.problems: list[EmelexError] = []
        self.workspaces: dict[str, set[str]] = {}
        self._call = call
        self._shown = shown
        self._stop = stop
        self._unwritten: ReaderGone | Storage | None = None

    def session(self, found: ImportedSession) -> None:
        """Tell one Session."""
        if found.workspace is not None:
            self.workspaces.setdefault(found.workspace, set()).add(found.id)
        if self._unwritten is not None:
            return
        self._shown.pause()
        try:
            if self._call.out.json:
                self._call.out.record(_record(found), now=True)
            else:
                self._call.out.line(_sentence(found))
        except (ReaderGone, Storage) as error:
            self._unwritten = error
            self._stop.cancel()

    def problem(self, path: Path, error: EmelexError) -> None:
        """Tell a file that failed."""
        self._shown.pause()
        self.problems.append(error)
        if path_text(path) not in error.message:
            error.message = f"{path_text(path)}: {error.message}"
        self._call.out.error(error)

    def progress(self, path: Path, done: int, size: int) -> None:
        """Tell how far a file is read. `done` counts unpacked bytes, which may be more than a packed file has."""
        self._shown.update(path.name, done=min(done, size), total=size or None)

    def raise_unwritten(self) -> None:
        """Raise what could not be written."""
        if self._unwritten is not None:
            raise self._unwritten


def _store(call: Call, *, dry_run: bool) -> AbstractContextManager[MemoryStore | None]:
    if not dry_run:
        return call.writing(create=True)
    return call.must_read() if has_database(call.home) else nullcontext()


def _place(call: Call, path: str) -> Path:
    if not path or "\0" in path:
        raise UsageError(f"{path!r} cannot name a file or folder")
    return call.place(path)


def _record(found: ImportedSession) -> dict[str, object]:
    record = {"type": "import_session", **asdict(found), "path": path_text(found.path)}
    # Nothing is stored in a dry run, nor of what was removed: there is no id to tell.
    return {**record, "id": found.id or None}


def _sentence(found: ImportedSession) -> str:
    if found.removed:
        return f"removed   {one_line(found.source)}  stays away  {short(found.title, 80)}"
    what = "already here" if found.already else f"{counted(found.turns, 'turn')}, {counted(found.events, 'event')}"
    odd = f"; odd: {_counts(found.defects)}" if found.defects else ""
    return f"{found.id[:8] or 'dry run '}  {one_line(found.source)}  {what}  {short(found.title, 80)}{odd}"


def _tell(call: Call, totals: ImportTotals, workspaces: Mapping[str, set[str]], *, dry_run: bool) -> None:
    if call.out.json:
        call.out.record({"type": "import_complete", "dry_run": dry_run, **asdict(totals)}, now=True)
        return
    would = "would import: " if dry_run else ""
    call.out.line(
        f"{would}{counted(totals.files, 'file')}, {counted(totals.sessions, 'Session')} ({totals.new_sessions} new, "
        f"{totals.already} already here), {counted(totals.turns, 'turn')}, {counted(totals.events, 'event')}, "
        f"{counted(totals.assets, 'asset')}; {totals.failed_files} failed"
    )
    if not dry_run:
        _tell_places(call, workspaces)
    if totals.removed:
        call.out.line(
            f"{counted(totals.removed, 'Session')} stayed away, removed here before; import with --again to bring back"
        )
    if totals.skipped:
        call.out.line(f"skipped, as known noise: {_counts(totals.skipped)}")
    if totals.defects:
        call.out.line(f"odd: {_counts(totals.defects)}")


def _tell_places(call: Call, workspaces: Mapping[str, set[str]]) -> None:
    """Say to which directories the Sessions belong, and how to list them: that need not be the current one."""
    ranked = sorted(workspaces.items(), key=lambda item: (-len(item[1]), item[0]))
    for path, found in ranked[:WORKSPACES_SHOWN]:
        shown = one_line(path_text(path))
        listing = f"emelex memory sessions list -C {shlex.quote(shown)}"
        call.out.line(f"{counted(len(found), 'Session')} of {shown}; list with: {listing}")
    rest = len(workspaces) - WORKSPACES_SHOWN
    if rest > 0:
        what = "1 other directory" if rest == 1 else f"{rest} other directories"
        call.out.line(f"and of {what}; list all with: emelex memory sessions list --all")


def _counts(found: Mapping[str, int]) -> str:
    """The most frequent names with their counts; JSON has all of them."""
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{one_line(name)} {count}" for name, count in ranked[:NAMES_SHOWN]]
    rest = ranked[NAMES_SHOWN:]
    if rest:
        told.append(f"{sum(count for _, count in rest)} of {len(rest)} other kinds")
    return ", ".join(told)
