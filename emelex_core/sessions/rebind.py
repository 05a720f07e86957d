"""Rebinding: giving what belongs to one directory to another, when the change has a known reason (behaviour 180).

A restore, a clone or a new device number changes a directory's identity. Nothing then finds its Sessions and Knowledge
by itself, and nothing may guess: a person says which directory it is now. The module owns these invariants:

- Everything of the old directory moves together, in one transaction; nobody holds a Session of it meanwhile.
- Each Session records the change in its own chain, as an audit event that names both identities.
- Nothing is overwritten: an entry whose key the new directory has too stays where it was, and is named.
- A directory that still stands where the Sessions are bound is not robbed of them unless that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from emelex_core import faults, identity
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, Refused, SessionBusy, WorkspaceMismatch
from emelex_core.events import Event
from emelex_core.identity import Identity, Workspace
from emelex_core.sessions import append, registry
from emelex_core.sessions.append import Tail

SQL: Final = load("emelex_core", "rebinding")
LABEL: Final = "rebound"
_KEYS_MAX: Final = 100
"""Keys that a report names; the rest is in `knowledge list --all`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """A directory with Sessions or Knowledge that a given one may once have been."""

    id: int
    path: str
    identity: Identity
    sessions: int
    knowledge: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebound:
    """What a rebinding does, or did. `kept_keys` stay with the old directory, since the new one has them too."""

    old_path: str
    old: Identity
    new_path: str
    new: Identity
    sessions: int
    knowledge: int
    kept_keys: tuple[str, ...]
    done: bool


def displaced(transaction: Transaction, workspace: Workspace) -> tuple[Displaced, ...]:
    """Directories under another identity that this one may have been: same path, or same inode on another device."""
    rows = transaction.all(SQL["displaced"], {**_columns(workspace.identity), "path": workspace.path})
    return tuple(
        Displaced(
            id=cast(int, row[0]),
            path=cast(str, row[1]),
            identity=_identity(row, 2),
            sessions=cast(int, row[5]),
            knowledge=cast(int, row[6]),
        )
        for row in rows
    )


def require_not_displaced(transaction: Transaction, workspace: Workspace) -> None:
    """Raise WorkspaceMismatch, with both identities, where an empty list would hide what is bound to the old one."""
    found = displaced(transaction, workspace)
    if not found:
        return
    old = found[0]
    raise WorkspaceMismatch(
        f"nothing is bound to {workspace.path!r} as it is now ({workspace.identity.describe()}), but "
        f"{old.sessions} Sessions and {old.knowledge} entries are bound to {old.path!r} as it was "
        f"({old.identity.describe()})",
        hint="if it is the same directory (restored, copied, mounted anew): `emelex memory sessions rebind`; "
        "--all lists every workspace",
    )


def rebind(
    database: Database,
    session_id: str,
    workspace: Workspace,
    *,
    clock: Clock,
    force: bool = False,
    dry_run: bool = False,
) -> Rebound:
    """Give the directory of a Session, with everything bound to it, a new identity. With `dry_run` only say what for.

    Raises: NotFound; Invalid when it is bound there already; Refused when the old directory still stands and `force` is
    off; SessionBusy while a lease or a worker holds one of its Sessions; Storage.
    """
    if dry_run:
        with database.read() as transaction:
            return _plan(transaction, session_id, workspace, force=force)
    with database.write() as transaction:
        plan = _plan(transaction, session_id, workspace, force=force)
        old_id = _workspace_id(transaction, session_id)
        _require_idle(transaction, old_id, now=clock())
        _record(transaction, old_id, plan, now=clock())
        kept = _move(transaction, old_id, workspace)
        faults.reach("rebind.before_commit")
    return Rebound(
        old_path=plan.old_path,
        old=plan.old,
        new_path=plan.new_path,
        new=plan.new,
        sessions=plan.sessions,
        knowledge=plan.knowledge - len(kept),
        kept_keys=kept,
        done=True,
    )


def _plan(transaction: Transaction, session_id: str, workspace: Workspace, *, force: bool) -> Rebound:
    path, old = registry.bound_identity(transaction, session_id)
    if old == workspace.identity:
        raise Invalid(f"Session {session_id} is bound to {workspace.path!r} already")
    if not force and _stands(path, old):
        raise Refused(
            f"{path!r}, to which Session {session_id} is bound, still stands unchanged",
            hint="to take its Sessions away from it all the same, add --force",
        )
    counts = transaction.one(SQL["counts"], {"workspace_id": _workspace_id(transaction, session_id)})
    assert counts is not None
    return Rebound(
        old_path=path,
        old=old,
        new_path=workspace.path,
        new=workspace.identity,
        sessions=cast(int, counts[0]),
        knowledge=cast(int, counts[1]),
        kept_keys=(),
        done=False,
    )


def _workspace_id(transaction: Transaction, session_id: str) -> int:
    row = transaction.one(registry.SQL["identity"], {"id": session_id})
    assert row is not None
    return cast(int, row[4])


def _require_idle(transaction: Transaction, workspace_id: int, *, now: int) -> None:
    for statement in (SQL["live"], SQL["working"]):
        row = transaction.one(statement, {"workspace_id": workspace_id, "now": now})
        if row is not None:
            raise SessionBusy(
                f"Session {row[0]!s} of the directory is in use; nothing was bound anew", held_until=cast(int, row[1])
            )


def _record(transaction: Transaction, workspace_id: int, plan: Rebound, *, now: int) -> None:
    """Append one audit event to each Session of the directory."""
    text = f"bound anew from {plan.old_path!r} ({plan.old.describe()}) to {plan.new_path!r} ({plan.new.describe()})"
    turn = append.prepare([Event.audit(text, label=LABEL)])
    for session_id, sequence, chain in transaction.all(SQL["sessions"], {"workspace_id": workspace_id}):
        tail = Tail(sequence=cast(int, sequence), chain=cast(bytes, chain))
        batch = append.lay_out(cast(str, session_id), tail, [turn], now=now)
        parameters: dict[str, Value] = {
            "id": session_id,
            "cursor": tail.sequence,
            "last_sequence": batch.tail.sequence,
            "chain": batch.tail.chain,
            "bytes": batch.bytes,
        }
        transaction.run(SQL["advance_by_audit"], parameters)
        append.insert(transaction, cast(str, session_id), batch)


def _move(transaction: Transaction, old_id: int, workspace: Workspace) -> tuple[str, ...]:
    """Change the directory's row, or move everything to the row that the new identity has already."""
    target = registry.find_workspace(transaction, workspace)
    if target is None:
        transaction.run(SQL["set_identity"], {**_columns(workspace.identity), "path": workspace.path, "id": old_id})
        return ()
    move: dict[str, Value] = {"workspace_id": old_id, "target": target}
    moves = (SQL["move_sessions"], SQL["move_knowledge"], SQL["move_proposals"], SQL["move_forgotten"])
    for statement in moves:
        transaction.run(statement, move)
    registry.ensure_workspace(transaction, workspace)
    rows = transaction.all(SQL["keys"], {"workspace_id": old_id, "limit": _KEYS_MAX})
    return tuple(cast(str, row[0]) for row in rows)


def _stands(path: str, bound: Identity) -> bool:
    try:
        return identity.read_identity(path) == bound
    except OSError:
        return False


def _columns(found: Identity) -> dict[str, Value]:
    return {"device": found.device, "inode": found.inode, "birth_ns": found.birth_ns}


def _identity(row: Row, start: int) -> Identity:
    return Identity(
        device=cast(int, row[start]),
        inode=cast(int, row[start + 1]),
        birth_ns=cast("int | None", row[start + 2]),
    )
