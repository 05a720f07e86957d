"""What a person does with Knowledge: remember, activate, forget, pin (behaviours 142 to 145, 148).

The module owns these invariants:

- Every change asks for the workspace as it is now: a key is found in the caller's own workspace only (144).
- Identical content makes no version; an older version that is put into use again does not turn the numbers back.
- Forgetting hides and unpins, once; it outlives the entry. Activating or remembering takes it back.
- Each change writes its line in the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from emelex_core import publish
from emelex_core.db.database import Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound, WorkspaceMismatch
from emelex_core.identity import Workspace
from emelex_core.knowledge import apply, changes, recall
from emelex_core.knowledge.changes import State
from emelex_core.knowledge.records import Knowledge
from emelex_core.sessions import registry

SQL: Final = load("emelex_core", "knowledge")
EVENTS: Final = load("emelex_core", "events")
SURE: Final = 1.0
"""The confidence of what a person says, unless they say less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """Where a person took it from: a Session of the same workspace, and the event, else all of it."""

    session_id: str
    sequence: int | None = None


def remember(
    transaction: Transaction,
    workspace: Workspace,
    key: str,
    content: str,
    *,
    now: int,
    confidence: float = SURE,
    source: SourceEvent | None = None,
) -> Knowledge:
    """Store what a person says under a key, as a new version unless it is what is active already.

    Raises: Invalid, also for a Session of another workspace; NotFound for the Session or event; Corrupt when no version
    number is left.
    """
    apply.check_key(key)
    apply.check_content(content, confidence, what=f"Knowledge {key[:80]!r}")
    workspace_id = registry.ensure_workspace(transaction, workspace)
    provenance = _provenance(transaction, workspace_id, source)
    before = changes.state(transaction, workspace_id, key)
    if before is not None and before.content == content:
        if before.active:
            return recall.show(transaction, workspace_id, key)
        return _put(transaction, workspace_id, before, before.version, now=now)
    if before is None:
        added = transaction.one(SQL["add"], {"workspace_id": workspace_id, "key": key, "now": now})
        assert added is not None
        row, version = cast(int, added[0]), 1
    else:
        row, version = before.row, apply.next_version(before)
    transaction.run(
        SQL["add_version"],
        {
            "row": row,
            "version": version,
            "content": content,
            "confidence": confidence,
            "origin": "user",
            "valid_from": now,
            "now": now,
            **provenance,
        },
    )
    if before is not None:
        transaction.run(SQL["put_version"], {"row": row, "version": version, "now": now})
    changes.drop_forgotten(transaction, workspace_id, key)
    changes.note(
        transaction,
        row,
        action="remembered",
        actor="user",
        before=before,
        after=(version, True),
        now=now,
        session_id=None if source is None else source.session_id,
    )
    return recall.show(transaction, workspace_id, key)


def activate(
    transaction: Transaction, workspace: Workspace, key: str, *, now: int, version: int | None = None
) -> Knowledge:
    """Put a version into use, by default the one that was last; what was hidden comes back.

    Raises: NotFound for the key or the version; WorkspaceMismatch for a key of another workspace.
    """
    workspace_id, before = require(transaction, workspace, key)
    wanted = before.version if version is None else version
    if wanted == before.version and before.active:
        return recall.show(transaction, workspace_id, key)
    if transaction.one(SQL["version_exists"], {"row": before.row, "version": wanted}) is None:
        raise NotFound(f"Knowledge {key[:80]!r} has no version {wanted}", hint="`knowledge history` lists those kept")
    return _put(transaction, workspace_id, before, wanted, now=now)


def forget(
    transaction: Transaction, workspace: Workspace, key: str, *, now: int, reason: str | None = None
) -> Knowledge:
    """Hide an entry and unpin it; a second time changes nothing. Raises: NotFound, WorkspaceMismatch."""
    workspace_id, before = require(transaction, workspace, key)
    if transaction.run(SQL["forget"], {"row": before.row, "now": now}):
        changes.remember_forgotten(transaction, workspace_id, key, now=now)
        changes.note(
            transaction,
            before.row,
            action="forgotten",
            actor="user",
            before=before,
            after=(before.version, False),
            now=now,
            reason=reason,
        )
    return recall.show(transaction, workspace_id, key)


def pin(transaction: Transaction, workspace: Workspace, key: str, *, now: int, pinned: bool = True) -> Knowledge:
    """Pin an active entry, or unpin it; a second time changes nothing.

    Raises: Invalid for one that is hidden; NotFound, WorkspaceMismatch.
    """
    workspace_id, before = require(transaction, workspace, key)
    if pinned and not before.active:
        raise Invalid(f"Knowledge {key[:80]!r} is hidden and cannot be pinned", hint="activate it first")
    if transaction.run(SQL["set_pin"], {"row": before.row, "pinned": pinned, "now": now}):
        changes.note(
            transaction,
            before.row,
            action="pinned" if pinned else "unpinned",
            actor="user",
            before=before,
            after=(before.version, before.active),
            now=now,
        )
    return recall.show(transaction, workspace_id, key)


def require(transaction: Transaction, workspace: Workspace, key: str) -> tuple[int, State]:
    """The workspace's row and the entry under a key of it. Raises: NotFound, WorkspaceMismatch."""
    workspace_id = registry.find_workspace(transaction, workspace)
    found = None if workspace_id is None else changes.state(transaction, workspace_id, key)
    if workspace_id is not None and found is not None:
        return workspace_id, found
    elsewhere = transaction.one(SQL["elsewhere"], {"key": key})
    if elsewhere is not None:
        raise WorkspaceMismatch(
            f"Knowledge {key[:80]!r} belongs to another workspace, {elsewhere[0]!s}", hint=f"-C {elsewhere[0]!s}"
        )
    raise NotFound(f"no Knowledge under the key {key[:80]!r} in this workspace")


def _put(transaction: Transaction, workspace_id: int, before: State, version: int, *, now: int) -> Knowledge:
    transaction.run(SQL["put_version"], {"row": before.row, "version": version, "now": now})
    changes.drop_forgotten(transaction, workspace_id, before.key)
    changes.note(
        transaction, before.row, action="activated", actor="user", before=before, after=(version, True), now=now
    )
    return recall.show(transaction, workspace_id, before.key)


def _provenance(transaction: Transaction, workspace_id: int, source: SourceEvent | None) -> dict[str, Value]:
    """The source columns of a version that a person wrote."""
    names = ("session_id", "first_sequence", "last_sequence", "sha256", "event_id", "sequence", "speaker", "quote")
    empty: dict[str, Value] = {**dict.fromkeys(names), "job_id": None, "made_by": None}
    if source is None:
        return empty
    _, _, _, _, bound = transaction.one(registry.SQL["identity"], {"id": source.session_id}) or (None,) * 5
    if bound is None:
        raise NotFound(f"no Session {source.session_id[:80]!r}")
    if bound != workspace_id:
        raise Invalid(f"Session {source.session_id} belongs to another workspace and cannot be a source here")
    head = transaction.one(registry.SQL["head"], {"id": source.session_id})
    assert head is not None
    last = cast(int, head[0]) if source.sequence is None else source.sequence
    found = publish.current_source(transaction, "knowledge", source.session_id, last)
    if found is None:
        raise NotFound(f"Session {source.session_id} has no event {last}")
    return {
        **empty,
        "session_id": source.session_id,
        "first_sequence": 1 if source.sequence is None else last,
        "last_sequence": last,
        "sha256": found.source_sha256,
    }
