"""`emelex memory sessions list`, `show` and `delete` (behaviours 29, 157)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from emelex_cli import shapes, transcript
from emelex_cli.call import Call
from emelex_cli.cursors import cursor as write_cursor
from emelex_cli.cursors import session_cursor
from emelex_cli.output import counted
from emelex_core import ids
from emelex_core.errors import Corrupt

if TYPE_CHECKING:
    from emelex_core.journal.records import JournalledTurn
    from emelex_core.retention.redaction import RedactionRecord
    from emelex_core.sessions.records import Session, StoredEvent
    from emelex_core.store import MemoryStore

_LIMIT = 50


def list_sessions(call: Call, *, everywhere: bool = False, limit: int = _LIMIT, cursor: str | None = None) -> int:
    """Print one page of Sessions, the most recently active first."""
    before = session_cursor(cursor)
    found: list[Session] = []
    with call.reading() as store:
        if store is not None:
            workspace = None if everywhere else call.directory
            found = store.list_sessions(workspace, limit=limit, before=before)
    if call.out.json:
        for session in found:
            call.out.record({**shapes.session(session), "cursor": write_cursor(session.updated_at, session.id)})
        return 0
    if not found:
        call.out.note("no Sessions" if everywhere else "no Sessions of this workspace; --all lists every workspace's")
        return 0
    width = _id_width(found)
    rows = [_row(session, width, everywhere) for session in found]
    place = ("workspace",) if everywhere else ()
    call.out.table(rows, heading=("id", "active", "events", "source", *place, "title"))
    if len(found) == limit:
        call.out.note(f"more: --cursor {write_cursor(found[-1].updated_at, found[-1].id)}")
    return 0


def show(call: Call, *, session: str, everywhere: bool = False, raw: bool = False) -> int:
    """Print one Session as a transcript, or as one JSON document."""
    with call.must_read() as store:
        found = call.session(store, session, everywhere=everywhere)
        summary = None if raw else _summary(store, found)
        events = _events(store, found, raw=raw)
        unfinished = _unfinished(call, store, found)
        redactions = store.redactions(found.id)
        if call.out.json:
            _document(call, found, summary, events, unfinished, redactions)
            return 0
        transcript.heading(call.out, found)
        for record in redactions:
            told = f"{counted(record.places, 'place')} in {counted(record.events, 'event')}"
            call.out.line(f"redacted {shapes.moment(record.redacted_at)}: {told}")
        if summary is not None:
            transcript.event(call.out, summary, in_full=True)
        for event in events:
            transcript.event(call.out, event, in_full=raw)
        if unfinished is not None:
            transcript.unfinished(call.out, found, unfinished)
    return 0


def delete(call: Call, *, session: str, everywhere: bool = False) -> int:
    """Delete one idle Session and say what went and what stays. Raises: SessionBusy while somebody uses it."""
    with call.writing() as store:
        gone = store.delete_session(call.session(store, session, everywhere=everywhere).id)
        left = store.derived_from(gone.id)
    if call.out.json:
        call.out.record({"type": "deleted_session", **asdict(gone)})
        return 0
    media = f", {counted(gone.assets, 'asset')} ({shapes.size(gone.asset_bytes)})" if gone.assets else ""
    held = f"{counted(gone.events, 'event')}, {counted(gone.jobs, 'job')}{media}"
    call.out.line(f"deleted {gone.id}, {shapes.short(gone.title, 80)}: {held}")
    if left.knowledge or left.proposals:
        call.out.note(
            f"kept, with the words quoted from it: {counted(left.knowledge, 'Knowledge entry')}, "
            f"{counted(left.proposals, 'proposal')}; "
            f"`emelex memory sessions delete {gone.id} --derived` removes them, "
            "`emelex memory knowledge forget KEY` hides one"
        )
    if gone.kept_assets:
        call.out.note(
            f"stored again since: {counted(gone.kept_assets, 'asset')}; `emelex memory maintain` collects them"
        )
    for problem in gone.problems:
        call.out.note(f"asset {problem.name} could not be removed: {problem.reason}")
    return 0


def _document(
    call: Call,
    found: Session,
    summary: StoredEvent | None,
    events: Iterator[StoredEvent],
    unfinished: JournalledTurn | None,
    redactions: Sequence[RedactionRecord],
) -> None:
    from emelex_core.archive.document import Document

    with Document(lambda data: call.out.write(data.decode())) as document:
        document.value("session", shapes.session(found))
        document.value("summary", None if summary is None else shapes.event(summary))
        document.items("events", map(shapes.event, events))
        document.value("unfinished_turn", None if unfinished is None else shapes.unfinished_turn(unfinished))
        document.value("redactions", [shapes.redaction(record) for record in redactions])
    call.out.write("\n")


def _summary(store: MemoryStore, found: Session) -> StoredEvent | None:
    if not found.summary_sequence:
        return None
    return store.read_events(found.id, after=found.summary_sequence - 1, limit=1)[0]


def _events(store: MemoryStore, found: Session, *, raw: bool) -> Iterator[StoredEvent]:
    """All events, or those that a reader behind the Summary sees; every one is proven on the way."""
    for event in store.iterate_events(found):
        if raw or (event.sequence > found.covered_sequence and event.sequence != found.summary_sequence):
            yield event


def _unfinished(call: Call, store: MemoryStore, found: Session) -> JournalledTurn | None:
    """A turn that has not ended. One whose journal is damaged must not hide the history before it."""
    try:
        return store.interrupted_turn(found.id)
    except Corrupt as error:
        call.out.note(error.message)
        return None


def _row(session: Session, width: int, everywhere: bool) -> tuple[str, ...]:
    place = (shapes.short(session.workspace_path, 40),) if everywhere else ()
    return (
        session.id[:width],
        shapes.moment(session.updated_at),
        str(session.last_sequence),
        shapes.short(session.source, 20),
        *place,
        shapes.short(session.title, 80),
    )


def _id_width(found: list[Session]) -> int:
    """The shortest prefix, from 8 characters on, that tells these Sessions apart."""
    width = ids.PREFIX_CHARACTERS_MIN
    while width < 36 and len({session.id[:width] for session in found}) < len(found):
        width += 1
    return width
