"""Sessions as rows: start, find, list (behaviours 17, 18, 149). Events are the business of append, pages and replay."""

from __future__ import annotations

import re
from typing import Final, cast

from emelex_core import codec, digests, ids, limits
from emelex_core.db.database import Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import AmbiguousId, Invalid, NotFound, UsageError
from emelex_core.identity import Identity, Workspace
from emelex_core.sessions.records import ImportSource, Session

SQL: Final = load("emelex_core", "sessions")
NATIVE: Final = "emelex"
_SOURCE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SOURCE_ID_BYTES_MAX: Final = 4_096
"""Ids of other agents are short, but one that is made from a path may be as long as a path."""


def ensure_workspace(transaction: Transaction, workspace: Workspace) -> int:
    """Return the row of a workspace by its identity, adding it or noting its new path."""
    found = transaction.one(SQL["find_workspace"], _identity(workspace.identity))
    if found is None:
        added = transaction.one(SQL["add_workspace"], {**_identity(workspace.identity), "path": workspace.path})
        assert added is not None
        return cast(int, added[0])
    transaction.run(SQL["move_workspace"], {"id": found[0], "path": workspace.path})
    return cast(int, found[0])


def find_workspace(transaction: Transaction, workspace: Workspace) -> int | None:
    """Return the row of a workspace, or None when nothing was ever stored for it."""
    found = transaction.one(SQL["find_workspace"], _identity(workspace.identity))
    return None if found is None else cast(int, found[0])


def start(
    transaction: Transaction,
    workspace: Workspace,
    *,
    title: str,
    now: int,
    source: ImportSource | None = None,
    parent_session_id: str | None = None,
) -> str:
    """Insert an empty Session and return its id.

    Raises: Invalid for a blank or long title and for a source that cannot be or was imported before; NotFound for the
    parent.
    """
    codec.check_line(title, what="title", bytes_max=limits.TITLE_BYTES_MAX)
    if source is not None:
        _check_source(transaction, source)
    if parent_session_id is not None and transaction.one(SQL["head"], {"id": parent_session_id}) is None:
        raise NotFound(f"no Session {parent_session_id[:80]!r} to be the parent")
    session_id = ids.random_id()
    transaction.run(
        SQL["add_session"],
        {
            "id": session_id,
            "workspace_id": ensure_workspace(transaction, workspace),
            "title": title,
            "source": NATIVE if source is None else source.source,
            "source_id": None if source is None else source.source_id,
            "source_cwd": None if source is None else source.cwd,
            "parent_session_id": parent_session_id,
            "chain": digests.first_chain(session_id),
            "now": now,
        },
    )
    return session_id


def get(transaction: Transaction, session_id: str, *, now: int) -> Session:
    """Return a Session by its full id. Raises: NotFound."""
    row = transaction.one(SQL["get"], {"id": session_id, "now": now, "lease_ms": limits.LEASE_MS})
    if row is None:
        raise NotFound(f"no Session {session_id}")
    return _session(row)


def resolve(transaction: Transaction, prefix: str) -> str:
    """Return the full id that a prefix of 8 or more characters names. Raises: UsageError, NotFound, AmbiguousId."""
    return resolve_prefix(transaction, SQL["ids_by_prefix"], prefix, what="Session")


def resolve_prefix(transaction: Transaction, statement: str, prefix: str, *, what: str) -> str:
    """Resolve a shortened id with a statement that lists up to 11 ids at `:prefix`."""
    if not ids.is_prefix(prefix):
        raise UsageError(
            f"{prefix[:80]!r} is no {what} id",
            hint=f"an id, or {ids.PREFIX_CHARACTERS_MIN} or more of its first characters",
        )
    found = tuple(cast(str, row[0]) for row in transaction.all(statement, {"prefix": prefix}))
    if len(found) == 0:
        raise NotFound(f"no {what} {prefix}")
    if len(found) > 1:
        raise AmbiguousId(f"{prefix} fits several {what} ids: {', '.join(found[:10])}", candidates=found[:10])
    return found[0]


def page(
    transaction: Transaction, *, workspace_id: int | None, now: int, limit: int, before: tuple[int, str] | None = None
) -> list[Session]:
    """Return Sessions, the most recently active first, after a cursor of (updated_at, id). Raises: Invalid."""
    if not 1 <= limit <= limits.PAGE_SESSIONS_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_SESSIONS_MAX}")
    rows = transaction.all(
        SQL["page"],
        {
            "workspace_id": workspace_id,
            "before_updated_at": None if before is None else before[0],
            "before_id": None if before is None else before[1],
            "limit": limit,
            "now": now,
            "lease_ms": limits.LEASE_MS,
        },
    )
    return [_session(row) for row in rows]


def find_imported(transaction: Transaction, source: str, source_id: str) -> str | None:
    """Return the id of the Session that was imported from a foreign one, or None."""
    row = transaction.one(SQL["find_by_source"], {"source": source, "source_id": source_id})
    return None if row is None else cast(str, row[0])


def bound_identity(transaction: Transaction, session_id: str) -> tuple[str, Identity]:
    """Return the stored path and identity of a Session's workspace. Raises: NotFound."""
    row = transaction.one(SQL["identity"], {"id": session_id})
    if row is None:
        raise NotFound(f"no Session {session_id}")
    return cast(str, row[0]), _known(row[1:4])


def _check_source(transaction: Transaction, source: ImportSource) -> None:
    if not _SOURCE_NAME.fullmatch(source.source) or source.source == NATIVE:
        raise Invalid(f"{source.source[:80]!r} cannot name the agent that a Session was imported from")
    codec.check_line(source.source_id, what="source id", bytes_max=_SOURCE_ID_BYTES_MAX)
    known = find_imported(transaction, source.source, source.source_id)
    if known is not None:
        raise Invalid(f"{source.source} Session {source.source_id[:80]!r} is imported already: {known}")


def _identity(value: Identity) -> dict[str, int | None]:
    return {"device": value.device, "inode": value.inode, "birth_ns": value.birth_ns}


def _known(columns: Row) -> Identity:
    device, inode, birth_ns = columns
    return Identity(device=cast(int, device), inode=cast(int, inode), birth_ns=cast("int | None", birth_ns))


def _session(row: Row) -> Session:
    return Session(
        id=cast(str, row[0]),
        workspace_id=cast(int, row[1]),
        workspace_path=cast(str, row[2]),
        title=cast(str, row[3]),
        source=cast(str, row[4]),
        source_id=cast("str | None", row[5]),
        source_cwd=cast("str | None", row[6]),
        parent_session_id=cast("str | None", row[7]),
        model_reference=cast("str | None", row[8]),
        model_snapshot_id=cast("str | None", row[9]),
        last_sequence=cast(int, row[10]),
        summary_sequence=cast(int, row[11]),
        covered_sequence=cast(int, row[12]),
        event_bytes=cast(int, row[13]),
        held_until=cast("int | None", row[14]),
        created_at=cast(int, row[15]),
        updated_at=cast(int, row[16]),
        workspace_identity=_known(row[17:]),
    )
