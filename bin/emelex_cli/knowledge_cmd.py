"""`emelex memory knowledge list`, `search`, `show`, `history` and `review`: reading; nothing is changed here."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from emelex_cli import knowledge_shapes, shapes, transcript
from emelex_cli.call import Call, typed
from emelex_cli.cursors import cursor as write_cursor
from emelex_cli.cursors import knowledge_cursor, number_cursor, place_cursor, write_place
from emelex_cli.moments import instant
from emelex_cli.output import Output, neutralise, one_line, path_text
from emelex_core.errors import UsageError

if TYPE_CHECKING:
    from emelex_core.knowledge.records import Evidence, Knowledge, KnowledgeVersion, Proposal
    from emelex_core.knowledge.search import KnowledgeHit
    from emelex_core.sessions.records import StoredEvent
    from emelex_core.store import MemoryStore

_LIMIT = 50
_NEIGHBOURS = 1
"""Events that are shown on each side of the one that an entry rests on."""


def list_knowledge(
    call: Call,
    *,
    everywhere: bool = False,
    limit: int = _LIMIT,
    cursor: str | None = None,
    as_of: str | None = None,
) -> int:
    """Print one page of active entries, the most recently changed first, or of those that held at an instant."""
    before, at = knowledge_cursor(cursor), instant(as_of)
    found: list[Knowledge] = []
    with call.reading() as store:
        if store is not None:
            workspace = None if everywhere else call.directory
            found = store.list_knowledge(workspace, limit=limit, before=before, as_of=at)
    if call.out.json:
        for entry in found:
            call.out.record({**knowledge_shapes.entry(entry), "cursor": write_cursor(entry.updated_at, entry.row)})
        return 0
    if not found:
        call.out.note("no Knowledge" if everywhere else "no Knowledge of this workspace; --all lists every workspace's")
        return 0
    call.out.table(
        [_row(entry, entry.content, everywhere=everywhere) for entry in found], heading=_heading(everywhere, "content")
    )
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_cursor(found[-1].updated_at, found[-1].row)}")
    return 0


def search(
    call: Call, *, words: list[str], everywhere: bool = False, limit: int = _LIMIT, cursor: str | None = None
) -> int:
    """Print the active entries that hold every word, literally: the exact key first, then pins, then by rank."""
    text, after = asked(words), place_cursor(cursor)
    found: list[KnowledgeHit] = []
    with call.reading() as store:
        if store is not None:
            found = store.search_knowledge(None if everywhere else call.directory, text, limit=limit, after=after)
    if call.out.json:
        for hit in found:
            call.out.record(
                {**knowledge_shapes.entry(hit.entry), "snippet": hit.snippet, "cursor": write_place(*hit.place)}
            )
        return 0
    if not found:
        call.out.note("nothing was found" if everywhere else "nothing was found in this workspace; --all looks in all")
        return 0
    call.out.table(
        [_row(hit.entry, hit.snippet, everywhere=everywhere) for hit in found],
        heading=_heading(everywhere, "found"),
    )
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_place(*found[-1].place)}")
    return 0


def show(call: Call, *, key: str) -> int:
    """Print one entry with the words that it rests on, in their context."""
    with call.must_read() as store:
        entry = store.get_knowledge(call.directory, typed(key))
        around = _context(store, entry)
    if call.out.json:
        call.out.record({**knowledge_shapes.entry(entry), "context": knowledge_shapes.context(around)})
        return 0
    out = call.out
    out.line(one_line(entry.key))
    for line in neutralise(entry.content).split("\n"):
        out.line(f"    {line}".rstrip())
    marks = [f"version {entry.version}", f"confidence {entry.confidence:.2f}", f"from {one_line(entry.origin)}"]
    marks += ["pinned"] if entry.pinned else []
    marks += ["forgotten"] if entry.tombstoned_at is not None else []
    out.line(
        f"{', '.join(marks)}; holds since {shapes.moment(entry.valid_from)}, changed {shapes.moment(entry.updated_at)}"
    )
    if entry.evidence is not None:
        _evidence(out, entry.evidence, entry.session_id, alive=entry.source_alive)
    for event in around:
        transcript.event(out, event, in_full=False)
    return 0


def history(call: Call, *, key: str, limit: int = _LIMIT, before: int | None = None) -> int:
    """Print the versions of an entry as differences, the newest first, and who changed it."""
    with call.must_read() as store:
        entry = store.get_knowledge(call.directory, typed(key))
        # One more than is shown: each difference needs the version below it.
        versions = store.knowledge_history(call.directory, typed(key), limit=min(limit + 1, 100), before=before)
        changes = store.knowledge_changes(call.directory, typed(key))
    shown = versions[:limit]
    if call.out.json:
        call.out.record(
            {
                "key": entry.key,
                "versions": [knowledge_shapes.version(version) for version in shown],
                "changes": [knowledge_shapes.change(change) for change in changes],
            }
        )
        return 0
    out = call.out
    out.line(one_line(entry.key))
    for place, version in enumerate(shown):
        below = versions[place + 1] if place + 1 < len(versions) else None
        _difference(out, version, below)
    out.line()
    for change in changes:
        job = "" if change.job_id is None else f" in job {change.job_id[:8]}"
        why = "" if change.reason is None else f": {shapes.short(change.reason, 160)}"
        out.line(
            f"{shapes.moment(change.changed_at)}  {change.action} by {change.actor}{job}, version "
            f"{change.version_after}{why}"
        )
    if len(versions) > limit:
        out.note(f"more: --before {shown[-1].version}")
    return 0


def review(call: Call, *, everywhere: bool = False, limit: int = _LIMIT, cursor: str | None = None) -> int:
    """Print what waits for a person: changes that a run may not make by itself."""
    after = number_cursor(cursor)
    found: list[Proposal] = []
    with call.reading() as store:
        if store is not None:
            found = store.review(None if everywhere else call.directory, limit=limit, after=after)
    if call.out.json:
        for proposal in found:
            call.out.record({**knowledge_shapes.proposal(proposal), "cursor": str(proposal.row)})
        return 0
    if not found:
        call.out.note("nothing waits for review" + ("" if everywhere else " in this workspace"))
        return 0
    for proposal in found:
        _proposal(call.out, proposal, everywhere=everywhere)
    call.out.note("`knowledge accept ID` applies one, `knowledge reject ID` declines it")
    if len(found) == limit:
        call.out.note(f"more: --cursor {found[-1].row}")
    return 0


def asked(words: list[str]) -> str:
    """What is looked for, as one text. Raises: UsageError for nothing."""
    text = " ".join(map(typed, words))
    if not text.strip():
        raise UsageError("a search needs words", hint="every word is taken literally")
    return text


def _context(store: MemoryStore, entry: Knowledge) -> list[StoredEvent]:
    """The event of the evidence and its neighbours, as long as the Session is stored."""
    if entry.evidence is None or entry.session_id is None or not entry.source_alive:
        return []
    first = max(entry.evidence.sequence - 1 - _NEIGHBOURS, 0)
    around = store.read_events(entry.session_id, after=first, limit=2 * _NEIGHBOURS + 1)
    return [event for event in around if abs(event.sequence - entry.evidence.sequence) <= _NEIGHBOURS]


def _evidence(out: Output, evidence: Evidence, session_id: str | None, *, alive: bool) -> None:
    out.line(f'"{one_line(evidence.quote)}"')
    gone = "" if alive else ", which was deleted"
    out.line(
        f"said by {one_line(evidence.speaker)} in event {evidence.sequence} ({one_line(evidence.event_id)}) "
        f"of Session {session_id}{gone}"
    )


def _difference(out: Output, version: KnowledgeVersion, below: KnowledgeVersion | None) -> None:
    active = ", active" if version.active else ""
    out.line()
    out.line(
        f"version {version.version}{active}, {shapes.moment(version.created_at)}, from {one_line(version.origin)}, "
        f"confidence {version.confidence:.2f}"
    )
    then = [] if below is None else below.content.splitlines()
    for line in list(difflib.unified_diff(then, version.content.splitlines(), lineterm="", n=1))[2:]:
        if not line.startswith("@@"):
            out.line(f"    {one_line(line)}".rstrip())


def _proposal(out: Output, found: Proposal, *, everywhere: bool) -> None:
    place = f" in {one_line(path_text(found.workspace_path))}" if everywhere else ""
    out.line(f"{found.id[:8]}  {found.operation} {one_line(found.key)}{place}, because: {found.reason}")
    if found.active_content is not None:
        out.line(f"    - {shapes.short(found.active_content, 200)}")
    if found.content is not None:
        out.line(f"    + {shapes.short(found.content, 200)}")
    if found.why is not None:
        out.line(f"    {shapes.short(found.why, 200)}")
    out.line(f'    "{shapes.short(found.evidence.quote, 200)}", said by {one_line(found.evidence.speaker)}')


def _row(entry: Knowledge, text: str, *, everywhere: bool) -> tuple[str, ...]:
    place = (shapes.short(path_text(entry.workspace_path), 40),) if everywhere else ()
    return (
        shapes.short(entry.key, 48),
        f"{entry.confidence:.2f}",
        "pinned" if entry.pinned else f"v{entry.version}",
        shapes.moment(entry.valid_from)[:10],
        "you" if entry.origin == "user" else "-" if entry.session_id is None else entry.session_id[:8],
        *place,
        shapes.short(text, 100),
    )


def _heading(everywhere: bool, last: str) -> tuple[str, ...]:
    return ("key", "sure", "state", "since", "source", *(("workspace",) if everywhere else ()), last)
