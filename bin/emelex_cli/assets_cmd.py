"""`emelex memory assets list`, `export` and `verify` (behaviours 102 to 107): media for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.cursors import asset_cursor, linked_cursor
from emelex_cli.cursors import cursor as write_cursor
from emelex_cli.output import counted, one_line, path_text
from emelex_cli.progress import bar
from emelex_core.errors import Corrupt

if TYPE_CHECKING:
    from emelex_core.assets.records import AssetRecord, LinkedAsset, VerifyReport

_LIMIT = 50


def list_assets(call: Call, *, session: str | None = None, limit: int = _LIMIT, cursor: str | None = None) -> int:
    """Print one page of assets, or of what a Session's events name. Raises: UsageError, NotFound, AmbiguousId."""
    if session is not None:
        return _list_linked(call, session, limit, linked_cursor(cursor))
    before = asset_cursor(cursor)
    found: list[AssetRecord] = []
    with call.reading() as store:
        if store is not None:
            found = store.list_assets(limit=limit, before=before)
    if call.out.json:
        for asset in found:
            call.out.record({**shapes.asset(asset), "cursor": write_cursor(asset.created_at, asset.sha256)})
        return 0
    rows = [
        (
            asset.sha256[:16],
            asset.media_type or "-",
            shapes.size(asset.size),
            str(asset.references),
            shapes.moment(asset.created_at),
        )
        for asset in found
    ]
    _print(call, rows, heading=("sha256", "type", "size", "named", "stored"))
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_cursor(found[-1].created_at, found[-1].sha256)}")
    return 0


def export(call: Call, *, sha256: str, output: str) -> int:
    """Copy an asset to a new file, proven on the way. Raises: NotFound, AmbiguousId, Refused, Corrupt, Storage."""
    target = call.new_file(output)
    with call.must_read() as store:
        asset = store.export_asset(sha256.lower(), target)
    if call.out.json:
        call.out.record(
            {"type": "exported_asset", "sha256": asset.sha256, "size": asset.size, "path": path_text(target)}
        )
    else:
        call.out.note(f"wrote {path_text(target)}: {asset.media_type or 'media'}, {shapes.size(asset.size)}")
    return 0


def verify(call: Call) -> int:
    """Hash every asset, and return 7 when one is missing or not what it was."""
    with call.reading() as store, bar() as shown:
        if store is None:
            return 0
        report = store.verify_assets(
            progress=lambda done, size: shown.update(
                f"{counted(done, 'asset')}, {shapes.size(size)}", done=done, total=None
            )
        )
    _tell(call, report)
    return Corrupt.exit_code if report.problem_count else 0


def _list_linked(call: Call, session: str, limit: int, after: tuple[int, int]) -> int:
    found: list[LinkedAsset] = []
    with call.must_read() as store:
        found = store.list_session_assets(store.get_session(session.lower()).id, limit=limit, after=after)
    if call.out.json:
        for link in found:
            call.out.record({**asdict(link), "cursor": write_cursor(link.sequence, link.ordinal)})
        return 0
    rows = [
        (link.sha256[:16], one_line(link.kind), shapes.size(link.size), str(link.sequence), str(link.ordinal))
        for link in found
    ]
    _print(call, rows, heading=("sha256", "kind", "size", "event", "place"))
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_cursor(found[-1].sequence, found[-1].ordinal)}")
    return 0


def _print(call: Call, rows: Sequence[tuple[str, ...]], *, heading: tuple[str, ...]) -> None:
    if rows:
        call.out.table(rows, heading=heading)
    else:
        call.out.note("no assets")


def _tell(call: Call, report: VerifyReport) -> None:
    if call.out.json:
        call.out.record({"type": "verified_assets", **asdict(report)})
        return
    for problem in report.problems:
        call.out.line(f"{one_line(problem.name)}: {one_line(problem.reason)}")
    unlisted = report.problem_count - len(report.problems)
    if unlisted:
        call.out.line(f"and {unlisted} more")
    verdict = "sound" if not report.problem_count else f"{report.problem_count} problems"
    call.out.line(
        f"{verdict}: {counted(report.assets, 'asset')} ({shapes.size(report.bytes)}); "
        f"{report.uncataloged} files that no row names, {report.temporaries} temporaries"
    )
