"""`export`: a workspace, or everything, as one JSON document in the seed's terms (behaviours 160 and 161).

The module owns these invariants:

- Every raw event is there, proven against its Session's chain, also what a Summary covers; the coverage is said.
- Knowledge is the active one, each entry with all its versions.
- Memory holds one page. No view of the database is held while the target takes bytes: a blocked pipe stops nobody.
- A Session stands as it was when its turn came; one that is deleted meanwhile ends the export with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from emelex_core import identity, limits
from emelex_core.archive import shapes
from emelex_core.archive.document import Document, Write
from emelex_core.db.database import Value
from emelex_core.db.statements import load
from emelex_core.errors import Busy, Corrupt, NotFound
from emelex_core.events import AssetRef
from emelex_core.knowledge import recall
from emelex_core.knowledge.records import Knowledge
from emelex_core.sessions import registry
from emelex_core.sessions.rebind import require_not_displaced
from emelex_core.sessions.records import Session, StoredEvent
from emelex_core.store import MemoryStore, PathLike

SQL: Final = load("emelex_core", "archive")
EXPORT_VERSION: Final = 1
"""The format of the document (behaviours, "Limits"); it changes only with the shapes."""
_ENTRIES: Final = 8
"""Entries that are read at a time; one may hold 1 MiB."""


def export(store: MemoryStore, write: Write, *, workspace: PathLike | None) -> None:
    """Write the Sessions and the Knowledge of a workspace, or with None of all of them, as one document.

    Raises: Corrupt naming the event, Busy when a Session was deleted meanwhile, WorkspaceMismatch, Invalid, Storage;
    whatever `write` raises.
    """
    bound = None if workspace is None else identity.inspect(workspace)
    workspace_id: int | None = None
    if bound is not None:
        with store.database.read() as transaction:
            workspace_id = registry.find_workspace(transaction, bound)
            if workspace_id is None:
                require_not_displaced(transaction, bound)
    # Nothing is bound to a directory that has no row: -1 selects nothing, where None would select everything.
    scope = workspace_id if bound is None or workspace_id is not None else -1
    with Document(write) as document:
        document.value("schema_version", EXPORT_VERSION)
        document.value("workspace", None if bound is None else shapes.workspace(bound.path, bound.identity))
        document.objects("sessions", (partial(_session, store, found) for found in _sessions(store, scope)))
        document.objects(
            "knowledge", (partial(_knowledge, store, path, found) for path, found in _entries(store, scope))
        )
    write(b"\n")


def export_session(store: MemoryStore, write: Write, session: Session) -> None:
    """Write one Session as a document of the same shape, without Knowledge. Raises: as `export`."""
    with store.database.read() as transaction:
        path, known = registry.bound_identity(transaction, session.id)
    with Document(write) as document:
        document.value("schema_version", EXPORT_VERSION)
        document.value("workspace", shapes.workspace(path, known))
        document.objects("sessions", [partial(_session, store, session)])
        document.items("knowledge", ())
    write(b"\n")


def _session(store: MemoryStore, found: Session, into: Document) -> None:
    with store.database.read() as transaction:
        snapshot = transaction.one(SQL["snapshot"], {"session_id": found.id})
    assets: dict[str, AssetRef] = {}
    into.value("session", shapes.session(found))
    into.value("snapshot", shapes.snapshot(snapshot, what=f"Session {found.id}"))
    into.value("coverage", shapes.coverage(found))
    into.items("events", map(shapes.event, _collecting(_events(store, found), assets)))
    into.items("assets", map(shapes.asset, assets.values()))


def _sessions(store: MemoryStore, workspace_id: int | None) -> Iterator[Session]:
    after = ""
    while True:
        parameters: dict[str, Value] = {"after": after, "workspace_id": workspace_id, "limit": limits.PAGE_SESSIONS_MAX}
        with store.database.read() as transaction:
            page = [cast(str, row[0]) for row in transaction.all(SQL["sessions_after"], parameters)]
        for session_id in page:
            found = _still(store, session_id)
            if found is not None:
                yield found
        if len(page) < limits.PAGE_SESSIONS_MAX:
            return
        after = page[-1]


def _events(store: MemoryStore, found: Session) -> Iterator[StoredEvent]:
    """All raw events up to where the Session ended; one that is deleted meanwhile is told from one that is damaged."""
    last = 0
    try:
        for event in store.iterate_events(found):
            last = event.sequence
            yield event
    except Corrupt as error:
        raise _deleted(store, found) or error from None
    if last != found.last_sequence:
        raise _deleted(store, found) or Corrupt(f"Session {found.id}: event {last + 1} is missing")


def _collecting(events: Iterator[StoredEvent], assets: dict[str, AssetRef]) -> Iterator[StoredEvent]:
    for event in events:
        assets.update((ref.sha256, ref) for ref in event.media)
        yield event


def _entries(store: MemoryStore, workspace_id: int | None) -> Iterator[tuple[str, Knowledge]]:
    """Path and entry, by row: one that is changed meanwhile keeps its place and is not passed over."""
    after = 0
    while True:
        parameters: dict[str, Value] = {"after": after, "workspace_id": workspace_id, "limit": _ENTRIES}
        with store.database.read() as transaction:
            page = transaction.all(SQL["entries_after"], parameters)
            entries = [
                (cast(str, row[3]), recall.show(transaction, cast(int, row[1]), cast(str, row[2]))) for row in page
            ]
        yield from entries
        if len(page) < _ENTRIES:
            return
        after = cast(int, page[-1][0])


def _knowledge(store: MemoryStore, path: str, found: Knowledge, into: Document) -> None:
    into.value("workspace", path)
    into.value("knowledge", shapes.knowledge(found))
    into.items("versions", map(shapes.version, _versions(store, found.row)))


def _versions(store: MemoryStore, row: int) -> Iterator[tuple[Value, ...]]:
    after = 0
    while True:
        page: list[tuple[Value, ...]] = []
        with store.database.read() as transaction:
            size = 0
            for version in transaction.iterate(
                SQL["versions"], {"row": row, "after": after, "limit": limits.PAGE_KNOWLEDGE_MAX}
            ):
                size += len(cast(str, version[1]))
                if page and size > limits.PAGE_BYTES_MAX:
                    break
                page.append(version)
        if not page:
            return
        yield from page
        after = cast(int, page[-1][0])


def _still(store: MemoryStore, session_id: str) -> Session | None:
    try:
        return store.get_session(session_id)
    except NotFound:
        return None


def _deleted(store: MemoryStore, found: Session) -> Busy | None:
    if _still(store, found.id) is not None:
        return None
    return Busy(f"Session {found.id} was deleted while it was exported", held_until=store.clock(), hint="run it again")
