"""`emelex memory export`, `check`, `backup`, `restore`, `sessions export` and `rebind`: what leaves a store, and moves.

A check that finds damage prints it and exits with 7; everything else that cannot be done is an error of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.output import counted, one_line, path_text
from emelex_cli.progress import bar
from emelex_core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from emelex_core.archive.records import BackupReport, BoundWorkspace, CheckReport, Finding, RestoreReport
    from emelex_core.identity import Identity
    from emelex_core.sessions.rebind import Rebound


def export(call: Call, *, output: str | None = None, everywhere: bool = False) -> int:
    """Write this workspace's Sessions and Knowledge, or everything, as one document to stdout or to a new file."""
    from emelex_core.archive import export as archive

    workspace = None if everywhere else call.directory
    target = None if output is None else call.new_file(output)
    with call.must_read() as store, _document(call, target) as write:
        archive.export(store, write, workspace=workspace)
    place = None if workspace is None else path_text(workspace)
    _wrote(call, target, {"type": "exported", "workspace": place})
    return 0


def export_session(call: Call, *, session: str, output: str | None = None, everywhere: bool = False) -> int:
    """Write one Session as one document to stdout or to a new file."""
    from emelex_core.archive import export as archive

    target = None if output is None else call.new_file(output)
    with call.must_read() as store:
        found = call.session(store, session, everywhere=everywhere)
        with _document(call, target) as write:
            archive.export_session(store, write, found)
    _wrote(call, target, {"type": "exported_session", "session": found.id})
    return 0


def check(call: Call, *, repair: bool = False) -> int:
    """Print every finding and the counts; return 7 when something is damaged or left wrong."""
    from emelex_core.archive import check as archive

    opened = call.writing() if repair else call.must_read()
    with opened as store, bar() as shown:
        report = archive.check(
            store,
            repair=repair,
            progress=lambda done, of: shown.update(f"Session {done} of {of}", done=done, total=of),
        )
    for finding in report.findings:
        _finding(call, finding)
    if call.out.json:
        call.out.record({"type": "check_complete", **_counts(report)})
    else:
        call.out.line(_verdict(report))
    return 0 if report.sound else Corrupt.exit_code


def backup(call: Call, *, directory: str, accept_damage: bool = False) -> int:
    """Make a verified copy of the store, with its assets, in a new directory."""
    from emelex_core.archive import backup as archive

    target = _place(call, directory.rstrip("/") or directory)
    with call.must_read() as store, bar() as shown:
        report = archive.backup(
            store,
            target,
            accept_damage=accept_damage,
            progress=lambda done, of: shown.update("copying", done=done, total=of),
        )
    if call.out.json:
        found = asdict(report)
        call.out.record(
            {"type": "backup_complete", **found, "path": path_text(report.path), "check": _counts(report.check)}
        )
        return 0
    call.out.line(
        f"{path_text(report.path)}: {_contents(report)}, "
        f"{shapes.size(report.database_bytes + report.asset_bytes)}, verified"
    )
    if report.check.damage:
        call.out.note(f"it holds {report.check.damage} damages of the store, as accepted")
    return 0


def restore(call: Call, *, directory: str) -> int:
    """Make a backup the store of a Home that has none, and say which workspaces are other directories here."""
    from emelex_core.archive import restore as archive

    with bar() as shown:
        report = archive.restore(
            _place(call, directory),
            call.home,
            progress=lambda done, of: shown.update("assets", done=done, total=of),
        )
    moved = [bound for bound in report.workspaces if bound.needs_rebind]
    if call.out.json:
        for bound in report.workspaces:
            call.out.record(_workspace(bound))
        found = {
            "type": "restore_complete",
            "database": path_text(report.database),
            "sessions": report.sessions,
            "events": report.events,
            "assets": report.assets,
            "asset_bytes": report.asset_bytes,
            "to_rebind": len(moved),
            "check": _counts(report.check),
        }
        call.out.record(found)
        return 0
    call.out.line(f"{path_text(report.database)}: {_contents(report)}")
    for bound in moved:
        here = "is not there" if bound.found is None else f"is another directory here ({bound.found.describe()})"
        call.out.line(
            f"{one_line(bound.path)} {here}; bound to what it was ({bound.stored.describe()}): "
            f"{counted(bound.sessions, 'Session')}, {counted(bound.knowledge, 'Knowledge entry')}"
        )
    if moved:
        call.out.note("in the directory that it is now: emelex memory sessions rebind SESSION")
    return 0


