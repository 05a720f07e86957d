"""`emelex memory sessions search`: finding events by words, also those that a Summary has replaced."""

from __future__ import annotations

from emelex_cli import knowledge_shapes, shapes
from emelex_cli.call import Call, has_database
from emelex_cli.cursors import rank_cursor, write_place
from emelex_cli.knowledge_cmd import asked
from emelex_cli.output import counted
from emelex_core.errors import StorageBusy, StorageFull, StorageReadOnly
from emelex_core.sessions.search import TranscriptHits

_LIMIT = 20


def search(
    call: Call,
    *,
    words: list[str],
    everywhere: bool = False,
    session: str | None = None,
    limit: int = _LIMIT,
    cursor: str | None = None,
) -> int:
    """Print events that hold every word, literally, the best first."""
    text, after = asked(words), rank_cursor(cursor)
    if not has_database(call.home):
        with call.reading():
            return 0
    found = find(call, text, everywhere=everywhere, session=session, limit=limit, after=after)
    if call.out.json:
        for hit in found.hits:
            call.out.record({**knowledge_shapes.transcript_hit(hit), "cursor": write_place(*hit.place)})
    else:
        for hit in found.hits:
            place = f"  {shapes.short(hit.workspace_path, 40)}" if everywhere else ""
            call.out.line(
                f"{hit.session_id[:8]} [{hit.sequence}] {hit.kind}, {shapes.moment(hit.said_at)}{place}  "
                f"{shapes.short(hit.session_title, 60)}"
            )
            call.out.line(f"    {shapes.short(hit.snippet, 200)}")
    if not found.hits:
        call.out.note("nothing was found" if everywhere else "nothing was found in this workspace; --all looks in all")
    elif len(found.hits) == limit:
        call.out.note(f"more: --cursor {write_place(*found.hits[-1].place)}")
    if found.unindexed:
        call.out.note(
            f"{counted(found.unindexed, 'event')} could not be searched: they are not indexed yet, "
            "and the store cannot be written now"
        )
    return 0


def find(
    call: Call,
    text: str,
    *,
    everywhere: bool,
    session: str | None,
    limit: int,
    after: tuple[float, int] | None = None,
) -> TranscriptHits:
    """Search with an index that is brought up to date; where it cannot be written, with the one that is there."""
    workspace = None if everywhere else call.directory
    try:
        with call.writing() as store:
            session_id = None if session is None else call.session(store, session, everywhere=everywhere).id
            return store.search_sessions(workspace, text, session_id=session_id, limit=limit, after=after)
    except (StorageReadOnly, StorageFull, StorageBusy):
        with call.must_read() as store:
            session_id = None if session is None else call.session(store, session, everywhere=everywhere).id
            return store.search_sessions(workspace, text, session_id=session_id, limit=limit, after=after)
