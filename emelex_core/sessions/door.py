"""The verbs of Sessions as the store offers them. Delegations only: each opens its transaction and calls its module.

A module is imported by the verb that needs it, as in the store itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emelex_core import faults, limits
from emelex_core.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

    from emelex_core.clock import Clock
    from emelex_core.db.database import Database
    from emelex_core.events import Event
    from emelex_core.home import Home
    from emelex_core.identity import Workspace
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel
    from emelex_core.sessions.append import AppendedTurn
    from emelex_core.sessions.delete import DeletedSession
    from emelex_core.sessions.lease import SessionLease
    from emelex_core.sessions.rebind import Displaced, Rebound
    from emelex_core.sessions.records import ImportSource, Session, StoredEvent
    from emelex_core.sessions.removed import RemovedSource
    from emelex_core.sessions.search import TranscriptHits

PathLike = str | os.PathLike[str]


class SessionVerbs:
    """What `MemoryStore` does with Sessions. A workspace of None is every workspace, where that can be asked."""

    home: Home | None
    database: Database
    assets_directory: Path
    clock: Clock

    def start_session(
        self,
        workspace: PathLike,
        *,
        title: str,
        source: ImportSource | None = None,
        parent_session_id: str | None = None,
    ) -> Session:
        """Make an empty Session bound to a directory. Raises: Invalid for the directory or the title."""
        from emelex_core import identity
        from emelex_core.sessions import registry

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            session_id = registry.start(
                transaction, bound, title=title, now=self.clock(), source=source, parent_session_id=parent_session_id
            )
            session = registry.get(transaction, session_id, now=self.clock())
        faults.reach("session.started")
        return session

    def claim_session(self, session_id: str, workspace: PathLike) -> SessionLease:
        """Claim a Session for its workspace.

        Raises: NotFound, SessionBusy with the deadline, WorkspaceMismatch, Invalid for the directory.
        """
        from emelex_core import identity
        from emelex_core.sessions import lease

        return lease.claim(self.database, session_id, identity.inspect(workspace), self.clock)

    def get_session(self, prefix: str) -> Session:
        """A Session by its id or a prefix of 8 or more characters. Raises: UsageError, NotFound, AmbiguousId."""
        from emelex_core.sessions import registry

        with self.database.read() as transaction:
            return registry.get(transaction, registry.resolve(transaction, prefix), now=self.clock())

    def list_sessions(
        self,
        workspace: PathLike | None = None,
        *,
        limit: int = limits.PAGE_SESSIONS_MAX,
        before: tuple[int, str] | None = None,
    ) -> list[Session]:
        """Sessions of one workspace, or of all, the most recently active first.

        Raises: Invalid; WorkspaceMismatch where the directory is not the one any more that Sessions were bound to.
        """
        from emelex_core.sessions import registry, scope

        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found:
                return []
            return registry.page(transaction, workspace_id=workspace_id, now=self.clock(), limit=limit, before=before)

    def find_imported(self, source: str, source_id: str) -> Session | None:
        """The Session that was imported from a foreign one, or None."""
        from emelex_core.sessions import registry

        with self.database.read() as transaction:
            session_id = registry.find_imported(transaction, source, source_id)
            return None if session_id is None else registry.get(transaction, session_id, now=self.clock())

    def find_removed(self, source: str, source_id: str) -> RemovedSource | None:
        """What is known of a foreign Session that was here and was removed, or None."""
        from emelex_core.sessions import removed

        with self.database.read() as transaction:
            return removed.find(transaction, source, source_id)

    def bind_model(
        self, session_id: str, model: InstalledModel, *, manager: ModelManager, lease: SessionLease | None = None
    ) -> InstalledModel:
        """Bind a Session to an installed model, once; a claimed Session is bound under its lease.

        Raises: Invalid for a store without a Home, for another Home's manager or lease, and for another binding;
        ModelSnapshotInvalid for a model that is gone or altered; SessionBusy, StaleSessionLease, NotFound.
        """
        from emelex_core.sessions import binding

        if self.home != manager.home:
            raise Invalid("a model is bound in the memory of its own Home; this store was opened otherwise")
        if lease is not None:
            return lease.bind_model(model, manager=manager, database=self.database)
        return binding.bind(self.database, session_id, model, manager=manager, clock=self.clock)

    def validate_workspace(self, session: Session, workspace: PathLike) -> Workspace:
        """Check that a directory is the one a Session is bound to, before a model is loaded.

        Raises: WorkspaceMismatch; NotFound for the Session, Invalid for the directory.
        """
        from emelex_core import identity
        from emelex_core.sessions import registry

        found = identity.inspect(workspace)
        with self.database.read() as transaction:
            _, bound = registry.bound_identity(transaction, session.id)
        identity.require_same(found.path, bound)
        return found

    def validate_model(self, session: Session, model: InstalledModel) -> None:
        """Check that a Session may go on with a model, before it is loaded: the one that it is bound to, by its bytes.

        Raises: SessionModelMismatch naming both; MissingModelIdentity for history that no model was bound to.
        """
        from emelex_core.sessions import binding

        binding.require_same(self.get_session(session.id), model)

    def append_event(self, session_id: str, event: Event) -> AppendedTurn:
        """Append one event to a Session that nobody holds, as a turn of its own.

        Raises: Invalid, NotFound, SessionBusy with the deadline, TurnUnfinished.
        """
        from emelex_core.sessions import unclaimed

        return unclaimed.append_event(self.database, session_id, event, clock=self.clock)

    def set_title(self, session_id: str, title: str) -> None:
        """Change the title of a Session that nobody holds. Raises: Invalid, NotFound, SessionBusy."""
        from emelex_core.sessions import unclaimed

        unclaimed.set_title(self.database, session_id, title, clock=self.clock)

    def read_events(self, session_id: str, *, after: int = 0, limit: int = limits.PAGE_EVENTS_MAX) -> list[StoredEvent]:
        """One bounded page of events after a sequence. Raises: Invalid, Corrupt."""
        from emelex_core.sessions import pages

        with self.database.read() as transaction:
            return pages.page(transaction, session_id, after=after, limit=limit)

    def iterate_events(self, session: Session) -> Iterator[StoredEvent]:
        """All raw events of a Session in order, proven, in bounded memory. Raises: Corrupt."""
        from emelex_core.sessions import pages

        return pages.verified(self.database, session.id, through=session.last_sequence)

    def search_sessions(
        self,
        workspace: PathLike | None,
        words: str,
        *,
        session_id: str | None = None,
        limit: int = limits.PAGE_EVENTS_MAX,
        after: tuple[float, int] | None = None,
    ) -> TranscriptHits:
        """Events that hold every word, literally, also those that a Summary covers; the best first.

        Brings the index up to date first where the store can be written. Raises: Invalid, as `list_sessions`, Storage.
        """
        from emelex_core.sessions import scope, search
        from emelex_core.sessions import words as literal

        literal.parse(words)
        if not self.database.read_only:
            search.catch_up(self.database)
        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found:
                return search.TranscriptHits(hits=(), unindexed=0)
            return search.search(
                transaction, words, workspace_id=workspace_id, session_id=session_id, limit=limit, after=after
            )

    def rebind_session(
        self, session_id: str, workspace: PathLike, *, force: bool = False, dry_run: bool = False
    ) -> Rebound:
        """Bind a Session's directory, with all that belongs to it, to what it is now; say both identities.

        Raises: NotFound; Invalid when it is bound there; Refused while the old directory stands and `force` is off;
        SessionBusy, Storage.
        """
        from emelex_core import identity
        from emelex_core.sessions import rebind

        found = identity.inspect(workspace)
        return rebind.rebind(self.database, session_id, found, clock=self.clock, force=force, dry_run=dry_run)

    def displaced(self, workspace: PathLike) -> tuple[Displaced, ...]:
        """Directories with Sessions or Knowledge that this one may once have been. Raises: Invalid."""
        from emelex_core import identity
        from emelex_core.sessions import rebind

        with self.database.read() as transaction:
            return rebind.displaced(transaction, identity.inspect(workspace))

    def delete_session(self, session_id: str) -> DeletedSession:
        """Delete an idle Session with all that hangs on it, and the assets that only it linked.

        Raises: NotFound, SessionBusy for a live lease or worker, Storage.
        """
        from emelex_core.sessions import delete

        return delete.delete(self.database, self.assets_directory, session_id, clock=self.clock)
