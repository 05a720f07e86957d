"""Which model a Session runs with: bound once, to exact bytes, and compared at every resume (behaviours 53 to 55, 65).

    mutation lock ─▶ revalidate the model ─▶ one guarded UPDATE ─▶ commit ─▶ unlock

The module owns these invariants:

- Reference and snapshot id come from the installed model as the disk says it is, never from a caller's text.
- The mutation lock is held from the proof through the commit, so that no removal comes between.
- A binding is never changed: the same one again is fine, another is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from emelex_core import faults, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Value
from emelex_core.errors import Invalid, MissingModelIdentity, NotFound, SessionBusy, SessionModelMismatch
from emelex_core.sessions import registry
from emelex_core.sessions.records import Session

if TYPE_CHECKING:
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel


def bind(
    database: Database,
    session_id: str,
    model: InstalledModel,
    *,
    manager: ModelManager,
    clock: Clock,
    token: bytes | None = None,
) -> InstalledModel:
    """Bind a Session to an installed model, proven under the mutation lock; return the model as it was proven.

    `token` is that of a lease on the Session. `manager` is that of the database's Home. Raises: Invalid for another
    binding; ModelSnapshotInvalid, ModelUnusable for the model; SessionBusy, NotFound; StorageBusy for the lock.
    """
    with manager.mutation():
        proven = manager.revalidate(model)
        faults.reach("bind.validated")
        _write(database, session_id, proven, now=clock(), token=token)
        faults.reach("bind.committed")
    return proven


def require_same(session: Session, model: InstalledModel) -> None:
    """Check that a Session may be resumed with a model; a Session without history takes any.

    Raises: MissingModelIdentity, SessionModelMismatch naming both models.
    """
    if session.model_snapshot_id is None:
        if session.last_sequence:
            raise MissingModelIdentity(
                f"Session {session.id} has history, and no model was bound to it",
                hint="start a new Session; this one can still be shown, exported and distilled",
            )
        return
    if (session.model_reference, session.model_snapshot_id) != (model.reference, model.snapshot_id):
        raise SessionModelMismatch(
            f"Session {session.id} is bound to {session.model_snapshot_id}, not to {model.snapshot_id}",
            hint=f"resume it with --model {session.model_reference}, or start a new Session",
        )


def _write(database: Database, session_id: str, model: InstalledModel, *, now: int, token: bytes | None) -> None:
    parameters: dict[str, Value] = {"id": session_id, "now": now, "token": token}
    with database.write() as transaction:
        found = transaction.one(registry.SQL["binding"], {**parameters, "lease_ms": limits.LEASE_MS})
        if found is None:
            raise NotFound(f"no Session {session_id[:80]!r}")
        if found[2] is not None:
            raise SessionBusy(f"Session {session_id} is in use", held_until=cast(int, found[2]))
        if found[0] is not None:
            if found[:2] == (model.reference, model.snapshot_id):
                return
            raise Invalid(f"Session {session_id} is bound to {cast(str, found[1])} already; a binding is never changed")
        transaction.run(
            registry.SQL["bind_model"],
            {**parameters, "reference": model.reference, "snapshot_id": model.snapshot_id},
        )