def rebind(call: Call, *, session: str, force: bool = False, dry_run: bool = False) -> int:
    """Bind a Session's directory, with everything bound to it, to this one; print both identities."""
    opened = call.must_read() if dry_run else call.writing()
    with opened as store:
        found = store.get_session(session.lower())
        rebound = store.rebind_session(found.id, call.directory, force=force, dry_run=dry_run)
    if call.out.json:
        call.out.record(_rebound(found.id, rebound))
        return 0
    call.out.line(f"from  {one_line(rebound.old_path)} ({rebound.old.describe()})")
    call.out.line(f"to    {one_line(rebound.new_path)} ({rebound.new.describe()})")
    verb = "bound anew" if rebound.done else "would be bound anew"
    call.out.line(f"{verb}: {counted(rebound.sessions, 'Session')}, {counted(rebound.knowledge, 'Knowledge entry')}")
    for key in rebound.kept_keys:
        call.out.note(f"both directories know {key!r}; the old one's entry stays where it was (knowledge list --all)")
    return 0


@contextmanager
def _document(call: Call, target: Path | None) -> Generator[Callable[[bytes], None]]:
    """Where a document goes: a new file, or stdout, where it is JSON with and without --json."""
    from emelex_core.archive.new_file import new_file

    if target is not None:
        with new_file(target) as write:
            yield write
        return
    call.out.json = True
    yield lambda data: call.out.write(data.decode())


def _wrote(call: Call, target: Path | None, record: dict[str, Any]) -> None:
    if target is None:
        return
    if call.out.json:
        call.out.record({**record, "path": path_text(target)})
    else:
        call.out.note(f"wrote {path_text(target)}")


def _finding(call: Call, finding: Finding) -> None:
    if call.out.json:
        call.out.record(
            {
                "type": "finding",
                "weight": finding.weight.value,
                "area": finding.area,
                "session": finding.session_id,
                "sequence": finding.sequence,
                "event": finding.event_id,
                "detail": finding.detail,
                "repaired": finding.repaired,
            }
        )
        return
    place = [
        None if finding.session_id is None else f"Session {finding.session_id}",
        None if finding.sequence is None else f"event {finding.sequence}",
        None if finding.event_id is None else f"({finding.event_id})",
    ]
    where = " ".join(part for part in place if part is not None)
    state = "repaired" if finding.repaired else finding.weight.value
    call.out.line(one_line(f"{state:8}  {finding.area:9} {where + ': ' if where else ''}{finding.detail}"))


def _verdict(report: CheckReport) -> str:
    looked = (
        f"{counted(report.sessions, 'Session')}, {counted(report.events, 'event')}, {counted(report.jobs, 'job')}, "
        f"{report.knowledge_versions} versions of Knowledge, {counted(report.assets, 'asset')}"
    )
    if report.sound:
        return f"sound: {looked}; {report.repaired} repaired, {report.notes} notes"
    left = report.derived - report.repaired
    return f"not sound: {looked}; {report.damage} damages, {left} to repair (--repair), {report.notes} notes"


def _counts(report: CheckReport) -> dict[str, Any]:
    return {
        "sound": report.sound,
        "sessions": report.sessions,
        "events": report.events,
        "jobs": report.jobs,
        "knowledge_versions": report.knowledge_versions,
        "assets": report.assets,
        "asset_bytes": report.asset_bytes,
        "damage": report.damage,
        "derived": report.derived,
        "repaired": report.repaired,
        "notes": report.notes,
    }


def _workspace(bound: BoundWorkspace) -> dict[str, Any]:
    return {
        "type": "restored_workspace",
        "path": bound.path,
        "stored": asdict(bound.stored),
        "found": None if bound.found is None else asdict(bound.found),
        "needs_rebind": bound.needs_rebind,
        "sessions": bound.sessions,
        "knowledge": bound.knowledge,
    }


def _rebound(session_id: str, rebound: Rebound) -> dict[str, Any]:
    return {
        "type": "rebound_session",
        "session": session_id,
        "done": rebound.done,
        "old": _directory(rebound.old_path, rebound.old),
        "new": _directory(rebound.new_path, rebound.new),
        "sessions": rebound.sessions,
        "knowledge": rebound.knowledge,
        "kept_keys": list(rebound.kept_keys),
    }


def _contents(report: BackupReport | RestoreReport) -> str:
    return (
        f"{counted(report.sessions, 'Session')}, {counted(report.events, 'event')}, {counted(report.assets, 'asset')}"
    )


def _directory(path: str, identity: Identity) -> dict[str, Any]:
    return {"path": path, **asdict(identity)}


def _place(call: Call, name: str) -> Path:
    """A directory that the command line names. Raises: Invalid when nothing can be called that."""
    if not name or "\0" in name:
        raise Invalid(f"{name!r} cannot name a directory")
    return call.place(name)
