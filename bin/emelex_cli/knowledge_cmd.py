"""`emelex memory knowledge list` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emelex_cli import shapes
from emelex_cli.call import Call, typed
from emelex_cli.cursors import cursor as write_cursor
from emelex_cli.cursors import knowledge_cursor
from emelex_cli.output import neutralise, one_line

if TYPE_CHECKING:
    from emelex_core.knowledge.records import Knowledge

_LIMIT = 50


def list_knowledge(call: Call, *, everywhere: bool = False, limit: int = _LIMIT, cursor: str | None = None) -> int:
    """Print one page of active entries, the most recently changed first."""
    before = knowledge_cursor(cursor)
    found: list[Knowledge] = []
    with call.reading() as store:
        if store is not None:
            found = store.list_knowledge(None if everywhere else call.directory, limit=limit, before=before)
    if call.out.json:
        for entry in found:
            call.out.record({**shapes.knowledge(entry), "cursor": write_cursor(entry.updated_at, entry.row)})
        return 0
    if not found:
        call.out.note("no Knowledge" if everywhere else "no Knowledge of this workspace; --all lists every workspace's")
        return 0
    rows = [
        (
            shapes.short(entry.key, 48),
            f"{entry.confidence:.2f}",
            "pinned" if entry.pinned else f"v{entry.version}",
            shapes.short(entry.content, 100),
        )
        for entry in found
    ]
    call.out.table(rows, heading=("key", "sure", "state", "content"))
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_cursor(found[-1].updated_at, found[-1].row)}")
    return 0


def show(call: Call, *, key: str) -> int:
    """Print one entry with what it rests on."""
    with call.must_read() as store:
        entry = store.get_knowledge(call.directory, typed(key))
    if call.out.json:
        call.out.record(shapes.knowledge(entry))
        return 0
    out = call.out
    out.line(one_line(entry.key))
    for line in neutralise(entry.content).split("\n"):
        out.line(f"    {line}".rstrip())
    marks = [f"version {entry.version}", f"confidence {entry.confidence:.2f}", f"from {one_line(entry.origin)}"]
    marks += ["pinned"] if entry.pinned else []
    marks += ["forgotten"] if entry.tombstoned_at is not None else []
    out.line(f"{', '.join(marks)}; changed {shapes.moment(entry.updated_at)}")
    if entry.evidence is not None:
        out.line(f'"{one_line(entry.evidence.quote)}"')
        gone = "" if entry.source_alive else ", which was deleted"
        out.line(
            f"said by {one_line(entry.evidence.speaker)} in event {entry.evidence.sequence} "
            f"({entry.evidence.event_id}) of Session {entry.session_id}{gone}"
        )
    return 0
